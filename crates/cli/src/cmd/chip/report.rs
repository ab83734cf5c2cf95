//! The report of `farreach chip`.

use serde::{Serialize, Serializer};

use super::lock::{Contest, Tally};
use crate::exit::{Exit, Failure, Told};
use crate::report::{Head, Latency, LatencyOf, Processors};
use crate::{terminal, units};

/// The completed steps, including those before a failure.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ChipReport {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) exit_code: u8,
    pub(super) memory: MemoryReport,
    pub(super) steps: Vec<StepReport>,
    pub(super) lock: Option<LockReport>,
    pub(super) processors: Option<Processors>,
    /// The failure, if any.
    #[serde(rename = "error", serialize_with = "told")]
    #[cfg_attr(test, schemars(with = "Option<Told>"))]
    pub(super) failure: Option<Failure>,
}

#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MemoryReport {
    pub(super) kind: MemoryKind,
    pub(super) size_bytes: usize,
    /// The name of the server's card; null over libfabric.
    pub(super) card: Option<String>,
    /// The queue pairs of all clients; null if they share the engine's connection.
    pub(super) queue_pairs: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum MemoryKind {
    OnChip,
    Host,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct StepReport {
    pub(super) step: Step,
    pub(super) bytes: usize,
    /// The time of a single cold run. It is not a measurement.
    pub(super) elapsed_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    Message,
    Read,
    Write,
    ReadBack,
}

impl Step {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Message => ("message", "sent by the server from this memory"),
            Self::Read => ("read", "matches the memory of the server"),
            Self::Write => ("write", "verified by the server"),
            Self::ReadBack => ("read back", "matches the bytes written"),
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LockReport {
    pub(super) clients: usize,
    /// The requested acquisitions per client.
    pub(super) rounds: u64,
    pub(super) acquisitions: u64,
    pub(super) elapsed_ns: u64,
    pub(super) acquisitions_per_second: f64,
    /// Attempts that found the lock held.
    pub(super) failed_attempts: u64,
    /// The counter as a client reads it. It must equal the acquisitions.
    pub(super) counter: u64,
    /// The counter as the server's CPU reads it.
    pub(super) counter_at_server: u64,
    /// Releases at which the lock had another owner.
    pub(super) intrusions: u64,
    pub(super) excludes: bool,
    /// The waits of all clients; null if no client acquired the lock.
    pub(super) wait: Option<Latency>,
    /// The acquisitions per client when the first client finished.
    pub(super) acquisitions_when_first_was_done: Spread,
    pub(super) by_client: Vec<ClientReport>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Spread {
    pub(super) min: u64,
    pub(super) max: u64,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct ClientReport {
    pub(super) acquisitions: u64,
    pub(super) failed_attempts: u64,
    pub(super) wait: Option<Latency>,
}

impl LockReport {
    pub(super) fn new(contest: &Contest, rounds: u64, counter: u64, counter_at_server: u64) -> Self {
        let (acquisitions, seconds) = (contest.acquisitions(), contest.elapsed.as_secs_f64());
        let client = |tally: &Tally| ClientReport {
            acquisitions: tally.acquisitions,
            failed_attempts: tally.failed_attempts,
            wait: Latency::new(LatencyOf::Acquisition, &tally.waits),
        };
        let (min, max) = contest.spread;
        Self {
            clients: contest.clients.len(),
            rounds,
            acquisitions,
            elapsed_ns: contest.elapsed.as_nanos() as u64,
            acquisitions_per_second: if seconds > 0.0 { acquisitions as f64 / seconds } else { 0.0 },
            failed_attempts: contest.failed_attempts(),
            counter,
            counter_at_server,
            intrusions: contest.intrusions(),
            excludes: contest.verdict(counter, counter_at_server).is_none(),
            wait: Latency::new(LatencyOf::Acquisition, &contest.waits()),
            acquisitions_when_first_was_done: Spread { min, max },
            by_client: contest.clients.iter().map(client).collect(),
        }
    }
}

fn told<S: Serializer>(failure: &Option<Failure>, serializer: S) -> Result<S::Ok, S::Error> {
    failure.as_ref().map(Told::from).serialize(serializer)
}

impl ChipReport {
    pub(super) fn new(head: Head, memory: MemoryReport) -> Self {
        Self { head, exit_code: 0, memory, steps: Vec::new(), lock: None, processors: None, failure: None }
    }

    /// Records the result: the failure, and whether the test was interrupted.
    pub(super) fn end(&mut self, failure: Option<Failure>, interrupted: bool) {
        (self.failure, self.head.is_interrupted) = (failure, interrupted);
        self.exit_code = self.exit().code();
    }

    /// Returns the exit code. A failure takes precedence over an interrupt.
    pub(super) fn exit(&self) -> Exit {
        match &self.failure {
            Some(failure) => failure.exit,
            None if self.head.is_interrupted => Exit::Interrupted,
            None => Exit::Ok,
        }
    }
}

pub(super) fn text(report: &ChipReport, width: Option<u16>) -> String {
    let head = format!("chip {}: {}", report.head.over(), memory_words(&report.memory));
    let mut text = terminal::folded("", &head, width);
    text.push_str(&terminal::folded("access  ", &access_words(&report.memory), width));
    let rows = report.steps.iter().map(|step| {
        let (name, words) = step.step.words();
        let time = units::microseconds(step.elapsed_ns as f64);
        vec![name.to_owned(), units::size(step.bytes as u64), time, words.to_owned()]
    });
    if !report.steps.is_empty() {
        text.push_str(&terminal::table(&["STEP", "SIZE", "TIME µs", "RESULT"], rows, width));
    }
    if let Some(lock) = &report.lock {
        text.push_str(&lock_words(lock, width));
    }
    if report.head.is_interrupted {
        text.push_str("interrupted: the figures cover the time until then\n");
    }
    text
}

fn memory_words(memory: &MemoryReport) -> String {
    let kind = match memory.kind {
        MemoryKind::OnChip => "on-chip memory",
        MemoryKind::Host => "host memory",
    };
    format!("{} of {kind}", units::size(memory.size_bytes as u64))
}

fn access_words(memory: &MemoryReport) -> String {
    match (memory.queue_pairs, &memory.card) {
        (Some(count), Some(card)) => format!("{count} queue pairs to {card} of the server"),
        (Some(count), None) => format!("{count} queue pairs"),
        (None, _) => "one connection of the engine".to_owned(),
    }
}

fn lock_words(lock: &LockReport, width: Option<u16>) -> String {
    let LockReport { clients, rounds, acquisitions, counter, counter_at_server, .. } = lock;
    let Spread { min, max } = &lock.acquisitions_when_first_was_done;
    let wait = lock.wait.as_ref().map_or("no client acquired it".to_owned(), |wait| {
        let figures = [
            ("min", wait.min_ns),
            ("p50", wait.p50_ns),
            ("p90", wait.p90_ns),
            ("p99", wait.p99_ns),
            ("max", wait.max_ns),
        ];
        let figures = figures.map(|(name, ns)| format!("{name} {}", units::microseconds(ns as f64)));
        format!("wait in µs: {}", figures.join(", "))
    });
    let judged = if lock.excludes { "correct".to_owned() } else { format!("wrong, expected {acquisitions}") };
    let lines = [
        format!(
            "{clients} clients, {rounds} rounds each: {acquisitions} acquisitions in {}, {}",
            units::duration(lock.elapsed_ns as f64),
            units::operation_rate(lock.acquisitions_per_second)
        ),
        format!("{} attempts found the lock held", lock.failed_attempts),
        wait,
        format!("when the first client finished, each had {min} to {max} acquisitions"),
        format!("counter {counter}, at the server {counter_at_server}: {judged}"),
    ];
    let leads = ["lock    ", "        ", "        ", "        ", "        "];
    leads.iter().zip(&lines).map(|(lead, line)| terminal::folded(lead, line, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_what_the_type_says() {
        crate::schema::assert_current::<ChipReport>("chip.json");
    }
}
