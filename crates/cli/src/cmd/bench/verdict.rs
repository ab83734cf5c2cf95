//! The verdicts of a floor, by row and in total.

use serde::{Deserialize, Serialize};

use super::figures::Measure;
use super::row::Key;
use crate::show::paint::Paint;
use crate::terminal::folded;
use crate::units::percent;

/// The result of comparing a row with a floor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Verdict {
    /// The floor, as text.
    pub(crate) floor: String,
    #[serde(flatten)]
    pub(crate) key: Key,
    /// The compared figure, which is the unit of `measured` and `required`.
    pub(crate) measure: Measure,
    /// Null if it was not measured.
    pub(crate) measured: Option<f64>,
    /// The minimum of a rate, or the maximum of a latency. Null if the earlier run does not have the row.
    pub(crate) required: Option<f64>,
    pub(crate) outcome: Outcome,
}

/// The outcome of a comparison with a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Held,
    Failed,
    /// The row was required and not measured. This counts as a failure.
    MissingHere,
    /// The earlier run does not have the row.
    MissingThere,
}

impl Verdict {
    /// Returns the distance from the bound, relative to it: negative on the wrong side.
    fn margin(&self) -> Option<f64> {
        let (measured, required) = (self.measured?, self.required.filter(|bound| *bound > 0.0)?);
        Some(if self.measure.is_rate() { measured / required - 1.0 } else { 1.0 - measured / required })
    }

    fn line(&self) -> Option<String> {
        let figure =
            |value: Option<f64>| value.map_or("nothing".to_owned(), |value| self.measure.text(value));
        let key = &self.key;
        match self.outcome {
            Outcome::Held => None,
            Outcome::Failed => {
                let is = if self.measure.is_rate() { "below" } else { "above" };
                let margin = self.margin().map(|margin| format!(" by {}", percent(margin.abs())));
                let (measured, required) = (figure(self.measured), figure(self.required));
                Some(format!("{key}: {measured} is {is} {required}{}", margin.unwrap_or_default()))
            }
            Outcome::MissingHere => {
                Some(format!("{key}: not measured; {} is required", figure(self.required)))
            }
            Outcome::MissingThere => Some(format!("{key}: not in the earlier run")),
        }
    }
}

/// Returns whether the run passes. A run in which no row was judged does not pass.
pub(crate) fn is_passed(verdicts: &[Verdict]) -> bool {
    let is_bad = |verdict: &Verdict| matches!(verdict.outcome, Outcome::Failed | Outcome::MissingHere);
    verdicts.iter().any(|verdict| verdict.outcome == Outcome::Held) && !verdicts.iter().any(is_bad)
}

/// Formats a line for each floor, and one for each row that needs attention.
pub(crate) fn render(verdicts: &[Verdict], width: Option<u16>, paint: Paint) -> String {
    let mut text = String::new();
    let mut rest = verdicts;
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|verdict| verdict.floor == first.floor).count();
        let (of_floor, others) = rest.split_at(count);
        text.push_str(&render_floor(of_floor, width, paint));
        rest = others;
    }
    text
}

fn render_floor(verdicts: &[Verdict], width: Option<u16>, paint: Paint) -> String {
    let count = |outcome| verdicts.iter().filter(|verdict| verdict.outcome == outcome).count();
    let (held, failed, missing) = (count(Outcome::Held), count(Outcome::Failed), count(Outcome::MissingHere));
    let floor = verdicts.first().map_or("", |verdict| verdict.floor.as_str());
    let mut parts = vec![format!("{held} of {} rows passed", verdicts.len() - count(Outcome::MissingThere))];
    if failed > 0 {
        parts.push(format!("{failed} failed"));
    }
    if missing > 0 {
        parts.push(format!("{missing} missing"));
    }
    let closest = verdicts
        .iter()
        .filter_map(|verdict| Some((verdict.margin()?, verdict)))
        .min_by(|left, right| left.0.total_cmp(&right.0));
    if let Some((margin, verdict)) = closest.filter(|_| failed + missing == 0 && held > 0) {
        parts.push(format!("smallest margin {} ({})", percent(margin), verdict.key));
    }
    let is_passed = is_passed(verdicts);
    let word = if is_passed { "passed" } else { "FAILED" };
    let lines = folded(&format!("{word}  "), &format!("floor {floor}: {}", parts.join(", ")), width);
    let painted = if is_passed { paint.good(word) } else { paint.bad(word) };
    let mut text = lines.replacen(word, &painted, 1);
    for verdict in verdicts {
        let lead = if verdict.outcome == Outcome::MissingThere { "  new: " } else { "  - " };
        text.extend(verdict.line().map(|line| folded(lead, &line, width)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::floor::Judge;
    use super::super::row::Row;
    use super::super::sample;
    use super::*;

    fn judged(floor: &str, baseline: Vec<Row>, rows: &[Row]) -> Vec<Verdict> {
        Judge::new(floor.parse().unwrap(), baseline).judge(rows)
    }

    fn outcomes(verdicts: &[Verdict]) -> Vec<Outcome> {
        verdicts.iter().map(|verdict| verdict.outcome).collect()
    }

    #[test]
    fn an_earlier_run_is_held_against_row_by_row() {
        let here = [
            sample::row("write", 8, 1, &[90.0]),
            sample::row("write", 16, 1, &[89.0]),
            sample::row("write", 64, 1, &[100.0]),
        ];
        let baseline = [8, 16, 32].map(|size| sample::row("write", size, 1, &[100.0])).to_vec();
        let verdicts = judged("90%of=base.json", baseline, &here);
        assert_eq!(
            outcomes(&verdicts),
            [Outcome::Held, Outcome::Failed, Outcome::MissingThere, Outcome::MissingHere]
        );
        assert!(!is_passed(&verdicts));
        assert_eq!(
            render(&verdicts, Some(80), Paint::PLAIN),
            "FAILED  floor 90 % of base.json: 1 of 3 rows passed, 1 failed, 1 missing\n\
             \x20 - write 16 B, depth 1, mlx5_0: 89.0 /s is below 90.0 /s by 1.1 %\n\
             \x20 new: write 64 B, depth 1, mlx5_0: not in the earlier run\n\
             \x20 - write 32 B, depth 1, mlx5_0: not measured; 90.0 /s is required\n"
        );
    }

    #[test]
    fn what_holds_says_by_how_much_at_least() {
        let rows = [sample::row("write", 8, 1, &[1000.0]), sample::row("read", 8, 1, &[1100.0])];
        let verdicts = [judged("900/s", vec![], &rows), judged("max=1s", vec![], &rows)].concat();
        assert!(is_passed(&verdicts));
        assert_eq!(
            render(&verdicts, None, Paint::PLAIN),
            "passed  floor 900 /s: 2 of 2 rows passed, smallest margin 11.1 % (write 8 B, depth 1, mlx5_0)\n\
             passed  floor max 1.00 s: 2 of 2 rows passed, smallest margin 99.0 % (write 8 B, depth 1, mlx5_0)\n"
        );
    }

    #[test]
    fn nothing_measured_is_no_pass() {
        assert!(!is_passed(&[]));
        assert!(!is_passed(&judged("10Gb/s", vec![], &[])));
        let new = judged("90%of=base.json", vec![], &[sample::row("write", 8, 1, &[1.0])]);
        assert!(!is_passed(&new), "nothing to hold it against: {new:?}");
        let mut untimed = sample::row("write", 8, 1, &[1.0]);
        untimed.median.latency_p50_ns = None;
        let verdicts = judged("20us", vec![], &[untimed]);
        assert_eq!(outcomes(&verdicts), [Outcome::MissingHere]);
        assert!(render(&verdicts, None, Paint::PLAIN).contains("not measured; p50 20.0 µs is required"));
    }
}
