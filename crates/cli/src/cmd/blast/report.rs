//! The report of `farreach blast`.

use std::time::Duration;

use serde::Serialize;

use super::{Direction, Operation, Task};
use crate::exit::Told;
use crate::report::{Head, Processors};
use crate::show::paint::Paint;
use crate::show::sparkline::Sparkline;
use crate::{terminal, units};

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BlastReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    pub(crate) operation: Operation,
    pub(crate) direction: Direction,
    pub(crate) message_bytes: u64,
    pub(crate) depth: usize,
    /// The duration; the longer one if both sides initiated operations.
    pub(crate) elapsed_ns: u64,
    pub(crate) to_server: Option<Totals>,
    pub(crate) from_server: Option<Totals>,
    /// Null if the test ended early, because the server then reports nothing.
    pub(crate) processors: Option<Processors>,
    /// Whether the final contents of all memory were compared and match.
    pub(crate) is_verified: bool,
    /// The error that ended the test early. The figures cover the time until then.
    pub(crate) error: Option<Told>,
    #[serde(skip)]
    pub(crate) course: Sparkline,
}

impl BlastReport {
    /// Creates a report without figures.
    pub(super) fn new(head: Head, task: &Task) -> Self {
        Self {
            head,
            operation: task.operation,
            direction: task.direction,
            message_bytes: task.message_bytes,
            depth: task.depth,
            elapsed_ns: 0,
            to_server: None,
            from_server: None,
            processors: None,
            is_verified: false,
            error: None,
            course: Sparkline::default(),
        }
    }

    /// Records the operations that each side initiated, and their times.
    pub(super) fn sum_up(&mut self, task: &Task, client: (u64, Duration), server: (u64, Duration)) {
        let totals = |(messages, elapsed)| Totals::new(messages, task.message_bytes, elapsed);
        let client = task.client_initiates().then(|| totals(client));
        let server = task.server_initiates().then(|| totals(server));
        (self.to_server, self.from_server) = match task.operation {
            // The bytes of a read go to its initiator.
            Operation::Read => (server, client),
            Operation::Write | Operation::Send => (client, server),
        };
        let ways = [self.to_server, self.from_server];
        self.elapsed_ns = ways.iter().flatten().map(|way| way.elapsed_ns).max().unwrap_or(0);
    }
}

/// The totals of one direction.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Totals {
    /// Measured by the initiator, until its last operation was complete.
    pub(crate) elapsed_ns: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) messages_per_second: f64,
    pub(crate) bits_per_second: f64,
}

impl Totals {
    pub(super) fn new(messages: u64, message_bytes: u64, elapsed: Duration) -> Self {
        let bytes = messages * message_bytes;
        let per_second = |count: f64| if elapsed.is_zero() { 0.0 } else { count / elapsed.as_secs_f64() };
        Self {
            elapsed_ns: elapsed.as_nanos() as u64,
            messages,
            bytes,
            messages_per_second: per_second(messages as f64),
            bits_per_second: per_second(bytes as f64 * 8.0),
        }
    }
}

pub(super) fn text(report: &BlastReport, width: Option<u16>) -> String {
    let paint = Paint::for_stdout();
    let what = match report.operation {
        Operation::Write => "writes",
        Operation::Read => "reads",
        Operation::Send => "messages",
    };
    let head = format!("blast {}: {what} of {}", report.head.over(), units::size(report.message_bytes));
    let mut text = terminal::folded("", &head, width);
    let depth =
        format!("{} messages in flight, for {}", report.depth, units::duration(report.elapsed_ns as f64));
    text.push_str(&terminal::folded("depth      ", &depth, width));
    for (way, totals) in [("to server ", report.to_server), ("to client ", report.from_server)] {
        let Some(totals) = totals else { continue };
        let rate = format!(
            "{}, {}, {}",
            units::bit_rate(totals.bits_per_second),
            units::byte_rate(totals.bits_per_second / 8.0),
            units::operation_rate(totals.messages_per_second)
        );
        let sums = format!("({} in {} messages)", units::amount(totals.bytes), totals.messages);
        text.push_str(&format!("{way} {} {sums}\n", paint.figure(&rate)));
    }
    let course = report.course.render(usize::from(width.unwrap_or(80)).saturating_sub(11));
    if !course.is_empty() {
        text.push_str(&format!("over time  {course}\n"));
    }
    if let Some(processors) = &report.processors {
        text.push_str(&format!("CPU        {}\n", processors.words()));
    }
    let verified = if report.is_verified {
        paint.good("final contents match")
    } else {
        paint.bad("no: the test did not finish")
    };
    text.push_str(&format!("verified   {verified}\n"));
    if report.head.is_interrupted {
        text.push_str("interrupted: the figures cover the time until then\n");
    } else if let Some(told) = &report.error {
        text.push_str(&terminal::folded("ended      ", &format!("early: {}", told.error), width));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_what_the_type_says() {
        crate::schema::assert_current::<BlastReport>("blast.json");
    }

    #[test]
    fn a_test_that_ended_early_tells_its_figures_and_why_they_are_few() {
        let task = Task {
            operation: Operation::Write,
            direction: Direction::BothWays,
            message_bytes: 1 << 20,
            depth: 16,
            count: None,
            seed: 7,
            alter_byte: false,
        };
        let mut report = BlastReport::new(crate::report::tests::head("blast"), &task);
        report.sum_up(&task, (1000, Duration::from_secs(1)), (0, Duration::ZERO));
        report.error = Some(Told {
            error: "the server was stopped".to_owned(),
            cause: None,
            fix: Some("start the server again, then the test".to_owned()),
            their_fix: None,
        });
        let text = text(&report, Some(80));
        assert_eq!(
            text,
            "\
blast storage-7:18520 over tcp 192.0.2.1 (no RDMA): writes of 1 MiB
depth      16 messages in flight, for 1.00 s
to server  8.39 Gb/s, 1000 MiB/s, 1.00 k/s (1000 MiB in 1000 messages)
to client  0 b/s, 0 B/s, 0 /s (0 B in 0 messages)
verified   no: the test did not finish
ended      early: the server was stopped
"
        );
        crate::schema::assert_describes(&report);
    }
}
