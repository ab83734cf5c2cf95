//! Checks the settings that keep RoCE lossless: priority flow control (PFC), congestion
//! notification (ECN), and the mapping of packets to priorities.
//!
//! These checks cover cards only: Soft-RoCE sends ordinary packets of the kernel, and InfiniBand
//! has credits.

use super::wire::{Wire, WiredPort, each_port, net_device, net_devices};
use crate::finding::{Answer, CommandLine, Finding, Fix};
use crate::pack::{Missing, Pack};
use crate::probes::Dcb;
use crate::survey::driver;

const NO_CARD: &str = "no RoCE port of a card";
const DCB: &str = "DCB netlink";
/// The text has no path, so that findings of identical cards are equal and can be grouped. The path
/// is in the finding's sources.
const NOT_SHOWN: &str = "this driver does not report it; NVIDIA's own driver does";

fn each_card(pack: &Pack, look: impl FnMut(&WiredPort) -> Finding) -> Answer {
    each_port(pack, |wire| wire == Wire::Roce, NO_CARD, look)
}

/// Returns the data centre bridging (DCB) settings of a port, and the net device they belong to.
fn dcb<'a>(pack: &'a Pack, it: &WiredPort) -> Result<(&'a str, &'a Dcb), String> {
    let all = pack.probes().dcb.get()?;
    let names = net_devices(pack, &it.port);
    let told = names.iter().find_map(|name| all.get(*name).map(|dcb| (*name, dcb)));
    told.ok_or_else(|| match names.first() {
        // The text has no device name, so that findings of cards with the same driver can be
        // grouped.
        Some(_) => "the driver does not report data centre bridging (DCB)".to_owned(),
        None => "the port has no net device in this network namespace".to_owned(),
    })
}

/// Checks whether at least one priority is lossless.
pub(super) fn pfc(pack: &Pack) -> Answer {
    each_card(pack, |it| pfc_of(pack, it))
}

fn pfc_of(pack: &Pack, it: &WiredPort) -> Finding {
    let (net, dcb) = match dcb(pack, it) {
        Ok(told) => told,
        Err(reason) => return Finding::unknown(reason).read(DCB),
    };
    let finding = if !dcb.lossless_priorities.is_empty() {
        Finding::pass(format!("{net} has PFC on priority {}", list(&dcb.lossless_priorities)))
    } else if ecn_priorities(pack, net).is_ok_and(|priorities| !priorities.is_empty()) {
        Finding::pass(format!("{net} has PFC on no priority; ECN slows senders down before packets are lost"))
    } else {
        Finding::warn(format!(
            "{net} has PFC on no priority, and ECN is not known to be on: a congested switch drops packets, and RoCE \
             recovers slowly"
        ))
        .fix(
            Fix::new("switch PFC on for priority 3, and do the same on the switch")
                .run(CommandLine::new("dcb pfc set dev").name(net).shell("prio-pfc all:off 3:on")),
        )
        .fix(
            Fix::new("switch PFC on for priority 3, and do the same on the switch")
                .at("NVIDIA's tools")
                .run(CommandLine::new("mlnx_qos -i").name(net).shell("--trust dscp --pfc 0,0,0,1,0,0,0,0")),
        )
    };
    finding.read(DCB)
}

/// Checks whether a packet's priority is taken from its DSCP, which survives routers and needs no
/// VLAN.
pub(super) fn dscp_trust(pack: &Pack) -> Answer {
    each_card(pack, |it| {
        let (net, dcb) = match dcb(pack, it) {
            Ok(told) => told,
            Err(reason) => return Finding::unknown(reason).read(DCB),
        };
        let finding = match dcb.trust.as_deref() {
            Some("dscp") => Finding::pass(format!("{net} takes a packet's priority from its DSCP")),
            Some(other) => Finding::warn(format!(
                "{net} takes a packet's priority from its {other}: without a VLAN tag every packet has priority 0"
            ))
            .fix(Fix::new("take the priority from the DSCP").run(trust_dscp(pack, it, net, dcb)))
            .fix(
                Fix::new("take the priority from the DSCP")
                    .at("NVIDIA's tools")
                    .run(CommandLine::new("mlnx_qos -i").name(net).shell("--trust dscp")),
            ),
            None => Finding::unknown("the driver does not report it").fix(
                Fix::new("see the setting").at("NVIDIA's tools").run(CommandLine::new("mlnx_qos -i").name(net)),
            ),
        };
        finding.read(DCB)
    })
}

/// Returns the command that makes a driver take priorities from the DSCP.
///
/// mlx5 does so as soon as its table has an entry for a DSCP, and supports no other way.
fn trust_dscp(pack: &Pack, it: &WiredPort, net: &str, dcb: &Dcb) -> CommandLine {
    if driver(pack, it.port.device).as_deref() != Some("mlx5_core") {
        return CommandLine::new("dcb apptrust set dev").name(net).shell("order dscp");
    }
    let priority = dcb.lossless_priorities.first().copied().unwrap_or(3);
    CommandLine::new("dcb app add dev")
        .name(net)
        .shell("dscp-prio")
        .arg(format!("{}:{priority}", usual_dscp(priority)))
}

/// Checks whether senders are slowed down before a switch drops packets.
pub(super) fn ecn(pack: &Pack) -> Answer {
    each_card(pack, |it| ecn_of(pack, it))
}

fn ecn_of(pack: &Pack, it: &WiredPort) -> Finding {
    let net = net_device(pack, &it.port);
    let folder = format!("/sys/class/net/{net}/ecn");
    let priorities = match ecn_priorities(pack, net) {
        Ok(priorities) => priorities,
        Err((path, Missing::Absent)) => return Finding::unknown(NOT_SHOWN).read(path),
        Err((path, missing)) => return Finding::unread(&path, &missing),
    };
    let lossless = dcb(pack, it).map(|(_, dcb)| dcb.lossless_priorities.clone()).unwrap_or_default();
    let bare: Vec<u8> = lossless.iter().copied().filter(|priority| !priorities.contains(priority)).collect();
    let switch_on = |priority: u8| {
        Fix::new(format!("switch ECN on for priority {priority}")).run(
            CommandLine::new("echo 1 | tee")
                .path(&format!("{folder}/roce_np/enable/{priority}"))
                .path(&format!("{folder}/roce_rp/enable/{priority}")),
        )
    };
    let finding = if priorities.is_empty() {
        Finding::warn(format!(
            "{net} has ECN on no priority: one overloaded receiver can pause the whole fabric, or lose packets"
        ))
        .fix(switch_on(lossless.first().copied().unwrap_or(3)))
    } else if let Some(priority) = bare.first() {
        Finding::warn(format!(
            "{net} has PFC on priority {}, but ECN only on {}",
            list(&bare),
            list(&priorities)
        ))
        .fix(switch_on(*priority))
    } else {
        Finding::pass(format!("{net} has ECN on priority {}", list(&priorities)))
    };
    finding.read(format!("{folder}/roce_np/enable")).read(format!("{folder}/roce_rp/enable"))
}

/// Returns the priorities for which ECN is enabled on both the notification and the reaction point.
fn ecn_priorities(pack: &Pack, net: &str) -> Result<Vec<u8>, (String, Missing)> {
    let mut priorities = Vec::new();
    for priority in 0..8 {
        let mut is_on = true;
        for side in ["roce_np", "roce_rp"] {
            let path = format!("/sys/class/net/{net}/ecn/{side}/enable/{priority}");
            is_on &= pack.number(&path).map_err(|missing| (path, missing))? == 1;
        }
        if is_on {
            priorities.push(priority);
        }
    }
    Ok(priorities)
}

/// Checks whether packets of programs that set no traffic class get a lossless priority.
pub(super) fn traffic_class(pack: &Pack) -> Answer {
    each_card(pack, |it| traffic_class_of(pack, it))
}

fn traffic_class_of(pack: &Pack, it: &WiredPort) -> Finding {
    let path = format!("/sys/class/infiniband/{}/tc/{}/traffic_class", it.port.device, it.port.number);
    let text = match pack.text(&path) {
        Ok(text) => text,
        Err(Missing::Absent) => return Finding::unknown(NOT_SHOWN).read(path),
        Err(missing) => return Finding::unread(&path, &missing),
    };
    let dcb = match dcb(pack, it) {
        Ok((_, dcb)) => dcb,
        Err(reason) => {
            return Finding::unknown(format!("\"{text}\"; its priority is not known: {reason}")).read(path);
        }
    };
    // The lines that follow the global class are for single addresses.
    let class = text.lines().find_map(|line| line.strip_prefix("Global tclass=")?.trim().parse::<u8>().ok());
    let paused = list(&dcb.lossless_priorities);
    let class_to_set = lossless_class(dcb);
    let set = Fix::new(format!("set the traffic class to {class_to_set}, whose priority has PFC"))
        .run(CommandLine::new("echo").arg(class_to_set.to_string()).write_to(&path));
    let finding = match class {
        _ if dcb.lossless_priorities.is_empty() => {
            Finding::pass("no priority has PFC, so the traffic class makes no difference")
        }
        _ if dcb.trust.as_deref() != Some("dscp") => Finding::unknown(match &dcb.trust {
            Some(other) => format!(
                "the traffic class has an effect only if a packet's priority is taken from its DSCP, but it is taken \
                 from its {other}: see the check dscp trust"
            ),
            None => "the driver does not report whether a packet's priority is taken from its DSCP".to_owned(),
        }),
        Some(class) => {
            let (dscp, priority) = (class >> 2, priority_of(dcb, class >> 2));
            let found = format!("traffic class {class}, DSCP {dscp}, priority {priority}");
            if dcb.lossless_priorities.contains(&priority) {
                Finding::pass(format!("{found}, which has PFC"))
            } else if dcb.dscp_priorities.is_none() {
                Finding::unknown(format!(
                    "{found} by the default table; the driver does not report its own table; PFC is on {paused}"
                ))
            } else {
                Finding::warn(format!("{found}, which has no PFC; PFC is on {paused}")).fix(set)
            }
        }
        None if text.is_empty() => Finding::warn(format!(
            "no traffic class is set: packets have priority 0 unless the program sets one, and PFC is only on {paused}"
        ))
        .fix(set),
        None => Finding::unknown(format!("\"{text}\" contains no global traffic class")),
    };
    finding.read(path)
}

fn priority_of(dcb: &Dcb, dscp: u8) -> u8 {
    let set = dcb.dscp_priorities.as_ref().and_then(|all| all.get(&dscp));
    set.copied().unwrap_or(dscp >> 3)
}

/// Returns a traffic class that is lossless and can be marked by ECN: 106 is DSCP 26, priority 3,
/// with ECN in the lower bits.
fn lossless_class(dcb: &Dcb) -> u8 {
    // The conventional DSCP of a priority is preferred: 26 for priority 3.
    let usual = dcb.lossless_priorities.iter().map(|priority| usual_dscp(*priority));
    let dscp = usual.chain(0..64).find(|dscp| dcb.lossless_priorities.contains(&priority_of(dcb, *dscp)));
    (dscp.unwrap_or_default() << 2) + 2
}

/// Returns the conventional DSCP of a priority: 26 for priority 3, and likewise for the others. The
/// mask guards against packs with a priority above 7.
fn usual_dscp(priority: u8) -> u8 {
    ((priority & 7) << 3) + 2
}

fn list(priorities: &[u8]) -> String {
    priorities.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}
