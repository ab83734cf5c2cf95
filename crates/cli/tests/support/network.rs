//! Faults of the network between two hosts, or of a port, taken back when the test ends, also when it fails.
#![allow(dead_code, reason = "each test uses its part")]

use std::thread;
use std::time::{Duration, Instant};

use super::host::Host;

/// RoCE packets that come to a host, dropped before its card sees them.
#[derive(Debug)]
pub(crate) struct DroppedPackets(Host);

impl DroppedPackets {
    /// Drops them from now on.
    pub(crate) fn at(host: Host) -> Self {
        let dropped = Self(host);
        for words in [
            &["add", "table", "inet", "farreach"][..],
            &["add", "chain", "inet", "farreach", "in", "{ type filter hook input priority 0; }"],
            &["add", "rule", "inet", "farreach", "in", "udp", "dport", "4791", "drop"],
        ] {
            host.output(&[&["nft"], words].concat());
        }
        dropped
    }
}

impl Drop for DroppedPackets {
    fn drop(&mut self) {
        self.0.run(&["nft", "delete", "table", "inet", "farreach"]);
    }
}

/// A net device that is down.
#[derive(Debug)]
pub(crate) struct DownLink {
    host: Host,
    net_device: &'static str,
}

impl DownLink {
    /// Sets it down.
    pub(crate) fn of(host: Host, net_device: &'static str) -> Self {
        host.output(&["ip", "link", "set", net_device, "down"]);
        Self { host, net_device }
    }
}

impl Drop for DownLink {
    fn drop(&mut self) {
        self.host.run(&["ip", "link", "set", self.net_device, "up"]);
        // An IPv6 address that came by hand is gone with the link: it is the card's, too.
        let number = if self.host == Host::HERE { 1 } else { 2 };
        self.host.run(&[
            "ip",
            "addr",
            "add",
            &format!("2001:db8::{number}/64"),
            "dev",
            self.net_device,
            "nodad",
        ]);
    }
}

/// One more address of a net device, with the place that it has in the card's table.
#[derive(Debug)]
pub(crate) struct AddedAddress {
    host: Host,
    net_device: &'static str,
    address: &'static str,
    pub(crate) gid_index: String,
}

impl AddedAddress {
    /// `address` is with its length: `198.51.100.2/24`.
    pub(crate) fn to(host: Host, net_device: &'static str, card: &str, address: &'static str) -> Self {
        host.output(&["ip", "addr", "add", address, "dev", net_device]);
        let mut added = Self { host, net_device, address, gid_index: String::new() };
        let octets: Vec<u8> =
            address.split(['/', '.']).take(4).map(|octet| octet.parse().expect("an octet")).collect();
        let ending = format!("ffff:{:02x}{:02x}:{:02x}{:02x}", octets[0], octets[1], octets[2], octets[3]);
        let find = format!("grep -l '{ending}$' /sys/class/infiniband/{card}/ports/1/gids/*");
        let deadline = Instant::now() + Duration::from_secs(10);
        while added.gid_index.is_empty() {
            assert!(Instant::now() < deadline, "{address} is not in the table of {card}");
            let found = host.run(&["sh", "-c", &find]).stdout;
            added.gid_index = found.trim().rsplit('/').next().unwrap_or_default().to_owned();
            thread::sleep(Duration::from_millis(50));
        }
        added
    }
}

impl Drop for AddedAddress {
    fn drop(&mut self) {
        self.host.run(&["ip", "addr", "del", self.address, "dev", self.net_device]);
    }
}
