//! Faults of the network between two hosts, or of a port, taken back when the test ends, also when it fails.
#![allow(dead_code, reason = "each test uses its part")]

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
