//! The matrix as a person reads it.

use super::report::{CONTROL, PairReport, State, VERSIONS};
use crate::cmd::doctor::finding::Verdict;
use crate::cmd::doctor::text::{Style, findings, names};
use crate::terminal::{folded, table};
use crate::units;

/// Wider than this no table is, also where the terminal is.
const WIDTH_MAX: u16 = 80;

/// The matrix, what was left out of it, and the findings. What passes is in the matrix already.
pub(crate) fn pair_text(report: &PairReport, style: Style) -> String {
    let mut text = matrix(report, style.width);
    for left_out in &report.left_out {
        let line = format!("{} was not tried: {}", left_out.rail, left_out.reason);
        let line = folded("", &line, style.width);
        text.push_str(&format!("{}\n", style.paint.faint(line.trim_end())));
    }
    text.push_str(&findings("pair", &report.findings, style));
    if !style.is_verbose {
        text.push_str(&names("pass", &passed(report), style));
    }
    text
}

/// What passes and is not in the matrix.
fn passed(report: &PairReport) -> Vec<String> {
    let passed = report.findings.iter().filter(|finding| finding.verdict == Verdict::Pass);
    let subjects = passed.filter_map(|finding| finding.subject.as_deref());
    subjects.filter(|subject| [CONTROL, VERSIONS].contains(subject)).map(str::to_owned).collect()
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
