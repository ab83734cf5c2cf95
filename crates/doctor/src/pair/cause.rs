//! Recognises known causes of trouble between two cards, and names the fixes.

use super::gids::unlike_gids;
use super::judged::Judged;
use super::names::Names;
use super::readings::{Arrived, CardEnd, CardsTried, Cell, GidReading, Obstacle, Tried, Trouble};
use super::suspects::with_suspects;
use crate::finding::Finding;

/// Detects link layers that differ, so that nothing can connect the two.
pub(super) fn of_the_wire(cell: &Cell, tried: &CardsTried, names: &Names<'_>) -> Option<Judged> {
    let (here, there) = (&tried.local.link_layer, &tried.remote.link_layer);
    if here == there {
        return None;
    }
    let found = format!(
        "one is {here}, the other {there}: {} of this host and {} of {} never reach each other",
        cell.local, cell.remote, names.peer
    );
    let finding = Finding::fail(found)
        .fix("join cards of the same kind of wire")
        .fix("a card that speaks both is told which: mlxconfig -d PCI_ADDRESS set LINK_TYPE_P1=1 (InfiniBand) or 2 (Ethernet), and the host booted anew");
    Some(Judged::fails(&format!("{here} here, {there} there"), finding).of_unlike_wires())
}

/// Detects that the kernel of one side has no route to the other's address.
pub(super) fn of_the_way(tried: &CardsTried, names: &Names<'_>) -> Option<Judged> {
    let here = [tried.connected_here.trouble(), tried.there.trouble.as_ref()];
    let there = [tried.connected_there.trouble(), tried.back.trouble.as_ref()];
    let known = |trouble: &&Trouble| trouble.obstacle.is_of_the_way();
    let found = |side: [Option<&Trouble>; 2]| side.into_iter().flatten().find(known).cloned();
    let (trouble, is_here) = match (found(here), found(there)) {
        (Some(trouble), _) => (trouble, true),
        (None, Some(trouble)) => (trouble, false),
        (None, None) => return None,
    };
    let (own, other) = if is_here { (&tried.local, &tried.remote) } else { (&tried.remote, &tried.local) };
    let judged = match trouble.obstacle {
        Obstacle::GidFamilies => gid_families(tried, names),
        Obstacle::NoRoute => no_route(own, other, &names.host(is_here), &trouble),
        Obstacle::NoNeighbour => no_neighbour(own, other, &names.host(is_here), &trouble),
        _ => no_net_device(own, &names.host(is_here), &trouble),
    };
    Some(judged.perhaps_apart())
}

fn no_route(own: &CardEnd, other: &CardEnd, host: &str, trouble: &Trouble) -> Judged {
    let (address, from, dev) = (address(&other.gid), address(&own.gid), net_device(own));
    let found = format!("{host} has no route from {from} ({dev}) to {address}");
    let finding = Finding::fail(found).read(trouble.error.clone());
    let look = format!("ip route get {address} from {from} oif {dev}");
    let finding = finding
        .fix_in(&format!("on {host}"), look)
        .fix("give both net devices addresses of one subnet, or add the route: ip route add SUBNET via ROUTER dev NETDEV");
    Judged::fails("no route", finding)
}

fn no_neighbour(own: &CardEnd, other: &CardEnd, host: &str, trouble: &Trouble) -> Judged {
    let (address, dev) = (address(&other.gid), net_device(own));
    let found = format!(
        "{host} asks on {dev} for {address}, and nobody answers: it is in another VLAN or on another wire, down, or the subnet is wrong"
    );
    let finding = Finding::fail(found)
        .read(trouble.error.clone())
        .fix_in(&format!("on {host}"), format!("ping -c1 -I {dev} {address}; ip neigh show dev {dev}"))
        .fix("give both net devices addresses of one subnet, and their switch ports the same VLAN");
    Judged::fails("no neighbour", finding)
}

fn no_net_device(own: &CardEnd, host: &str, trouble: &Trouble) -> Judged {
    let found = format!(
        "GID {} {} of {host} has no net device that can be used: it is loopback, down, or in another network namespace",
        own.gid.index, own.gid.gid
    );
    let finding = Finding::fail(found)
        .read(trouble.error.clone())
        .fix_in(&format!("on {host}"), "choose another GID: farreach devices -v lists them, -x takes one")
        .fix_in("container", "run it in the network namespace that the net device is in");
    Judged::fails("no net device", finding)
}

fn gid_families(tried: &CardsTried, names: &Names<'_>) -> Judged {
    let finding = unlike_gids(tried, names, "one GID is IPv4 and the other IPv6");
    Judged::fails("GIDs of two families", finding)
}

/// Detects that short messages arrive, but full packets do not.
pub(super) fn of_packet_size(tried: &CardsTried, names: &Names<'_>) -> Option<Judged> {
    let is_lost = |tried: &Tried| {
        matches!(tried.trouble().map(|it| it.obstacle), Some(Obstacle::Unanswered | Obstacle::Silent))
    };
    let (way, ways): (String, &[bool]) = match (is_lost(&tried.long_there), is_lost(&tried.long_back)) {
        (true, true) => ("both ways".to_owned(), &[true, false]),
        (true, false) => (names.way(true), &[true]),
        (false, true) => (names.way(false), &[false]),
        (false, false) => return None,
    };
    let mtu = tried.path_mtu_bytes;
    let works = match tried.mtu_that_works_bytes {
        Some(bytes) => format!("; packets of {bytes} bytes arrive"),
        None => "; smaller ones do not arrive either, from the second packet of a message on".to_owned(),
    };
    let found = format!(
        "single packets of 256 bytes arrive, and full ones of {mtu} bytes are lost, {way}{works}: something on the way is set to a smaller MTU, or drops large packets"
    );
    let (dev, address) = (net_device(&tried.local), address(&tried.remote.gid));
    let (finding, _) = with_suspects(Finding::fail(found), tried, names, ways);
    let mut finding = finding
        // A full packet makes an IP packet that is 60 bytes larger; ping adds 28 of these itself.
        .fix_in("on this host", format!("ping -c1 -M do -s {} -I {dev} {address} shows it", mtu + 32))
        .fix_in(
            "between the hosts",
            format!("see that each switch port and tunnel takes IP packets of {} bytes and more", mtu + 80),
        );
    if let Some(bytes) = tried.mtu_that_works_bytes.and_then(net_mtu) {
        finding = finding.fix_in(
            "until then",
            format!("on both hosts, let the cards send smaller packets: ip link set dev {dev} mtu {bytes}"),
        );
    }
    Some(Judged::fails(&format!("MTU: packets of {mtu} bytes are lost"), finding))
}

/// Returns a net device MTU at which the card uses packets of this size; `None` if it would be too
/// small for IP.
fn net_mtu(packet_bytes: u32) -> Option<u32> {
    match packet_bytes {
        1024 => Some(1500),
        2048 => Some(2200),
        4096 => Some(4200),
        _ => None,
    }
}

/// Detects the loss of some datagrams.
pub(super) fn of_loss(tried: &CardsTried, names: &Names<'_>) -> Option<Judged> {
    let all = tried.datagrams;
    let lost = |arrived: &Arrived| arrived.count.map_or(0, |count| all - count.min(all));
    let (there, back) = (lost(&tried.there), lost(&tried.back));
    // If all are lost both ways, the cards have no datagrams at all, and the connection works.
    if (there, back) == (0, 0) || (there, back) == (all, all) {
        return None;
    }
    // Retransmission does not help if every datagram is lost.
    let works = if there == all || back == all {
        "a reliable connection works both ways all the same, so something drops datagrams alone"
    } else {
        "it works, by sending again"
    };
    let found = format!(
        "{there} of {all} datagrams are lost to {}, and {back} of {all} on the way back: {works}",
        names.peer
    );
    let finding = Finding::warn(found)
        .fix("see what is dropped: ip -s link, ethtool -S NETDEV, rdma statistic, on both hosts")
        .fix("on a RoCE network, see that pause frames (PFC) or ECN are set on all switches");
    Some(Judged::warns("works, with loss".to_owned(), finding))
}

/// Detects ports with different MTUs.
pub(super) fn of_unlike_ports(cell: &Cell, tried: &CardsTried, names: &Names<'_>) -> Option<Judged> {
    let (here, there) = (tried.local.mtu_bytes, tried.remote.mtu_bytes);
    if here == there {
        return None;
    }
    let found = format!(
        "{} takes packets of {here} bytes, and {} of {} of {there}: both send those of {}",
        cell.local, cell.remote, names.peer, tried.path_mtu_bytes
    );
    let mut finding = Finding::warn(found);
    let (smaller, is_here) = if here < there { (&tried.local, true) } else { (&tried.remote, false) };
    if let Some(mtu) = net_mtu(here.max(there)) {
        finding = finding.fix_in(
            &format!("on {}", names.host(is_here)),
            format!(
                "ip link set dev {} mtu {mtu}, if every switch on the way takes that",
                net_device(smaller)
            ),
        );
    }
    Some(Judged::warns(format!("works; MTU {here} here, {there} there"), finding))
}

fn address(gid: &GidReading) -> String {
    gid.address.map_or_else(|| gid.gid.clone(), |address| address.to_string())
}

fn net_device(end: &CardEnd) -> &str {
    end.gid.net_device.as_deref().unwrap_or("NETDEV")
}
