//! Checks the ports: their state, rate and MTU.

use super::cards::{NO_DEVICE, no_device};
use super::wire::{Wire, WiredPort, each_port, is_anothers, net_device, pci_address, wire};
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Pack, Port};

/// Checks whether each port is active.
pub(super) fn port(pack: &Pack) -> Answer {
    match pack.ports() {
        ports if ports.is_empty() => no_device(pack),
        ports => Answer::of_each(ports, NO_DEVICE, |port| state(pack, &port).of(port.words())),
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
    let physical = pack.text(&port.path("phys_state")).map_or("physical state not reported", words_of);
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
            tell("the cable works, but no subnet manager has configured the port");
            finding.fix(start_subnet_manager())
        }
        (Wire::InfiniBand, _, "Disabled") => {
            tell("the port is disabled");
            let Port { device, number } = port;
            finding.fix(
                Fix::new("enable the port").run(
                    CommandLine::new("ibportstate -C")
                        .name(device)
                        .shell("-P")
                        .name(number)
                        .shell("-D 0")
                        .name(number)
                        .shell("enable"),
                ),
            )
        }
        (Wire::InfiniBand, ..) => {
            tell("no signal from the other end");
            // The tool accepts either name.
            let card = pci_address(pack, port.device).unwrap_or(port.device);
            finding.fix(
                Fix::new("check the cable, its transceivers and the switch port; this shows the state of the cable")
                    .run(CommandLine::new("mlxlink -d").name(card).shell("-m")),
            )
        }
        (Wire::Roce | Wire::SoftRoce | Wire::Iwarp, ..) => ethernet_down(pack, port, wire, physical, finding),
        (Wire::Unspecified, ..) => finding.fix(
            Fix::new("stop and start the instance, then read the driver's messages in the kernel log")
                .run("dmesg | tail -n 30"),
        ),
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
    let switch_on =
        Fix::new(format!("set {net} up")).run(CommandLine::new("ip link set").name(net).shell("up"));
    let look = |lead: &str| match wire {
        Wire::SoftRoce => Fix::new(format!("{lead}check what {net} is connected to"))
            .run(CommandLine::new("ip -d link show").name(net)),
        _ => Fix::new(format!("{lead}check the cable, its transceivers and the switch port"))
            .run(CommandLine::new("ethtool").name(net)),
    };
    match is_up {
        Some(false) => {
            tell("is down");
            finding.fix(switch_on)
        }
        Some(true) => {
            tell("is up, but has no carrier");
            finding.fix(look(""))
        }
        None => {
            tell("is down, or has no carrier");
            finding.fix(switch_on).fix(look("if it stays down, "))
        }
    }
    .read("getifaddrs")
}

/// Returns the fix for an InfiniBand subnet without a subnet manager.
pub(super) fn start_subnet_manager() -> Fix {
    Fix::new("start a subnet manager on the switch, or on one host of the subnet")
        .run("systemctl start opensm")
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
    each_port(pack, |_| true, NO_DEVICE, |it| rate_of(pack, it, fastest(it.wire)))
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
        return Finding::unknown(format!("cannot parse the rate \"{text}\"")).read(path);
    };
    let finding = match (it.wire, fastest) {
        (Wire::SoftRoce, _) => {
            Finding::pass(format!("{text}, nominal: the net device and the CPU limit Soft-RoCE"))
        }
        _ if !is_active(pack, &it.port) => {
            Finding::unknown(format!("the port is not active; its rate of {text} is not valid"))
        }
        (Wire::InfiniBand, _) if rate.lanes == 1 => Finding::warn(format!("{text}: 1 of 4 lanes works"))
            .fix("reseat the cable at both ends; if the link still has 1 lane, replace the cable"),
        (Wire::InfiniBand, _) if rate.gbits <= SDR_GBITS => {
            Finding::warn(format!("{text}: both ends have fallen back to the lowest speed"))
                .fix("replace the cable, and compare the firmware of the card and of the switch")
        }
        (_, Some(fastest)) if rate.gbits < fastest => {
            let net = net_device(pack, &it.port);
            Finding::warn(format!("{text}, but another port of this host has {fastest} Gb/sec")).fix(
                Fix::new("check the cable and the switch port; this shows the speeds that both ends support")
                    .run(CommandLine::new("ethtool").name(net)),
            )
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
    each_port(pack, |_| true, NO_DEVICE, |it| mtu_of(pack, it))
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
            Wire::Iwarp => {
                Finding::warn(found)
                    .fix(Fix::new("raise the MTU of the net device, on the peer and on switches too").run(
                        CommandLine::new("ip link set").name(net_device(pack, &it.port)).shell("mtu 9000"),
                    ))
                    .read(QUERY)
            }
            _ => Finding::warn(found).fix("update the device's driver, which sets the MTU").read(QUERY),
        };
    }
    let net = net_device(pack, &it.port);
    let path = format!("/sys/class/net/{net}/mtu");
    let net_mtu = match pack.number(&path) {
        Ok(mtu) => mtu,
        Err(missing) => return Finding::unread(&path, &missing),
    };
    let found = format!("{active} bytes of {max}; the MTU of {net} is {net_mtu} bytes");
    // A net device MTU of 4200 is enough for the largest packets; 9000 is the customary value.
    let enlarge = |finding: Finding| {
        finding
            .fix(
                Fix::new(format!("raise the MTU of {net}"))
                    .run(CommandLine::new("ip link set").name(net).shell("mtu 9000")),
            )
            .fix(Fix::new("set the same MTU or a larger one").at("peers and switches"))
    };
    let finding = if active.saturating_add(ROCE_HEADERS_BYTES) > net_mtu {
        enlarge(Finding::fail(format!("{found}, which is too small for the packets of the port")))
    } else if active >= max {
        Finding::pass(found)
    } else if max.saturating_add(ROCE_HEADERS_BYTES) > net_mtu {
        enlarge(Finding::warn(format!(
            "{found}; packets of {max} bytes need {}",
            max.saturating_add(ROCE_HEADERS_BYTES)
        )))
    } else {
        Finding::warn(format!("{found}, but the port still uses the smaller MTU")).fix(
            Fix::new("set the net device down and up while nothing uses it")
                .run(CommandLine::new("ip link set").name(net).shell("down"))
                .run(CommandLine::new("ip link set").name(net).shell("up")),
        )
    };
    finding.read(QUERY).read(path)
}

/// Makes the finding for an InfiniBand port below its largest MTU.
///
/// The subnet manager sets both ends of a link to the smaller of their MTUs. The MTU in its
/// partitions.conf is that of multicast groups.
fn infiniband_mtu(port: &Port, found: &str) -> Finding {
    let Port { device, number } = port;
    Finding::warn(format!("{found}: the other end of the cable supports no more, or is configured so"))
        .fix(
            Fix::new("compare MtuCap of this port and of the switch port").run(
                CommandLine::new("smpquery -C")
                    .name(device)
                    .shell("-P")
                    .name(number)
                    .shell("-D portinfo 0")
                    .name(number),
            ),
        )
        .fix(
            Fix::new("raise the MTU of the port, and restart the link: this interrupts its traffic")
                .at("switch"),
        )
}

/// Returns the active and the largest MTU of a port.
fn verbs_mtus(pack: &Pack, port: &Port) -> Result<(u64, u64), String> {
    let verbs = pack.probes().verbs.get()?;
    let device = verbs.devices.get(port.device).ok_or("libibverbs does not list the device")?;
    if let Some(error) = &device.error {
        return Err(format!("the device could not be opened: {error}"));
    }
    let port = device.ports.get(port.number).ok_or("libibverbs does not report the port")?;
    match (port.active_mtu_bytes, port.max_mtu_bytes) {
        (Some(active), Some(max)) => Ok((active.into(), max.into())),
        _ => Err("libibverbs does not report the MTU".to_owned()),
    }
}
