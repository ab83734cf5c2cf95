//! The report of `farreach ping`.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Operation;
use crate::report::{Head, Latency, LatencyOf, Processors};
use crate::show::histogram;
use crate::show::paint::Paint;
use crate::{terminal, units};

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PingReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    pub(crate) operation: Operation,
    /// One row per size.
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Row {
    pub(crate) size_bytes: usize,
    /// Completed round trips. Every byte was checked.
    pub(crate) round_trips: u64,
    /// Null if the test was interrupted before the first round trip.
    pub(crate) rtt: Option<Latency>,
    pub(crate) processors: Processors,
}

impl PingReport {
    pub(crate) fn new(head: Head, operation: Operation) -> Self {
        Self { head, operation, rows: Vec::new() }
    }
}

impl Row {
    pub(crate) fn new(size_bytes: usize, histogram: &Histogram<u64>, processors: Processors) -> Self {
        Self {
            size_bytes,
            round_trips: histogram.len(),
            rtt: Latency::new(LatencyOf::RoundTrip, histogram),
            processors,
        }
    }
}

pub(super) fn text(report: &PingReport, histograms: &[Histogram<u64>], width: Option<u16>) -> String {
    let operation = match report.operation {
        Operation::Send => "send round trips",
        Operation::Write => "write round trips",
        Operation::Read => "reads",
    };
    let head = format!("ping {}: {operation}", report.head.over());
    let mut text = terminal::folded("", &head, width);
    let header = ["SIZE", "TRIPS", "MIN", "P50", "P90", "P99", "P99.9", "MAX", "CPU", "PEER CPU"];
    text.push_str(&terminal::table(&header, report.rows.iter().map(cells), width));
    text.push_str("RTT in µs; CPU in % of one core; every byte was checked\n");
    // For several sizes the table is enough.
    if let [histogram] = histograms {
        text.push('\n');
        text.push_str(&histogram::rows(histogram, "RTT", width, Paint::for_stdout()));
    }
    if report.head.is_interrupted {
        text.push_str("interrupted: the figures cover the time until then\n");
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let mut cells = vec![units::size(row.size_bytes as u64), row.round_trips.to_string()];
    let figures = row.rtt.as_ref().map(|rtt| {
        [rtt.min_ns, rtt.p50_ns, rtt.p90_ns, rtt.p99_ns, rtt.p99_9_ns, rtt.max_ns]
            .map(|ns| units::microseconds(ns as f64))
    });
    cells.extend(figures.unwrap_or_else(|| std::array::from_fn(|_| "-".to_owned())));
    cells.extend([row.processors.client, row.processors.server].map(|usage| units::percent(usage.share())));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_what_the_type_says() {
        crate::schema::assert_current::<PingReport>("ping.json");
    }
}
