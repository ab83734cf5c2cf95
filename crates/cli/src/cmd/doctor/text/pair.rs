//! Formats the matrix of a pair.

use farreach_doctor::Verdict;
use farreach_doctor::pair::{PairReport, State};

use super::findings::{Style, findings, names};
use crate::terminal::{folded, table};
use crate::units;

/// The maximum width of the table, even on a wider terminal.
const WIDTH_MAX: u16 = 80;

/// Formats the matrix, the rails left out of it, and the findings. Passed pairs are in the matrix.
pub(super) fn pair(report: &PairReport, style: Style) -> String {
    let mut text = matrix(report, style.width);
    for left_out in &report.left_out {
        let line = format!("{} was not tried: {}", left_out.rail, left_out.reason);
        let line = folded("", &line, style.width);
        text.push_str(&format!("{}\n", style.paint.faint(line.trim_end())));
    }
    text.push_str(&findings("pair", &report.findings, style));
    let passed = passed(report);
    if !style.is_verbose && !passed.is_empty() {
        text.push('\n');
        text.push_str(&names("pass", &passed, style));
    }
    text
}

/// Returns the passed findings that are not in the matrix.
fn passed(report: &PairReport) -> Vec<String> {
    let passed = report.beside_matrix().filter(|finding| finding.verdict == Verdict::Pass);
    passed.filter_map(|finding| finding.subject.clone()).collect()
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
    // A long name must not make the other columns too narrow.
    let short = |name: &str| name.chars().take(20).collect::<String>();
    let width = width.map_or(WIDTH_MAX, |width| width.min(WIDTH_MAX));
    table(&[&short(&report.here), &short(&report.peer), "RTT", "RATE", ""], rows, Some(width))
}

#[cfg(test)]
mod tests {
    use farreach_doctor::Finding;
    use serde_json::{Value, json};

    use super::*;
    use crate::show::paint::Paint;

    fn row(local: &str, remote: &str, state: &str, why: &str, figures: Option<(u64, u64)>) -> Value {
        json!({
            "state": state,
            "why": why,
            "local": local,
            "remote": remote,
            "round_trip_ns": figures.map(|it| it.0),
            "rate_bits_per_second": figures.map(|it| it.1),
            "trouble": null,
            "cards": null,
        })
    }

    #[test]
    fn the_matrix_fits_a_terminal_and_names_both_sides() {
        let report: PairReport = serde_json::from_value(json!({
            "here": "web-1",
            "peer": "storage-7",
            "matrix": [
                row("mlx5_bond_0/1", "mlx5_bond_0/2", "works", "works", Some((3_210, 94_200_000_000))),
                row("mlx5_bond_0/1", "rxe1", "fails", "blocked from storage-7", None),
            ],
            "left_out": [{ "rail": "efa", "reason": "the server is on another host" }],
            "findings": [
                Finding::pass("without TLS").of("control connection"),
                Finding::pass("the same on both").of("versions"),
                Finding::pass("it works").of("mlx5_bond_0/1 with mlx5_bond_0/2"),
                Finding::fail("16 of 16 datagrams arrive, 0 of 16 come back").of("mlx5_bond_0/1 with rxe1"),
            ],
        }))
        .unwrap();
        let text = pair(&report, Style { is_verbose: false, width: None, paint: Paint::PLAIN });
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("web-1") && lines[0].contains("storage-7"), "{text}");
        assert!(
            lines[1].contains("3.21 µs") && lines[1].contains("94.2 Gb/s") && lines[1].ends_with("works"),
            "{text}"
        );
        assert!(lines[2].contains("FAIL: blocked from storage-7"), "{text}");
        assert_eq!(lines[3], "efa was not tried: the server is on another host");
        assert_eq!(lines[4], "");
        assert!(lines[5].starts_with("FAIL     pair, ") && lines[5].contains("16 of 16"), "{text}");
        assert_eq!(lines.last(), Some(&"pass     control connection, versions"), "{text}");
        assert!(lines[..3].iter().all(|line| line.chars().count() <= 80), "{text}");
    }
}
