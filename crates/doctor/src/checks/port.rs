//! Checks the ports: their state, rate and MTU.

use super::cards::no_device;
use super::wire::{Wire, WiredPort, each_port, is_anothers, net_device, pci_address, wire};
use crate::finding::{Answer, Finding};
use crate::pack::{Pack, Port};

const NO_PORTS: &str = "there is no RDMA device";

/// Checks whether each port is active.
pub(super) fn port(pack: &Pack) -> Answer {
    match pack.ports() {
        ports if ports.is_empty() => no_device(pack),
        ports => Answer::of_each(ports, NO_PORTS, |port| state(pack, &port).of(port.words())),
    }
}

fn state(pack: &Pack, port: &Port) -> Finding {
    let wire = match wire(pack, port) {
        Ok(wire) => wire,
        Err((path, missing)) => return Finding::unread(&path, &missing),
    };
    let path = port.path("state");
    let state = match pack.text(&path) {
        Ok(text) => words_of(text),
        Err(missing) => return Finding::unread(&path, &missing),
    };
    let physical = pack.text(&port.path("phys_state")).map_or("physical state not told", words_of);
    let found = format!("{state}, {physical}, {}", wire.name());
    let finding = if state == "ACTIVE" { Finding::pass(found) } else { Finding::fail(found) };
    let finding = finding.read(path).read(port.path("phys_state")).read(port.path("link_layer"));
    if state == "ACTIVE" { finding } else { why_down(pack, port, wire, state, physical, finding) }
}

/// Adds the cause and the fixes for a port that is not active.
fn why_down(
    pack: &Pack,
    port: &Port,
    wire: Wire,
    state: &str,
    physical: &str,
    mut finding: Finding,
) -> Finding {
    let mut tell = |words: &str| finding.found = format!("{}: {words}", finding.found);
    match (wire, state, physical) {
        (Wire::InfiniBand, "INIT" | "ARMED", _) => {
            tell("the cable is well, and no subnet manager has set the port up");
            finding
                .fix("systemctl start opensm, on one host of the subnet, or the subnet manager of the switch")
        }
        (Wire::InfiniBand, _, "Disabled") => {
            tell("the port was switched off");
            let Port { device, number } = port;
            finding.fix(format!("ibportstate -C {device} -P {number} -D 0 {number} enable"))
        }
        (Wire::InfiniBand, ..) => {
            tell("no signal from the other end");
            // The tool accepts either name.
            let card = pci_address(pack, port.device).unwrap_or(port.device);
            finding.fix(format!(
                "check the cable, its transceivers, and the switch's port: mlxlink -d {card} -m tells more"
            ))
        }
        (Wire::Roce | Wire::SoftRoce | Wire::Iwarp, ..) => ethernet_down(pack, port, wire, physical, finding),
        (Wire::Unspecified, ..) => {
            finding.fix("stop and start the instance; then its dmesg tells what the driver says")
        }
    }
}

/// Adds the cause and the fixes for an Ethernet port that is not active.
///
/// Card drivers report every inactive port as disabled, even one without a cable, so the state of
/// its net device decides. For Soft-RoCE the reported state is correct.
fn ethernet_down(pack: &Pack, port: &Port, wire: Wire, physical: &str, mut finding: Finding) -> Finding {
    let net = net_device(pack, port);
    let mut tell = |words: &str| finding.found = format!("{}: its net device {net} {words}", finding.found);
    let is_up = match (wire, physical) {
        (Wire::SoftRoce, "Disabled") => Some(false),
        _ => is_up(pack, net),
    };
    let switch_on = format!("ip link set {net} up");
    let look = match wire {
        Wire::SoftRoce => format!("check what {net} is connected to: ip -d link show {net}"),
        _ => format!("check the cable, its transceivers, and the switch's port: ethtool {net}"),
    };
    match is_up {
        Some(false) => {
            tell("was switched off");
            finding.fix(switch_on)
        }
        Some(true) => {
            tell("is up, and hears nothing from the other end");
            finding.fix(look)
        }
        None => {
            tell("is down, or hears nothing from the other end");
            finding.fix(switch_on).fix(format!("if it stays down, {look}"))
        }
    }
    .read("getifaddrs")
}

/// Returns whether a net device is up, or `None` if that is not known.
fn is_up(pack: &Pack, net: &str) -> Option<bool> {
    let all = pack.probes().interfaces.get().ok()?;
    all.iter().find(|interface| interface.name == net).map(|interface| interface.is_up)
}

/// Returns a state such as `4: ACTIVE` without its number.
fn words_of(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, words)| words)
}

/// Checks whether each port runs at the rate that it could have.
pub(super) fn rate(pack: &Pack) -> Answer {
    let fastest = |wanted: Wire| {
        let same = pack.ports().into_iter().filter(|port| wire(pack, port).is_ok_and(|wire| wire == wanted));
        // For a port that is down, drivers report a rate that it never had.
        let compared = same.filter(|port| is_active(pack, port) && !is_anothers(pack, port));
        compared.filter_map(|port| Rate::of(pack.text(&port.path("rate")).ok()?)).map(|rate| rate.gbits).max()
    };
    each_port(pack, |_| true, NO_PORTS, |it| rate_of(pack, it, fastest(it.wire)))
}

fn is_active(pack: &Pack, port: &Port) -> bool {
    pack.text(&port.path("state")).is_ok_and(|state| words_of(state) == "ACTIVE")
}

fn rate_of(pack: &Pack, it: &WiredPort, fastest: Option<u64>) -> Finding {
    let path = it.port.path("rate");
    let text = match pack.text(&path) {
        Ok(text) => text,
        Err(missing) => return Finding::unread(&path, &missing),
    };
    let Some(rate) = Rate::of(text) else {
        return Finding::unknown(format!("\"{text}\" is no rate")).read(path);
    };
    let finding = match (it.wire, fastest) {
        (Wire::SoftRoce, _) => {
            Finding::pass(format!("{text} by name: Soft-RoCE is as fast as its net device and a core are"))
        }
        _ if !is_active(pack, &it.port) => {
            Finding::unknown(format!("{text}: the port is not active, so this is no rate yet"))
        }
        (Wire::InfiniBand, _) if rate.lanes == 1 => Finding::warn(format!("{text}: one lane of four works"))
            .fix("seat the cable anew at both ends; if one lane stays, replace the cable"),
        (Wire::InfiniBand, _) if rate.gbits <= SDR_GBITS => {
            Finding::warn(format!("{text}: both ends have fallen back to the slowest speed there is"))
                .fix("replace the cable, and compare the firmware of the card and of the switch")
        }
        (_, Some(fastest)) if rate.gbits < fastest => {
            let net = net_device(pack, &it.port);
            Finding::warn(format!("{text}, and another port of this host has {fastest} Gb/sec")).fix(format!(
                "see what both ends offer: ethtool {net}; check the cable and the switch's port"
            ))
        }
        _ => Finding::pass(text),
    };
    finding.read(path)
}

/// 4X SDR, the first InfiniBand rate. A link with a bad cable may fall back to it.
const SDR_GBITS: u64 = 10;

/// A parsed rate: `100 Gb/sec (4X EDR)`.
struct Rate {
    gbits: u64,
    lanes: u32,
}

impl Rate {
    fn of(text: &str) -> Option<Self> {
        let (gbits, rest) = text.split_once(" Gb/sec (")?;
        let gbits = gbits.split('.').next()?.parse().ok()?;
        let lanes = rest.split_once('X')?.0.parse().ok()?;
        Some(Self { gbits, lanes })
    }
}

/// Checks the MTU of each port against that of its net device.
pub(super) fn mtu(pack: &Pack) -> Answer {
    each_port(pack, |_| true, NO_PORTS, |it| mtu_of(pack, it))
}

/// The upper bound of the RoCE headers, as the kernel counts it: GRH, UDP, BTH, XRC, atomic and
/// ICRC.
const ROCE_HEADERS_BYTES: u64 = 96;

fn mtu_of(pack: &Pack, it: &WiredPort) -> Finding {
    const QUERY: &str = "ibv_query_port";
    let (active, max) = match verbs_mtus(pack, &it.port) {
        Ok(mtus) => mtus,
        Err(reason) => return Finding::unknown(reason).read(QUERY),
    };
    if !it.wire.is_roce() {
        let found = format!("{active} bytes of {max}");
        return match it.wire {
            _ if active >= max => Finding::pass(found).read(QUERY),
            Wire::InfiniBand => infiniband_mtu(&it.port, &found).read(QUERY),
            Wire::Iwarp => Finding::warn(found)
                .fix(format!("ip link set {} mtu 9000; on the peer, too", net_device(pack, &it.port)))
                .read(QUERY),
            _ => Finding::warn(found).fix("update the device's driver, which decides").read(QUERY),
        };
    }
    let net = net_device(pack, &it.port);
    let path = format!("/sys/class/net/{net}/mtu");
    let net_mtu = match pack.number(&path) {
        Ok(mtu) => mtu,
        Err(missing) => return Finding::unread(&path, &missing),
    };
    let found = format!("{active} bytes of {max}; {net} lets {net_mtu} through");
    // A net device MTU of 4200 is enough for the largest packets; 9000 is the customary value.
    let enlarge = |finding: Finding| {
        let here = finding.fix(format!("ip link set {net} mtu 9000"));
        here.fix_in("peer, switch", "the same, or more: what is between must let it through")
    };
    let finding = if active.saturating_add(ROCE_HEADERS_BYTES) > net_mtu {
        enlarge(Finding::fail(format!("{found}: packets are larger than what it lets through")))
    } else if active >= max {
        Finding::pass(found)
    } else if max.saturating_add(ROCE_HEADERS_BYTES) > net_mtu {
        enlarge(Finding::warn(format!("{found}: {max} need 4200")))
    } else {
        Finding::warn(format!("{found}: the port has not followed its net device"))
            .fix_in("while nothing uses it", format!("ip link set {net} down; ip link set {net} up"))
    };
    finding.read(QUERY).read(path)
}

/// Makes the finding for an InfiniBand port below its largest MTU.
///
/// The subnet manager sets both ends of a link to the smaller of their MTUs. The MTU in its
/// partitions.conf is that of multicast groups.
fn infiniband_mtu(port: &Port, found: &str) -> Finding {
    let Port { device, number } = port;
    Finding::warn(format!("{found}: the other end of the cable takes no more, or was told to"))
        .fix(format!(
            "compare MtuCap of both ends: smpquery -C {device} -P {number} -D portinfo 0 {number}; and the switch's port"
        ))
        .fix_in("on the switch", "raise the MTU of its port, and take the link down and up: its traffic stops meanwhile")
}

/// Returns the active and the largest MTU of a port.
fn verbs_mtus(pack: &Pack, port: &Port) -> Result<(u64, u64), String> {
    let verbs = pack.probes().verbs.get()?;
    let device = verbs.devices.get(port.device).ok_or("libibverbs does not list the device")?;
    if let Some(error) = &device.error {
        return Err(format!("the device could not be opened: {error}"));
    }
    let port = device.ports.get(port.number).ok_or("libibverbs does not tell of the port")?;
    match (port.active_mtu_bytes, port.max_mtu_bytes) {
        (Some(active), Some(max)) => Ok((active.into(), max.into())),
        _ => Err("libibverbs does not tell the MTU".to_owned()),
    }
}
