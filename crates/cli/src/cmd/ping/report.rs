//! What `farreach ping` has to say.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::Operation;
use crate::report::{Head, Processors};
use crate::show::histogram;
use crate::show::paint::Paint;
use crate::{terminal, units};

#[derive(Debug, Serialize)]
pub(crate) struct PingReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    pub(crate) operation: Operation,
    /// One for each size.
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) size_bytes: usize,
    /// Each of them was checked.
    pub(crate) round_trips: u64,
    pub(crate) rtt: Percentiles,
    pub(crate) processors: Processors,
}

/// Round trips, not halves of them.
#[derive(Debug, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) min_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p90_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p99_9_ns: u64,
    pub(crate) max_ns: u64,
    pub(crate) mean_ns: f64,
}

impl PingReport {
    pub(crate) fn new(head: Head, operation: Operation) -> Self {
        Self { head, operation, rows: Vec::new() }
    }
}

impl Row {
    pub(crate) fn new(size_bytes: usize, histogram: &Histogram<u64>, processors: Processors) -> Self {
        Self { size_bytes, round_trips: histogram.len(), rtt: Percentiles::of(histogram), processors }
    }
}

impl Percentiles {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Self {
            min_ns: histogram.min(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            max_ns: histogram.max(),
            mean_ns: histogram.mean(),
        }
    }
}

pub(super) fn text(report: &PingReport, histograms: &[Histogram<u64>], width: Option<u16>) -> String {
    let operation = match report.operation {
        Operation::Send => "messages there and back",
        Operation::Write => "writes there and back",
        Operation::Read => "reads",
    };
    let mut text = format!("ping {}: {operation}, every byte checked\n", report.head.over());
    let header = ["SIZE", "TRIPS", "MIN", "P50", "P90", "P99", "P99.9", "MAX", "CPU HERE", "THERE"];
    text.push_str(&terminal::table(&header, report.rows.iter().map(cells), width));
    text.push_str("RTT in µs; CPU in percent of a core\n");
    // Of several sizes the table tells enough.
    if let [histogram] = histograms {
        text.push('\n');
        text.push_str(&histogram::rows(histogram, "RTT", width, Paint::for_stdout()));
    }
    if report.head.interrupted {
        text.push_str("interrupted: this is what was measured until then\n");
    }
    text
}

fn cells(row: &Row) -> Vec<String> {
    let rtt = &row.rtt;
    let mut cells = vec![units::size(row.size_bytes as u64), row.round_trips.to_string()];
    let figures = [rtt.min_ns, rtt.p50_ns, rtt.p90_ns, rtt.p99_ns, rtt.p99_9_ns, rtt.max_ns];
    cells.extend(figures.map(|ns| units::microseconds(ns as f64)));
    cells.extend([row.processors.client, row.processors.server].map(|usage| units::percent(usage.share())));
    cells
}
