//! The matrix as a person reads it.

use super::report::{PairReport, State};
use crate::cmd::doctor::finding::{Finding, Verdict};
use crate::show::paint::Paint;
use crate::terminal::{folded, table};
use crate::units;

/// Wider than this no table is, also where the terminal is.
const WIDTH_MAX: u16 = 80;

/// The matrix, what was left out of it, and the findings, the worst first, each by `finding_text`. What passes is in the matrix already, and is
/// told again only where `is_verbose`.
pub(crate) fn pair_text(
    report: &PairReport,
    is_verbose: bool,
    width: Option<u16>,
    paint: Paint,
    finding_text: impl Fn(&Finding) -> String,
) -> String {
    let mut text = matrix(report, width);
    for left_out in &report.left_out {
        let line = format!("{} was not tried: {}", left_out.rail, left_out.reason);
        let line = folded("", &line, width);
        text.push_str(&format!("{}\n", paint.faint(line.trim_end())));
    }
    for verdict in [Verdict::Fail, Verdict::Warn, Verdict::Unknown, Verdict::Pass] {
        let findings = report.findings.iter().filter(|finding| finding.verdict == verdict);
        for finding in findings.filter(|_| verdict != Verdict::Pass || is_verbose) {
            text.push_str(&finding_text(finding));
        }
    }
    text
}

fn matrix(report: &PairReport, width: Option<u16>) -> String {
    if report.matrix.is_empty() {
        return String::new();
    }
    let figure = |figure: Option<u64>, told: fn(f64) -> String| {
        figure.map_or_else(|| "-".to_owned(), |figure| told(figure as f64))
    };
    let rows = report.matrix.iter().map(|row| {
        let lead = match row.state {
            State::Works => "",
            State::Warns => "warn: ",
            State::Apart => "apart: ",
            State::Fails => "FAIL: ",
        };
        vec![
            row.cell.local.clone(),
            row.cell.remote.clone(),
            figure(row.cell.round_trip_ns, units::duration),
            figure(row.cell.rate_bits_per_second, units::bit_rate),
            format!("{lead}{}", row.why),
        ]
    });
    let peer: String = report.peer.chars().take(20).collect();
    let width = width.map_or(WIDTH_MAX, |width| width.min(WIDTH_MAX));
    table(&["HERE", &peer, "RTT", "RATE", ""], rows, Some(width))
}
