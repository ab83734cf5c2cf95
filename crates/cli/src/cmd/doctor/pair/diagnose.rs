//! What the readings mean. A function of nothing but them and the packs of both hosts.

use std::collections::BTreeSet;

use farreach::provider::fabric;

use super::cause::{self, Names};
use super::readings::{CardsTried, Cell, Obstacle, PairReadings, Tried, Trouble};
use super::report::{PairReport, Row, State};
use crate::cmd::doctor::finding::Finding;
use crate::cmd::doctor::pack::Pack;

/// What is said of one rail with another.
pub(super) struct Judged {
    pub(super) state: State,
    /// Whether two rails of different networks look like this: then nothing is wrong where each has others.
    pub(super) is_perhaps_apart: bool,
    /// In a few words.
    pub(super) why: String,
    pub(super) finding: Finding,
}

impl Judged {
    pub(super) fn works(why: &str, finding: Finding) -> Self {
        Self { state: State::Works, is_perhaps_apart: false, why: why.to_owned(), finding }
    }

    pub(super) fn warns(why: String, finding: Finding) -> Self {
        Self { state: State::Warns, is_perhaps_apart: false, why, finding }
    }

    pub(super) fn fails(why: &str, finding: Finding) -> Self {
        Self { state: State::Fails, is_perhaps_apart: false, why: why.to_owned(), finding }
    }

    pub(super) fn perhaps_apart(self) -> Self {
        Self { is_perhaps_apart: true, ..self }
    }
}

/// Says what works, what does not, and why.
pub(super) fn diagnose(readings: PairReadings, here: &Pack, peer: &Pack) -> PairReport {
    let names = Names { peer: &readings.peer, here_pack: here, peer_pack: peer };
    let mut judged: Vec<Judged> = readings.cells.iter().map(|cell| judge(cell, &names)).collect();
    set_apart(&readings.cells, &mut judged);
    let mut findings: Vec<Finding> = Vec::new();
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

/// Two cards that do not reach each other are no fault where this host's reaches another one: they are rails of different networks.
fn set_apart(cells: &[Cell], judged: &mut [Judged]) {
    let reaches = |judged: &Judged| matches!(judged.state, State::Works | State::Warns);
    let well: BTreeSet<&str> = cells
        .iter()
        .zip(judged.iter())
        .filter(|(_, judged)| reaches(judged))
        .map(|(cell, _)| cell.local.as_str())
        .collect();
    for (cell, judged) in cells.iter().zip(judged.iter_mut()) {
        if judged.is_perhaps_apart && judged.state == State::Fails && well.contains(cell.local.as_str()) {
            judged.state = State::Apart;
            let found = format!(
                "{}: two networks, it seems, and {} reaches another card of the peer's",
                judged.why, cell.local
            );
            judged.finding = Finding { found, fixes: Vec::new(), ..Finding::pass("") };
        }
    }
}

/// Cards of the peer's that none of this host's reaches, though all of these reach one.
fn unreached(readings: &PairReadings, judged: &[Judged]) -> Vec<Finding> {
    let cells = || readings.cells.iter().zip(judged).filter(|(cell, _)| !fabric::is_provider(&cell.remote));
    let remotes: BTreeSet<&str> = cells().map(|(cell, _)| cell.remote.as_str()).collect();
    let is_unreached = |remote: &&str| {
        cells().filter(|(cell, _)| cell.remote == **remote).all(|(_, judged)| judged.state == State::Apart)
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
        return Judged::fails(why, in_own_words(trouble));
    }
    match &cell.cards {
        Some(tried) => judge_cards(cell, tried, names),
        None => {
            Judged::works("works", Finding::pass("messages are answered, and pages arrive as they were sent"))
        }
    }
}

fn judge_cards(cell: &Cell, tried: &CardsTried, names: &Names<'_>) -> Judged {
    if let Some(judged) = cause::of_the_way(tried, names) {
        return judged;
    }
    if let Some(judged) = cause::of_silence(tried, names) {
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
        let found = format!(
            "datagrams arrive both ways, and so do full packets of {} bytes, as they were sent",
            tried.path_mtu_bytes
        );
        Judged::works("works", Finding::pass(found))
    })
}

/// As whoever has seen it tells.
fn in_own_words(trouble: &Trouble) -> Finding {
    let finding = Finding::fail(trouble.sentence());
    match &trouble.fix {
        Some(fix) => finding.fix(fix),
        None => finding,
    }
}

#[cfg(test)]
#[path = "diagnose_tests.rs"]
mod tests;
