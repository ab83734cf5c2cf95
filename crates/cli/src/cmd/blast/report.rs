//! What `farreach blast` has to say.

use std::time::Duration;

use serde::Serialize;

use super::Direction;
use crate::report::{Head, Processors};
use crate::show::paint::Paint;
use crate::show::sparkline::Sparkline;
use crate::{terminal, units};

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BlastReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    pub(crate) direction: Direction,
    pub(crate) message_bytes: u64,
    pub(crate) depth: usize,
    /// The longer one, where both sides have written.
    pub(crate) elapsed_ns: u64,
    pub(crate) to_server: Option<Totals>,
    pub(crate) from_server: Option<Totals>,
    pub(crate) processors: Processors,
    #[serde(skip)]
    pub(crate) course: Sparkline,
}

/// What went one way.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Totals {
    /// By the clock of who wrote: until the last message was at the other side.
    pub(crate) elapsed_ns: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) messages_per_second: f64,
    pub(crate) bits_per_second: f64,
}

impl Totals {
    pub(super) fn new(messages: u64, message_bytes: u64, elapsed: Duration) -> Self {
        let (bytes, seconds) = (messages * message_bytes, elapsed.as_secs_f64());
        Self {
            elapsed_ns: elapsed.as_nanos() as u64,
            messages,
            bytes,
            messages_per_second: messages as f64 / seconds,
            bits_per_second: bytes as f64 * 8.0 / seconds,
        }
    }
}

pub(super) fn text(report: &BlastReport, width: Option<u16>) -> String {
    let paint = Paint::for_stdout();
    let mut text = format!("blast {}\n", report.head.over());
    let what = format!(
        "messages of {}, {} at once, for {}",
        units::size(report.message_bytes),
        report.depth,
        units::duration(report.elapsed_ns as f64)
    );
    text.push_str(&terminal::folded("writes     ", &what, width));
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
        text.push_str(&format!("course     {course}\n"));
    }
    text.push_str(&format!("CPU        {}\n", report.processors.words()));
    text.push_str(&format!("verified   {}\n", paint.good("what lies there at the end is what was written")));
    if report.head.is_interrupted {
        text.push_str("interrupted: this is what was measured until then\n");
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
}
