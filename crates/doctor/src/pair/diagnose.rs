//! Diagnoses a pair from its readings and the packs of both hosts.
//!
//! It depends on nothing else.

use std::collections::BTreeSet;

use super::cause;
use super::judged::{Apart, Judged};
use super::names::Names;
use super::pack::PairPack;
use super::readings::{CardsTried, Cell, Control, Obstacle, PairReadings, Tried, Trouble};
use super::report::{CONTROL, PairReport, Row, State, VERSIONS};
use super::silence;
use crate::figures;
use crate::finding::Finding;
use crate::pack::Pack;

/// Reports what works between two hosts, what does not, and why.
pub fn diagnose(pack: &PairPack) -> PairReport {
    of_readings(pack.readings().clone(), pack.here(), pack.peer())
}

fn of_readings(readings: PairReadings, here: &Pack, peer: &Pack) -> PairReport {
    let names = Names { peer: &readings.peer, here_pack: here, peer_pack: peer };
    let mut judged: Vec<Judged> = readings.cells.iter().map(|cell| judge(cell, &names)).collect();
    set_apart(&readings.cells, &mut judged);
    let mut findings = vec![control(&readings), versions(&readings.peer, here, peer)];
    if readings.cells.is_empty() {
        let none = "the two have no rail in common: nothing was tried";
        findings.push(
            Finding::unknown(none)
                .fix("install libfabric on both hosts (apt-get install libfabric1), or set up an RDMA card: farreach doctor, on each"),
        );
    }
    if !readings.is_restricted {
        findings.extend(unreached(&readings, &judged));
    }
    let mut matrix = Vec::new();
    for (cell, judged) in readings.cells.into_iter().zip(judged) {
        findings.push(judged.finding.of(format!("{} with {}", cell.local, cell.remote)));
        matrix.push(Row { state: judged.state, why: judged.why, cell });
    }
    PairReport { peer: readings.peer, matrix, left_out: readings.left_out, findings }
}

/// Reports the control connection. It works, or there would be no readings.
fn control(readings: &PairReadings) -> Finding {
    let finding = match &readings.control {
        Some(Control { here, there, is_tls, round_trip_ns }) => {
            let tls = if *is_tls { "over TLS" } else { "without TLS" };
            let time = figures::duration(*round_trip_ns as f64);
            Finding::pass(format!("from {here} to {there}, {tls}; a word is answered within {time}"))
        }
        None => Finding::unknown("not in this pack: an older farreach has made it"),
    };
    finding.of(CONTROL)
}

fn versions(name: &str, here: &Pack, peer: &Pack) -> Finding {
    let (ours, theirs) = (here.farreach(), peer.farreach());
    let finding = if ours == theirs {
        Finding::pass(format!("farreach {ours} on both"))
    } else {
        let found = format!(
            "farreach {ours} on this host, {theirs} on {name}: the two understand each other, and may not look at the same things"
        );
        Finding::warn(found).fix("install the same farreach on both hosts")
    };
    finding.of(VERSIONS)
}

/// Marks pairs of cards that do not reach each other as apart if other pairs do: they are rails of
/// different networks, and nothing is wrong.
fn set_apart(cells: &[Cell], judged: &mut [Judged]) {
    let reaches = |judged: &Judged| matches!(judged.state, State::Works | State::Warns);
    let well: BTreeSet<&str> = cells
        .iter()
        .zip(judged.iter())
        .filter(|(cell, judged)| cell.cards.is_some() && reaches(judged))
        .map(|(cell, _)| cell.local.as_str())
        .collect();
    for (cell, judged) in cells.iter().zip(judged.iter_mut()) {
        let told = match judged.apart {
            Apart::Networks if well.contains(cell.local.as_str()) => {
                format!("two networks, it seems, and {} reaches another card of the peer's", cell.local)
            }
            Apart::Wires if !well.is_empty() => {
                "no wire joins them, and other cards of the two meet".to_owned()
            }
            _ => continue,
        };
        judged.state = State::Apart;
        judged.finding = Finding::pass(format!("{}: {told}", judged.why));
    }
}

/// Reports cards of the peer that no card of this host reaches, though each of these reaches
/// another.
fn unreached(readings: &PairReadings, judged: &[Judged]) -> Vec<Finding> {
    // Only cards can be apart, so providers of libfabric are not among these.
    let cells = || readings.cells.iter().zip(judged);
    let remotes: BTreeSet<&str> = cells().map(|(cell, _)| cell.remote.as_str()).collect();
    let is_unreached = |remote: &&str| {
        let mut met = cells().filter(|(cell, _)| cell.remote == **remote);
        met.clone().all(|(_, judged)| judged.state == State::Apart)
            // If this host has no card of the same kind, there is nothing to connect the peer's
            // card to.
            && met.any(|(_, judged)| judged.apart == Apart::Networks)
    };
    let tell = |remote: &str| {
        let found = format!(
            "no card of this host reaches {remote} of {}: it carries nothing between the two",
            readings.peer
        );
        Finding::warn(found).of(remote).fix(format!(
            "if it should, give one of this host's cards an address in its network: farreach devices, on {}",
            readings.peer
        ))
    };
    remotes.into_iter().filter(is_unreached).map(tell).collect()
}

fn judge(cell: &Cell, names: &Names<'_>) -> Judged {
    if let Some(trouble) = &cell.trouble {
        let why = if trouble.obstacle == Obstacle::Silent { "it hangs" } else { "it does not come up" };
        let finding = in_own_words(trouble);
        let is_silence = matches!(trouble.obstacle, Obstacle::Unanswered | Obstacle::Silent);
        let finding = if cell.local == "efa" && is_silence { of_security_group(finding) } else { finding };
        return Judged::fails(why, finding);
    }
    match &cell.cards {
        Some(tried) => judge_cards(cell, tried, names),
        None => {
            Judged::works("works", Finding::pass("messages are answered, and pages arrive as they were sent"))
        }
    }
}

fn judge_cards(cell: &Cell, tried: &CardsTried, names: &Names<'_>) -> Judged {
    if let Some(judged) = cause::of_the_wire(cell, tried, names) {
        return judged;
    }
    if let Some(judged) = cause::of_the_way(tried, names) {
        return judged;
    }
    if let Some(judged) = silence::of_silence(tried, names) {
        return judged;
    }
    let steps = [&tried.connected_here, &tried.connected_there, &tried.short];
    if let Some(trouble) = steps.iter().find_map(|step| step.trouble()) {
        let is_loss = matches!(trouble.obstacle, Obstacle::Unanswered | Obstacle::Silent);
        let why = if is_loss { "not acknowledged" } else { "it does not connect" };
        return Judged::fails(why, in_own_words(trouble));
    }
    if let Some(judged) = cause::of_packet_size(tried, names) {
        return judged;
    }
    let long = [&tried.long_there, &tried.long_back];
    if let Some(trouble) = long.iter().find_map(|step| step.trouble()) {
        return Judged::fails("long messages fail", in_own_words(trouble));
    }
    if long.iter().any(|step| **step != Tried::Worked) {
        return Judged::fails(
            "it was not tried to its end",
            Finding::unknown("an earlier step has ended it"),
        );
    }
    cause::of_loss(tried, names).or_else(|| cause::of_unlike_ports(cell, tried, names)).unwrap_or_else(|| {
        let datagrams = match (tried.there.count, tried.back.count) {
            (Some(0), Some(0)) => "; datagrams do not, and no connection needs them",
            (Some(_), Some(_)) => ", and so do datagrams",
            _ => "; datagrams were not tried",
        };
        let bytes = tried.path_mtu_bytes;
        let found = format!("full packets of {bytes} bytes arrive both ways, as they were sent{datagrams}");
        Judged::works("works", Finding::pass(found))
    })
}

/// Reports the error as it was recorded.
fn in_own_words(trouble: &Trouble) -> Finding {
    let finding = Finding::fail(trouble.sentence());
    match &trouble.fix {
        Some(fix) => finding.fix(fix),
        None => finding,
    }
}

/// Adds a hint for EFA: packets that a security group drops are never acknowledged, and no error
/// reports this.
fn of_security_group(mut finding: Finding) -> Finding {
    finding.found.push_str(
        "; an EFA looks like this where a security group does not let all traffic of its own members in and out, \
         and a rule for 0.0.0.0/0 does not count for it",
    );
    finding
        .fix_in("inbound", "aws ec2 authorize-security-group-ingress --group-id GROUP --protocol -1 --source-group GROUP")
        .fix_in(
            "outbound",
            "aws ec2 authorize-security-group-egress --group-id GROUP --ip-permissions 'IpProtocol=-1,UserIdGroupPairs=[{GroupId=GROUP}]'",
        )
        .fix_in(
            "to be sure",
            "grep . /sys/class/infiniband/*/ports/1/hw_counters/[rt]x_pkts: tx grows here, and rx stays on the other host",
        )
}

#[cfg(test)]
#[path = "diagnose_tests.rs"]
mod tests;
