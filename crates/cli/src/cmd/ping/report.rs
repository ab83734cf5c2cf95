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
    /// One for each size.
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Row {
    pub(crate) size_bytes: usize,
    /// Each of them was checked.
    pub(crate) round_trips: u64,
    /// Null where it was interrupted before the first.
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
        Operation::Send => "messages there and back",
        Operation::Write => "writes there and back",
        Operation::Read => "reads",
    };
    let mut text = format!("ping {}\n{operation}, every byte checked\n", report.head.over());
    let header = ["SIZE", "TRIPS", "MIN", "P50", "P90", "P99", "P99.9", "MAX", "CPU HERE", "THERE"];
    text.push_str(&terminal::table(&header, report.rows.iter().map(cells), width));
    text.push_str("RTT in µs; CPU in percent of a core\n");
    // For several sizes the table is enough.
    if let [histogram] = histograms {
        text.push('\n');
        text.push_str(&histogram::rows(histogram, "RTT", width, Paint::for_stdout()));
    }
    if report.head.is_interrupted {
        text.push_str("interrupted: this is what was measured until then\n");
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
