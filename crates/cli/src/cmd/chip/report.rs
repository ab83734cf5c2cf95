//! The report of `farreach chip`.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::lock::{Contest, Tally};
use crate::exit::{Exit, Failure};
use crate::report::{Head, Latency, LatencyOf, Processors};
use crate::{terminal, units};

/// What was done, also where something was in the way.
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
    /// What went wrong.
    #[serde(rename = "error", serialize_with = "told")]
    #[cfg_attr(test, schemars(with = "Option<Told>"))]
    pub(super) failure: Option<Failure>,
}

#[derive(Debug, Clone, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct MemoryReport {
    pub(super) kind: MemoryKind,
    pub(super) size_bytes: usize,
    /// The server's, by its name there; none where the rail is libfabric's.
    pub(super) card: Option<String>,
    /// Of the clients together; none where they share the engine's connection.
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
    /// Once, and with all that the first time takes: no measurement.
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
            Self::Message => ("message", "sent from that memory by the server"),
            Self::Read => ("read", "matches the server's memory"),
            Self::Write => ("write", "arrived at the server"),
            Self::ReadBack => ("read back", "matches what was written"),
        }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LockReport {
    pub(super) clients: usize,
    /// That each of them was to take it.
    pub(super) rounds: u64,
    pub(super) acquisitions: u64,
    pub(super) elapsed_ns: u64,
    pub(super) acquisitions_per_second: f64,
    /// That found another one in possession.
    pub(super) failed_attempts: u64,
    /// As a client reads it: it must be as many as the acquisitions.
    pub(super) counter: u64,
    /// As the server's processor sees it.
    pub(super) counter_at_server: u64,
    /// How often the lock was not a client's own any more when it gave it back.
    pub(super) intrusions: u64,
    pub(super) excludes: bool,
    /// Of all clients. Null where nobody has had it.
    pub(super) wait: Option<Latency>,
    /// How often each one had had it when the first was done.
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

/// As every command tells a failure.
#[cfg(test)]
#[derive(schemars::JsonSchema)]
#[expect(dead_code, reason = "for the schema alone")]
struct Told {
    error: String,
    cause: Option<String>,
    fix: Option<String>,
}

fn told<S: Serializer>(failure: &Option<Failure>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(failure) = failure else { return serializer.serialize_none() };
    let mut told = serializer.serialize_struct("error", 3)?;
    told.serialize_field("error", &failure.error)?;
    told.serialize_field("cause", &failure.cause)?;
    told.serialize_field("fix", &failure.fix)?;
    told.end()
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
    let mut text = format!("chip {}\n{}\n", report.head.over(), memory_words(&report.memory));
    let rows = report.steps.iter().map(|step| {
        let (name, words) = step.step.words();
        let time = units::microseconds(step.elapsed_ns as f64);
        vec![name.to_owned(), units::size(step.bytes as u64), time, words.to_owned()]
    });
    if !report.steps.is_empty() {
        text.push_str(&terminal::table(&["STEP", "SIZE", "TIME µs", ""], rows, width));
    }
    if let Some(lock) = &report.lock {
        text.push_str(&lock_words(lock, width));
    }
    if report.head.is_interrupted {
        text.push_str("interrupted: the figures are those until then\n");
    }
    text
}

fn memory_words(memory: &MemoryReport) -> String {
    let size = units::size(memory.size_bytes as u64);
    let place = match (memory.kind, &memory.card) {
        (MemoryKind::OnChip, Some(card)) => format!("on-chip memory of the server's {card}"),
        (MemoryKind::Host, Some(card)) => format!("the server's host memory, by its {card}"),
        (_, None) => "the server's host memory".to_owned(),
    };
    let by = match memory.queue_pairs {
        Some(count) => format!("{count} queue pairs"),
        None => "one connection of the engine".to_owned(),
    };
    format!("{size} of {place}, over {by}")
}

fn lock_words(lock: &LockReport, width: Option<u16>) -> String {
    let LockReport { clients, rounds, acquisitions, counter, counter_at_server, .. } = lock;
    let Spread { min, max } = &lock.acquisitions_when_first_was_done;
    let wait = lock.wait.as_ref().map_or("nobody has had it".to_owned(), |wait| {
        let figures = [
            ("min", wait.min_ns),
            ("p50", wait.p50_ns),
            ("p90", wait.p90_ns),
            ("p99", wait.p99_ns),
            ("max", wait.max_ns),
        ];
        let figures = figures.map(|(name, ns)| format!("{name} {}", units::microseconds(ns as f64)));
        format!("wait for it in µs: {}", figures.join(", "))
    });
    let judged = if lock.excludes { "as it must be" } else { "as it must not be" };
    let lines = [
        format!(
            "{clients} clients, {rounds} rounds each: {acquisitions} acquisitions in {}, {}",
            units::duration(lock.elapsed_ns as f64),
            units::operation_rate(lock.acquisitions_per_second)
        ),
        format!("{} attempts found the lock held", lock.failed_attempts),
        wait,
        format!("when the first client was done, each had had it {min} to {max} times"),
        format!("counter {counter}, at the server {counter_at_server}: {judged}"),
    ];
    let leads = ["lock  ", "      ", "      ", "      ", "      "];
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
