//! Selects the GID of a port to reach a peer from, and explains the selection.
//!
//! A port has several GIDs: a link-local one and one for each address of its net device, each of
//! them for RoCE v1 and v2. A queue pair with the wrong one connects and receives nothing.

use std::fmt;
use std::net::IpAddr;

use crate::ah::{Gid, GidEntry, GidType};
use crate::context::Context;
use crate::error::Error;
use crate::os::{self, InterfaceAddress};

/// The selected entry of a GID table, with the reasons for it and against the others.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use std::net::Ipv4Addr;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let choice = context.choose_gid(1, Some(Ipv4Addr::new(192, 0, 2, 2).into()))?;
/// println!("{choice}"); // GID 1 ::ffff:192.0.2.1: RoCE v2, IPv4 like the peer, on v0
/// for loser in &choice.losers {
///     println!("{loser}"); // GID 0 fe80::5054:ff:fe12:3456: IPv6, and the peer is IPv4
/// }
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidChoice {
    /// The selected entry.
    pub entry: GidEntry,
    /// The reason for it: `RoCE v2, IPv4 like the peer, on v0`.
    pub reason: String,
    /// The other entries.
    pub losers: Vec<GidLoser>,
}

impl fmt::Display for GidChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GID {} {}: {}", self.entry.index, self.entry.gid, self.reason)
    }
}

/// An entry of a GID table that was not selected, and the reason.
///
/// ```
/// use farreach_verbs::gid::GidLoser;
///
/// let loser = GidLoser { index: 0, gid: "fe80::1".parse()?, reason: "RoCE v1".to_owned() };
/// assert_eq!(loser.to_string(), "GID 0 fe80::1: RoCE v1");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GidLoser {
    /// The index in the table.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// The reason why it was not selected.
    pub reason: String,
}

impl fmt::Display for GidLoser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GID {} {}: {}", self.index, self.gid, self.reason)
    }
}

/// No GID of a port is usable. See [`Error::NoGid`].
///
/// ```
/// use farreach_verbs::gid::{self, Interfaces};
///
/// let none = gid::choose(&[], None, &Interfaces::default()).unwrap_err();
/// assert_eq!(none.to_string(), "this port: no GID to send from");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoGid {
    /// The port, as shown to users.
    pub port: String,
    /// The peer to reach, if it is known.
    pub peer: Option<Gid>,
    /// The entries of the table, each with the reason why it is not usable.
    pub losers: Vec<GidLoser>,
}

impl NoGid {
    pub(crate) fn cause(&self) -> String {
        match self.losers.is_empty() {
            true => "the port's GID table is empty: its net device has no address, or is down".to_owned(),
            false => self.losers.iter().map(GidLoser::to_string).collect::<Vec<_>>().join("; "),
        }
    }

    pub(crate) fn fix(&self) -> String {
        match self.peer.map(Gid::ip) {
            Some(IpAddr::V4(_)) => "give the port's net device an IPv4 address, and bring it up",
            Some(IpAddr::V6(_)) => "give the port's net device an IPv6 address, and bring it up",
            None => "give the port's net device an address, and bring it up",
        }
        .to_owned()
    }
}

impl fmt::Display for NoGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "{}: no GID to reach {peer} from", self.port),
            None => write!(f, "{}: no GID to send from", self.port),
        }
    }
}

impl Context {
    /// Selects the GID of a port to reach a peer from. `peer` is its GID or IP address, if known.
    pub fn choose_gid(&self, port: u8, peer: Option<Gid>) -> Result<GidChoice, Error> {
        let interfaces = Interfaces::of_this_namespace();
        choose(&self.gid_table(port)?, peer, &interfaces)
            .map_err(|none| Error::NoGid(Box::new(NoGid { port: self.port_name(port), ..none })))
    }

    /// Returns the GID at an index of a port's table, for callers that override
    /// [`choose_gid`](Self::choose_gid).
    pub fn gid_at(&self, port: u8, index: u32) -> Result<GidChoice, Error> {
        let filled = self.gid_table(port)?;
        let (mut chosen, others): (Vec<_>, Vec<_>) =
            filled.into_iter().partition(|entry| entry.index == index);
        let lose = |entry: GidEntry| {
            let reason = format!("GID {index} was requested");
            GidLoser { index: entry.index, gid: entry.gid, reason }
        };
        let losers = others.into_iter().map(lose).collect();
        match chosen.pop() {
            Some(entry) => {
                Ok(GidChoice { reason: format!("{}, requested", praise(&entry, None)), entry, losers })
            }
            None => Err(Error::NoGid(Box::new(NoGid { port: self.port_name(port), peer: None, losers }))),
        }
    }
}

/// Selects a GID. The result depends on the arguments only.
///
/// Candidates are the entries on a net device that is up in this network namespace, of the peer's
/// address family. The order of preference is: RoCE v2 before v1; the peer's scope (not link-local
/// if no peer is known); the longest common prefix with the peer's address; IPv4 if no peer is
/// known; the lowest index.
///
/// ```
/// use farreach_verbs::gid::{self, Interfaces};
///
/// assert!(gid::choose(&[], None, &Interfaces::of_this_namespace()).is_err());
/// ```
pub fn choose(entries: &[GidEntry], peer: Option<Gid>, here: &Interfaces) -> Result<GidChoice, NoGid> {
    let judged: Vec<_> =
        entries.iter().filter(|e| !e.gid.is_zero()).map(|entry| (entry, judge(entry, peer, here))).collect();
    let best = judged
        .iter()
        .filter_map(|(entry, verdict)| Some((*entry, verdict.as_ref().ok()?)))
        // The first of equal entries. `max_by_key` would return the last.
        .min_by_key(|(_, rank)| std::cmp::Reverse(**rank));
    let losers = |best: Option<(&GidEntry, &Rank)>| {
        let others = judged.iter().filter(|(entry, _)| best.is_none_or(|(winner, _)| winner != *entry));
        let reason = |verdict: &Result<Rank, String>| match (verdict, best) {
            (Err(reason), _) => reason.clone(),
            (Ok(rank), Some((winner, better))) => rank.worse_than(better, winner, peer.is_some()),
            (Ok(_), None) => unreachable!("a usable entry was selected"),
        };
        others
            .map(|(entry, verdict)| GidLoser { index: entry.index, gid: entry.gid, reason: reason(verdict) })
            .collect()
    };
    match best {
        Some((entry, _)) => {
            Ok(GidChoice { reason: praise(entry, peer), losers: losers(best), entry: entry.clone() })
        }
        None => Err(NoGid { port: "this port".to_owned(), peer, losers: losers(None) }),
    }
}

/// The rank of a usable GID. Fields are compared in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_v2: bool,
    /// `true` if its scope equals the peer's, or, if no peer is known, if it is not link-local.
    reaches: bool,
    /// The number of leading bits shared with the peer's GID.
    shared_bits: u32,
    is_ipv4: bool,
}

impl Rank {
    fn worse_than(&self, better: &Self, winner: &GidEntry, is_peer_known: bool) -> String {
        if self.is_v2 != better.is_v2 {
            "RoCE v1, and there is a v2".to_owned()
        } else if self.reaches != better.reaches && !is_peer_known {
            format!("link-local, and GID {} reaches farther", winner.index)
        } else if self.reaches != better.reaches {
            "its scope differs from the peer's".to_owned()
        } else if self.shared_bits != better.shared_bits {
            format!("shares less of its address with the peer than GID {}", winner.index)
        } else if self.is_ipv4 != better.is_ipv4 {
            format!("GID {} is IPv4", winner.index)
        } else {
            format!("no better than GID {}, which comes first", winner.index)
        }
    }
}

/// Returns the rank of a GID, or the reason why it is not usable.
fn judge(entry: &GidEntry, peer: Option<Gid>, here: &Interfaces) -> Result<Rank, String> {
    let shared_bits = peer.map_or(0, |peer| {
        (u128::from_be_bytes(peer.to_bytes()) ^ u128::from_be_bytes(entry.gid.to_bytes())).leading_zeros()
    });
    let Some(address) = entry.address() else {
        // InfiniBand: GIDs differ only by their subnet.
        return Ok(Rank { is_v2: true, reaches: true, shared_bits: shared_bits.min(64), is_ipv4: false });
    };
    here.check(entry, address)?;
    let peer = peer.map(|peer| (peer, family(peer.ip())));
    if let Some((_, theirs)) = peer.filter(|(_, theirs)| *theirs != family(address)) {
        return Err(format!("{}, and the peer is {theirs}", family(address)));
    }
    let is_local = is_link_local(address);
    Ok(Rank {
        is_v2: entry.gid_type == GidType::RoceV2,
        reaches: is_local == peer.is_some_and(|(peer, _)| is_link_local(peer.ip())),
        shared_bits,
        is_ipv4: address.is_ipv4(),
    })
}

/// Returns the reason for a selected entry.
fn praise(entry: &GidEntry, peer: Option<Gid>) -> String {
    let kind = entry.gid_type;
    let Some(address) = entry.address() else {
        let same = peer.is_some_and(|peer| peer.subnet_prefix() == entry.gid.subnet_prefix());
        return format!("{kind}{}", if same { ", of the peer's subnet" } else { "" });
    };
    let like = if peer.is_some() { " like the peer" } else { "" };
    let net = entry.net_device.as_ref().map(|net| format!(", on {net}")).unwrap_or_default();
    let local = if is_link_local(address) { ", link-local" } else { "" };
    format!("{kind}, {}{like}{local}{net}", family(address))
}

fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The net devices of a network namespace, with their addresses.
///
/// ```
/// use farreach_verbs::gid::Interfaces;
///
/// assert!(Interfaces::of_this_namespace().iter().any(|interface| interface.name == "lo"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interfaces(Vec<Interface>);

/// A net device. See [`Interfaces`].
///
/// ```
/// use farreach_verbs::gid::{Interface, Interfaces};
///
/// let addresses = vec!["192.0.2.1".parse()?];
/// let eth0 = Interface { name: "eth0".into(), is_up: true, addresses };
/// assert_eq!(Interfaces::from_iter([eth0]).iter().count(), 1);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name.
    pub name: String,
    /// `true` if it is up.
    pub is_up: bool,
    /// The addresses.
    pub addresses: Vec<IpAddr>,
}

impl FromIterator<Interface> for Interfaces {
    fn from_iter<I: IntoIterator<Item = Interface>>(interfaces: I) -> Self {
        Self(interfaces.into_iter().collect())
    }
}

impl Interfaces {
    /// Returns the net devices of this process's network namespace, by `getifaddrs(3)`. Empty if
    /// that fails.
    #[doc(alias = "getifaddrs")]
    pub fn of_this_namespace() -> Self {
        let mut all = Self::default();
        for InterfaceAddress { name, is_up, address } in os::interface_addresses() {
            all.add(&name, is_up, address);
        }
        all
    }

    /// Returns an iterator over the net devices.
    pub fn iter(&self) -> std::slice::Iter<'_, Interface> {
        self.0.iter()
    }

    fn add(&mut self, name: &str, is_up: bool, address: Option<IpAddr>) {
        match self.0.iter_mut().find(|interface| interface.name == name) {
            Some(interface) => interface.addresses.extend(address),
            None => {
                let addresses = address.into_iter().collect();
                self.0.push(Interface { name: name.to_owned(), is_up, addresses });
            }
        }
    }

    /// Checks that packets can leave by the entry's net device, from its address.
    fn check(&self, entry: &GidEntry, address: IpAddr) -> Result<(), String> {
        let Some(net) = &entry.net_device else {
            return Err("it has no net device".to_owned());
        };
        let Some(interface) = self.iter().find(|interface| net.name.as_ref() == Some(&interface.name)) else {
            return Err(format!("its net device {net} is not in this network namespace"));
        };
        if !interface.is_up {
            return Err(format!("its net device {net} is down"));
        }
        // The default link-local GID of a port is made from its hardware address. The net device
        // need not have that address.
        let has = |interface: &Interface| interface.addresses.contains(&address);
        if !is_link_local(address) && !self.iter().any(has) {
            return Err(format!("no net device of this network namespace has the address {address}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ah::NetDevice;

    fn entry(index: u32, gid: &str, gid_type: GidType, net: &str) -> GidEntry {
        let net_device = (!net.is_empty()).then(|| NetDevice { index: 2, name: Some(net.to_owned()) });
        GidEntry { index, gid: gid.parse().unwrap(), gid_type, net_device }
    }

    /// Returns the table of a device with two addresses.
    fn table() -> Vec<GidEntry> {
        use GidType::{RoceV1, RoceV2};
        vec![
            entry(0, "fe80::1", RoceV1, "v0"),
            entry(1, "fe80::1", RoceV2, "v0"),
            entry(2, "::ffff:192.0.2.1", RoceV1, "v0"),
            entry(3, "::ffff:192.0.2.1", RoceV2, "v0"),
            entry(4, "2001:db8::1", RoceV1, "v0"),
            entry(5, "2001:db8::1", RoceV2, "v0"),
        ]
    }

    fn here() -> Interfaces {
        let addresses = ["192.0.2.1", "2001:db8::1", "10.0.0.1"].map(|text| text.parse().unwrap()).to_vec();
        Interfaces(vec![Interface { name: "v0".into(), is_up: true, addresses }])
    }

    fn chosen(peer: &str) -> (u32, String) {
        let peer = (!peer.is_empty()).then(|| peer.parse().unwrap());
        let choice = choose(&table(), peer, &here()).unwrap();
        (choice.entry.index, choice.to_string())
    }

    #[test]
    fn the_peer_decides() {
        assert_eq!(
            chosen("::ffff:192.0.2.9"),
            (3, "GID 3 ::ffff:192.0.2.1: RoCE v2, IPv4 like the peer, on v0".to_owned())
        );
        assert_eq!(
            chosen("2001:db8::9"),
            (5, "GID 5 2001:db8::1: RoCE v2, IPv6 like the peer, on v0".to_owned())
        );
        assert_eq!(
            chosen("fe80::9"),
            (1, "GID 1 fe80::1: RoCE v2, IPv6 like the peer, link-local, on v0".to_owned())
        );
        assert_eq!(chosen(""), (3, "GID 3 ::ffff:192.0.2.1: RoCE v2, IPv4, on v0".to_owned()));
    }

    #[test]
    fn the_losers_hear_why() {
        let peer = "2001:db8::9".parse().unwrap();
        let losers = choose(&table(), Some(peer), &here()).unwrap().losers;
        let reasons: Vec<_> = losers.iter().map(|loser| (loser.index, loser.reason.as_str())).collect();
        assert_eq!(
            reasons,
            [
                (0, "RoCE v1, and there is a v2"),
                (1, "its scope differs from the peer's"),
                (2, "IPv4, and the peer is IPv6"),
                (3, "IPv4, and the peer is IPv6"),
                (4, "RoCE v1, and there is a v2"),
            ]
        );
        let without_a_peer = choose(&table(), None, &here()).unwrap().losers;
        assert_eq!(without_a_peer[1].reason, "link-local, and GID 3 reaches farther");
    }

    #[test]
    fn the_nearest_address_wins_and_of_equals_the_first() {
        let mut table = table();
        table.push(entry(6, "::ffff:10.0.0.1", GidType::RoceV2, "v0"));
        table.push(entry(7, "::ffff:10.0.0.1", GidType::RoceV2, "v0"));
        let choice = choose(&table, Some("::ffff:10.0.0.9".parse().unwrap()), &here()).unwrap();
        assert_eq!(choice.entry.index, 6);
        assert_eq!(choice.losers[3].reason, "shares less of its address with the peer than GID 6");
        assert_eq!(choice.losers[6].reason, "no better than GID 6, which comes first");
    }

    #[test]
    fn a_net_device_that_cannot_be_used_is_not() {
        let none = |interfaces: &Interfaces| choose(&table()[2..4], None, interfaces).unwrap_err();
        let elsewhere = none(&Interfaces::default());
        assert!(
            elsewhere.cause().contains("its net device v0 is not in this network namespace"),
            "{elsewhere:?}"
        );
        let mut down = here();
        down.0[0].is_up = false;
        assert_eq!(none(&down).losers[0].reason, "its net device v0 is down");
        let mut namesake = here();
        namesake.0[0].addresses.clear();
        assert!(none(&namesake).cause().contains("has the address 192.0.2.1"));
    }

    #[test]
    fn nothing_of_the_peers_family_is_no_choice() {
        let none = choose(&table()[2..4], Some("2001:db8::9".parse().unwrap()), &here()).unwrap_err();
        assert_eq!(none.to_string(), "this port: no GID to reach 2001:db8::9 from");
        assert!(none.cause().contains("IPv4, and the peer is IPv6"), "{}", none.cause());
        assert!(none.fix().contains("IPv6"), "{}", none.fix());
    }

    #[test]
    fn infiniband_goes_by_subnet() {
        let table = [entry(0, "fe80::1:2:3:4", GidType::Ib, ""), entry(1, "fec0::1:2:3:4", GidType::Ib, "")];
        let of = |peer: Option<Gid>| choose(&table, peer, &Interfaces::default()).unwrap();
        assert_eq!(of(None).to_string(), "GID 0 fe80::1:2:3:4: IB");
        assert_eq!(
            of(Some("fec0::9".parse().unwrap())).to_string(),
            "GID 1 fec0::1:2:3:4: IB, of the peer's subnet"
        );
    }
}
