//! Diagnoses a pair from its readings and the packs of both hosts.
//!
//! It depends on nothing else.

use std::collections::BTreeSet;

use super::cause;
use super::judged::{Apart, Judged};
use super::names::{BOTH, Names};
use super::pack::PairPack;
use super::readings::{CardsTried, Cell, Control, LeftOut, Obstacle, PairReadings, Tried, Trouble};
use super::report::{CONTROL, PairReport, Row, State, VERSIONS};
use super::silence;
use crate::figures;
use crate::finding::{Finding, Fix, text_of};
use crate::pack::Pack;

/// Reports what works between two hosts, what does not, and why.
pub fn diagnose(pack: &PairPack) -> PairReport {
    of_readings(pack.readings().clone(), pack.here(), pack.peer())
}

fn of_readings(readings: PairReadings, here: &Pack, peer: &Pack) -> PairReport {
    let names = Names::of(&readings, here, peer);
    let mut judged: Vec<Judged> = readings.cells.iter().map(|cell| judge(cell, &names)).collect();
    set_apart(&readings.cells, &mut judged);
    let mut findings = vec![control(&readings), versions(&names)];
    if readings.cells.is_empty() {
        findings.push(
            Finding::unknown("the hosts have no rail in common, so nothing was tried")
                .fix(Fix::new("install libfabric").at(BOTH).run("apt-get install libfabric1"))
                .fix(Fix::new("find out why there is no RDMA card").at(BOTH).run("farreach doctor")),
        );
    }
    if !readings.is_restricted {
        findings.extend(unreached(&readings, &judged, &names));
    }
    let mut matrix = Vec::new();
    for (cell, judged) in readings.cells.into_iter().zip(judged) {
        findings.push(judged.finding.of(format!("{} with {}", cell.local, cell.remote)));
        let cell = Cell { local: text_of(&cell.local), remote: text_of(&cell.remote), ..cell };
        matrix.push(Row { state: judged.state, why: text_of(&judged.why), cell });
    }
    // Whatever the packs contain, the texts can be printed.
    let left_out = readings.left_out.iter();
    PairReport {
        here: text_of(&names.here),
        peer: text_of(&names.peer),
        matrix,
        left_out: left_out.map(|it| LeftOut::new(text_of(&it.rail), text_of(&it.reason))).collect(),
        findings: findings.into_iter().map(Finding::printable).collect(),
    }
}

/// Reports the control connection. It works, or there would be no readings.
fn control(readings: &PairReadings) -> Finding {
    let finding = match &readings.control {
        Some(Control { here, there, is_tls, round_trip_ns }) => {
            let tls = if *is_tls { "over TLS" } else { "without TLS" };
            let time = figures::duration(*round_trip_ns as f64);
            Finding::pass(format!("TCP from {here} to {there}, {tls}; first answer after {time}"))
        }
        None => Finding::unknown("not in this pack: an older farreach recorded it"),
    };
    finding.of(CONTROL)
}

fn versions(names: &Names<'_>) -> Finding {
    let (ours, theirs) = (names.here_pack.farreach(), names.peer_pack.farreach());
    let finding = if ours == theirs {
        Finding::pass(format!("farreach {ours} on both hosts"))
    } else {
        let found = format!(
            "farreach {ours} on {}, {theirs} on {}: the protocol is the same, but the checks may differ",
            names.here, names.peer
        );
        Finding::warn(found).fix(Fix::new("install the same version of farreach").at(BOTH))
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
                format!("probably on different networks: {} reaches another card of the peer", cell.local)
            }
            Apart::Wires if !well.is_empty() => {
                "different link layers; other cards of the two hosts reach each other".to_owned()
            }
            _ => continue,
        };
        judged.state = State::Apart;
        judged.finding = Finding::pass(format!("{}: {told}", judged.why));
    }
}

/// Reports cards of the peer that no card of this host reaches, though each of these reaches
/// another.
fn unreached(readings: &PairReadings, judged: &[Judged], names: &Names<'_>) -> Vec<Finding> {
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
        let Names { here, peer, .. } = names;
        let found =
            format!("no card of {here} reaches {remote} of {peer}: the card is not used between the hosts");
        let fix = format!(
            "if it should be used, give a card of {here} an address in its network; this lists its addresses"
        );
        Finding::warn(found).of(remote).fix(names.fix(false, fix).run("farreach devices -v"))
    };
    remotes.into_iter().filter(is_unreached).map(tell).collect()
}

fn judge(cell: &Cell, names: &Names<'_>) -> Judged {
    if let Some(trouble) = &cell.trouble {
        let why = if trouble.obstacle == Obstacle::Silent { "no answer in time" } else { "does not start" };
        let finding = in_own_words(trouble);
        let is_silence = matches!(trouble.obstacle, Obstacle::Unanswered | Obstacle::Silent);
        let finding = if cell.local == "efa" && is_silence { of_security_group(finding) } else { finding };
        return Judged::fails(why, finding);
    }
    match &cell.cards {
        Some(tried) => judge_cards(cell, tried, names),
        None => {
            Judged::works("works", Finding::pass("messages are answered, and written pages are verified"))
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
        let why = if is_loss { "not acknowledged" } else { "does not connect" };
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
        // The matrix shows a failure, so the finding is one, too.
        let found = "the trial ended before long messages were sent, without an error";
        let again =
            Fix::new("run the trial again, and compare the server's log").run("farreach doctor -v PEER");
        return Judged::fails("trial not completed", Finding::fail(found).fix(again));
    }
    cause::of_loss(tried, names).or_else(|| cause::of_unlike_ports(cell, tried, names)).unwrap_or_else(|| {
        let datagrams = match (tried.there.count, tried.back.count) {
            (Some(0), Some(0)) => "; datagrams do not arrive, but connections do not need them",
            (Some(_), Some(_)) => "; datagrams arrive, too",
            _ => "; datagrams were not tried",
        };
        let bytes = tried.path_mtu_bytes;
        let found = format!("packets of {bytes} bytes arrive in both directions and are verified{datagrams}");
        Judged::works("works", Finding::pass(found))
    })
}

/// Reports the error as it was recorded.
fn in_own_words(trouble: &Trouble) -> Finding {
    let finding = Finding::fail(trouble.sentence());
    match &trouble.fix {
        Some(fix) => finding.fix(Fix::quoted(fix)),
        None => finding,
    }
}

/// Adds a hint for EFA: packets that a security group drops are never acknowledged, and no error
/// reports this.
fn of_security_group(mut finding: Finding) -> Finding {
    finding.found.push_str(
        "; an EFA fails like this if its security group does not allow all traffic within the group, inbound and \
         outbound; a rule for 0.0.0.0/0 has no effect on it",
    );
    finding
        .fix(Fix::new("allow inbound traffic within the security group").run(
            "aws ec2 authorize-security-group-ingress --group-id GROUP --protocol -1 --source-group GROUP",
        ))
        .fix(Fix::new("allow outbound traffic within the security group").run(
            "aws ec2 authorize-security-group-egress --group-id GROUP --ip-permissions 'IpProtocol=-1,UserIdGroupPairs=[{GroupId=GROUP}]'",
        ))
        .fix(
            Fix::new("to confirm the cause, compare the counters: tx grows on the sender, rx does not on the receiver")
                .at(BOTH)
                .run("grep . /sys/class/infiniband/*/ports/1/hw_counters/[rt]x_pkts"),
        )
}

#[cfg(test)]
#[path = "diagnose_tests.rs"]
mod tests;
