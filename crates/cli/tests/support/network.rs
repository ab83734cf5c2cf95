//! Faults of the network between two hosts, or of a port, taken back when the test ends, also when it fails.
#![allow(dead_code, reason = "each test uses its part")]

use super::host::Host;

/// RoCE packets that come to a host, dropped before its card sees them.
#[derive(Debug)]
pub(crate) struct DroppedPackets {
    host: Host,
    family: &'static str,
}

impl DroppedPackets {
    /// Drops them from now on.
    pub(crate) fn at(host: Host) -> Self {
        Self::by(host, "inet", &["udp", "dport", "4791"])
    }

    /// Drops those whose UDP datagram has more bytes than this.
    pub(crate) fn longer_than(host: Host, bytes: u32) -> Self {
        Self::by(host, "inet", &["udp", "dport", "4791", "udp", "length", ">", &bytes.to_string()])
    }

    /// Drops questions of who has this address, so that it is as if on another wire.
    pub(crate) fn questions_for(host: Host, address: &str) -> Self {
        Self::by(host, "arp", &["arp", "daddr", "ip", address])
    }

    fn by(host: Host, family: &'static str, which: &[&str]) -> Self {
        let dropped = Self { host, family };
        let chain = "{ type filter hook input priority 0; }";
        host.output(&["nft", "add", "table", family, "farreach"]);
        host.output(&["nft", "add", "chain", family, "farreach", "in", chain]);
        let rule = ["nft", "add", "rule", family, "farreach", "in"];
        host.output(&[&rule, which, &["drop"]].concat());
        dropped
    }
}

impl Drop for DroppedPackets {
    fn drop(&mut self) {
        self.host.run(&["nft", "delete", "table", self.family, "farreach"]);
    }
}

/// An address more on a net device.
#[derive(Debug)]
pub(crate) struct AddedAddress {
    host: Host,
    net_device: String,
    address: &'static str,
}

impl AddedAddress {
    /// Adds it.
    pub(crate) fn at(host: Host, net_device: &str, address: &'static str) -> Self {
        let added = Self { host, net_device: net_device.to_owned(), address };
        let duplicates: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
        host.output(&[&["ip", "addr", "add", address, "dev", net_device], duplicates].concat());
        added
    }
}

impl Drop for AddedAddress {
    fn drop(&mut self) {
        self.host.run(&["ip", "addr", "del", self.address, "dev", &self.net_device]);
    }
}

/// A net device that takes larger packets than the other end of its wire.
#[derive(Debug)]
pub(crate) struct LargerMtu {
    host: Host,
    net_device: String,
}

impl LargerMtu {
    /// Lets it.
    pub(crate) fn of(host: Host, net_device: &str) -> Self {
        host.output(&["ip", "link", "set", "dev", net_device, "mtu", "4500"]);
        Self { host, net_device: net_device.to_owned() }
    }
}

impl Drop for LargerMtu {
    fn drop(&mut self) {
        self.host.run(&["ip", "link", "set", "dev", &self.net_device, "mtu", "1500"]);
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
