//! Recognises known causes of trouble between two cards, and names the fixes.

use super::gids::unlike_gids;
use super::judged::Judged;
use super::names::{BOTH, Names};
use super::readings::{Arrived, CardEnd, CardsTried, Cell, GidReading, Obstacle, Tried, Trouble};
use super::suspects::with_suspects;
use crate::finding::{CommandLine, Finding, Fix};

/// Detects link layers that differ, so that nothing can connect the two.
pub(super) fn of_the_wire(cell: &Cell, tried: &CardsTried, names: &Names<'_>) -> Option<Judged> {
    let (here, there) = (&tried.local.link_layer, &tried.remote.link_layer);
    if here == there {
        return None;
    }
    let found = format!(
        "{} of {} is {here}, and {} of {} is {there}: they cannot communicate",
        cell.local, names.here, cell.remote, names.peer
    );
    let set_type = |kind: &str, number: u8| {
        Fix::new(format!("set a card that supports both link types to {kind}, and reboot its host"))
            .run(CommandLine::new("mlxconfig -d PCI_ADDRESS set").arg(format!("LINK_TYPE_P1={number}")))
    };
    let finding = Finding::fail(found)
        .fix("connect cards of the same link layer")
        .fix(set_type("InfiniBand", 1))
        .fix(set_type("Ethernet", 2));
    Some(Judged::fails(&format!("{here} with {there}"), finding).of_unlike_wires())
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
        Obstacle::NoRoute => no_route(own, other, names, is_here, &trouble),
        Obstacle::NoNeighbour => no_neighbour(own, other, names, is_here, &trouble),
        _ => no_net_device(own, names, is_here, &trouble),
    };
    Some(judged.perhaps_apart())
}

fn no_route(own: &CardEnd, other: &CardEnd, names: &Names<'_>, is_here: bool, trouble: &Trouble) -> Judged {
    let (address, from, dev) = (address(&other.gid), address(&own.gid), net_device(own));
    let found = format!("{} has no route from {from} ({dev}) to {address}", names.host(is_here));
    let finding = Finding::fail(found)
        .read(trouble.error.clone())
        .fix(names.fix(is_here, "see which route the kernel finds").run(
            CommandLine::new("ip route get").name(&address).shell("from").name(&from).shell("oif").name(dev),
        ))
        .fix(Fix::new("give both net devices addresses of the same subnet").at(BOTH))
        .fix(
            names
                .fix(is_here, "add a route")
                .run(CommandLine::new("ip route add SUBNET via ROUTER dev").name(dev)),
        );
    Judged::fails("no route", finding)
}

fn no_neighbour(
    own: &CardEnd,
    other: &CardEnd,
    names: &Names<'_>,
    is_here: bool,
    trouble: &Trouble,
) -> Judged {
    let (address, dev) = (address(&other.gid), net_device(own));
    let found = format!(
        "{} gets no ARP or NDP answer from {address} on {dev}: the address is in another VLAN or network, its net \
         device is down, or the subnet is wrong",
        names.host(is_here)
    );
    let finding = Finding::fail(found)
        .read(trouble.error.clone())
        .fix(
            names
                .fix(is_here, "see whether the neighbour answers")
                .run(CommandLine::new("ping -c1 -I").name(dev).name(&address))
                .run(CommandLine::new("ip neigh show dev").name(dev)),
        )
        .fix(
            Fix::new(
                "give both net devices addresses of the same subnet, and their switch ports the same VLAN",
            )
            .at(BOTH),
        );
    Judged::fails("no neighbour", finding)
}

fn no_net_device(own: &CardEnd, names: &Names<'_>, is_here: bool, trouble: &Trouble) -> Judged {
    let found = format!(
        "GID {} ({}) of {} has no usable net device: it is loopback, down, or in another network namespace",
        own.gid.index,
        own.gid.gid,
        names.host(is_here)
    );
    let finding = Finding::fail(found)
        .read(trouble.error.clone())
        .fix(
            names
                .fix(is_here, "select another GID of this list with the option -x")
                .run("farreach devices -v"),
        )
        .fix(Fix::new("run farreach in the network namespace of the net device").at("container"));
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
        (true, true) => ("in both directions".to_owned(), &[true, false]),
        (true, false) => (names.way(true), &[true]),
        (false, true) => (names.way(false), &[false]),
        (false, false) => return None,
    };
    let mtu = tried.path_mtu_bytes;
    let works = match tried.mtu_that_works_bytes {
        Some(bytes) => format!("; packets of {bytes} bytes arrive"),
        None => "; of messages with several smaller packets, all but the first packet are lost".to_owned(),
    };
    let found = format!(
        "packets of 256 bytes arrive, but packets of {mtu} bytes are lost {way}{works}: a device on the path has a \
         smaller MTU, or drops large packets"
    );
    let (dev, address) = (net_device(&tried.local), address(&tried.remote.gid));
    let (finding, _) = with_suspects(Finding::fail(found), tried, names, ways);
    let mut finding = finding
        // A full packet makes an IP packet that is 60 bytes larger; ping adds 28 of these itself.
        .fix(
            names.fix(true, "reproduce the loss with a packet of this size that must not be fragmented").run(
                CommandLine::new("ping -c1 -M do -s")
                    .arg(mtu.saturating_add(32).to_string())
                    .shell("-I")
                    .name(dev)
                    .name(&address),
            ),
        )
        .fix(
            Fix::new(format!(
                "set every switch port and tunnel to accept IP packets of at least {} bytes",
                mtu.saturating_add(80)
            ))
            .at(BETWEEN),
        );
    if let Some(bytes) = tried.mtu_that_works_bytes.and_then(net_mtu) {
        let fix = |is_here, end| {
            names.fix(is_here, "until then, lower the MTU, so that the card sends smaller packets").run(
                CommandLine::new("ip link set dev").name(net_device(end)).shell("mtu").arg(bytes.to_string()),
            )
        };
        finding = finding.fix(fix(true, &tried.local)).fix(fix(false, &tried.remote));
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
        "a reliable connection works in both directions, so only datagrams are dropped"
    } else {
        "it works, because lost packets are sent again"
    };
    let found = format!(
        "{there} of {all} datagrams to {} are lost, and {back} of {all} to {}: {works}",
        names.peer, names.here
    );
    let finding = Finding::warn(found)
        .fix(
            Fix::new("see the counters of dropped packets")
                .at(BOTH)
                .run("ip -s link")
                .run("ethtool -S NETDEV")
                .run("rdma statistic"),
        )
        .fix(Fix::new("in a RoCE network, configure PFC or ECN on all switches").at(BETWEEN));
    Some(Judged::warns("works, with loss".to_owned(), finding))
}

/// Detects ports with different MTUs.
pub(super) fn of_unlike_ports(cell: &Cell, tried: &CardsTried, names: &Names<'_>) -> Option<Judged> {
    let (here, there) = (tried.local.mtu_bytes, tried.remote.mtu_bytes);
    if here == there {
        return None;
    }
    let found = format!(
        "{} of {} has an MTU of {here} bytes, and {} of {} of {there} bytes: both use {} bytes",
        cell.local, names.here, cell.remote, names.peer, tried.path_mtu_bytes
    );
    let mut finding = Finding::warn(found);
    let (smaller, is_here) = if here < there { (&tried.local, true) } else { (&tried.remote, false) };
    if let Some(mtu) = net_mtu(here.max(there)) {
        finding = finding.fix(
            names.fix(is_here, "raise the MTU, if every switch on the path supports it").run(
                CommandLine::new("ip link set dev")
                    .name(net_device(smaller))
                    .shell("mtu")
                    .arg(mtu.to_string()),
            ),
        );
    }
    Some(Judged::warns(format!("works; MTU {here} and {there}"), finding))
}

/// The place of a fix that concerns the network between the hosts.
const BETWEEN: &str = "between the hosts";

fn address(gid: &GidReading) -> String {
    gid.address.map_or_else(|| gid.gid.clone(), |address| address.to_string())
}

fn net_device(end: &CardEnd) -> &str {
    end.gid.net_device.as_deref().unwrap_or("NETDEV")
}
