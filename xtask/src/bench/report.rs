//! The report of a benchmark, as text and as JSON.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::contest::{Held, Measure, OTHERS_MAX};
use super::spread::Spread;

/// The bound of a median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// Of the ratio.
    AtLeast(f64),
    AtMost(f64),
    /// Of the engine's own figure.
    FigureAtLeast(f64),
    FigureAtMost(f64),
}

impl Goal {
    fn is_reached(self, held: &Held) -> bool {
        let median = |figures: &[f64]| Spread::of(figures).map(|spread| spread.median);
        let (ratio, figure) = (median(&held.ratios), median(&held.engine));
        match self {
            Self::AtLeast(bound) => ratio.is_some_and(|ratio| ratio >= bound),
            Self::AtMost(bound) => ratio.is_some_and(|ratio| ratio <= bound),
            Self::FigureAtLeast(bound) => figure.is_some_and(|figure| figure >= bound),
            Self::FigureAtMost(bound) => figure.is_some_and(|figure| figure <= bound),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::AtMost(bound) => write!(f, "at most {bound}"),
            Self::FigureAtLeast(bound) => write!(f, "the figure at least {bound}"),
            Self::FigureAtMost(bound) => write!(f, "the figure at most {bound}"),
        }
    }
}

/// One comparison.
#[derive(Debug)]
pub(super) struct Row {
    label: String,
    held: Held,
    goal: Option<Goal>,
    /// The reason why nothing was measured.
    reason: Option<String>,
}

impl Row {
    pub(super) fn new(label: String, held: Held, goal: Option<Goal>) -> Self {
        Self { label, held, goal, reason: None }
    }

    /// Returns a row for what cannot be measured here. It has no goal, so that it misses none.
    pub(super) fn not_measured(label: String, measure: Measure, reason: String) -> Self {
        Self { label, held: Held::nothing(measure), goal: None, reason: Some(reason) }
    }

    /// Returns a row for a figure that is compared with nothing.
    pub(super) fn of_figure(label: String, field: &'static str, figure: f64, goal: Goal) -> Self {
        let measure = Measure { field, digits: 2 };
        let held = Held { engine: vec![figure], tried: 1, ..Held::nothing(measure) };
        Self::new(label, held, Some(goal))
    }

    /// Returns the spreads of both programs and of their ratio. Contests without a round that counts
    /// have failed before.
    fn spreads(&self) -> [Option<Spread>; 3] {
        [&self.held.bare, &self.held.engine, &self.held.ratios].map(|figures| Spread::of(figures))
    }

    fn is_missed(&self) -> bool {
        self.goal.is_some_and(|goal| !goal.is_reached(&self.held))
    }

    fn to_json(&self) -> Value {
        let [bare, engine, ratio] = self.spreads().map(|spread| spread.map_or(Value::Null, Spread::to_json));
        json!({
            "benchmark": self.label,
            "measure": self.held.measure.field,
            "bare": bare,
            "engine": engine,
            "ratio": ratio,
            "rounds_kept": self.held.ratios.len(),
            "rounds_tried": self.held.tried,
            "cores_of_others": Spread::of(&self.held.others).map(Spread::to_json),
            "not_measured": self.reason,
            "goal": self.goal.map(|goal| goal.to_string()),
            "is_reached": self.goal.map(|_| !self.is_missed()),
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.held.measure.digits;
        write!(f, "{:<24}", self.label)?;
        if let Some(reason) = &self.reason {
            return write!(f, " not measured: {reason}");
        }
        match self.spreads() {
            [Some(bare), Some(engine), Some(ratio)] => write!(
                f,
                " {:>8.digits$} {:>8.digits$}   {:.2} ({:.2} to {:.2})   {} of {} rounds",
                bare.median,
                engine.median,
                ratio.median,
                ratio.lower_quartile,
                ratio.upper_quartile,
                self.held.ratios.len(),
                self.held.tried,
            )?,
            [_, Some(engine), _] => write!(f, " {:>8} {:>8.digits$}   once", "", engine.median)?,
            _ => f.write_str(" nothing was measured")?,
        }
        match self.goal {
            Some(goal) if self.is_missed() => write!(f, "   MISSED: {goal}")?,
            Some(goal) => write!(f, "   {goal}")?,
            None => {}
        }
        match Spread::of(&self.held.others) {
            Some(others) if others.median > OTHERS_MAX => {
                write!(f, "   others used {:.1} cores", others.median)
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn write_json(file: &Path, rows: &[Row]) -> Result<()> {
    let rows: Vec<_> = rows.iter().map(Row::to_json).collect();
    let text = serde_json::to_string_pretty(&json!({ "schema": 1, "rows": rows }))?;
    std::fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}

/// Returns an error if a goal was missed.
pub(super) fn judge(rows: &[Row]) -> Result<()> {
    let missed: Vec<_> = rows.iter().filter(|row| row.is_missed()).map(|row| row.label.as_str()).collect();
    if !missed.is_empty() {
        bail!("missed: {}", missed.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ratios: &[f64], goal: Option<Goal>) -> Row {
        let (bare, engine) = (vec![1.0; ratios.len()], ratios.to_vec());
        let measure = Measure::GB_PER_S;
        let held = Held { bare, engine, ratios: ratios.to_vec(), tried: 9, ..Held::nothing(measure) };
        Row::new("write tcp 4 KiB".to_owned(), held, goal)
    }

    #[test]
    fn the_median_is_held_against_the_goal() {
        assert!(judge(&[row(&[0.5, 0.9, 2.0], Some(Goal::AtLeast(0.9)))]).is_ok());
        assert!(judge(&[row(&[0.5, 0.89, 2.0], Some(Goal::AtLeast(0.9)))]).is_err());
        assert!(judge(&[row(&[1.0, 1.3, 9.0], Some(Goal::AtMost(1.3)))]).is_ok());
        let missed = judge(&[row(&[1.0], None), row(&[1.4], Some(Goal::AtMost(1.3)))]).unwrap_err();
        assert_eq!(missed.to_string(), "missed: write tcp 4 KiB");
    }

    #[test]
    fn a_figure_alone_is_held_against_its_goal() {
        let idle = |ms| Row::of_figure("idle".to_owned(), "cpu_ms_in_10_s", ms, Goal::FigureAtMost(5.0));
        assert!(judge(&[idle(5.0)]).is_ok() && judge(&[idle(5.1)]).is_err());
        assert!(
            idle(6.0).to_string().ends_with("6.00   once   MISSED: the figure at most 5"),
            "{}",
            idle(6.0)
        );
        assert!(judge(&[row(&[3.0], Some(Goal::FigureAtLeast(2.9)))]).is_ok());
        assert!(judge(&[row(&[3.0], Some(Goal::FigureAtLeast(3.1)))]).is_err());
        assert!(judge(&[row(&[], Some(Goal::AtMost(1.0)))]).is_err(), "nothing was measured");
    }

    #[test]
    fn a_row_tells_both_the_ratio_with_its_spread_and_how_many_rounds_counted() {
        let text = row(&[1.0, 2.0, 3.0], Some(Goal::AtLeast(2.5))).to_string();
        assert_eq!(
            text,
            "write tcp 4 KiB              1.00     2.00   2.00 (1.50 to 2.50)   3 of 9 rounds   MISSED: at least 2.5"
        );
    }

    #[test]
    fn a_row_without_a_measurement_has_its_reason_and_misses_nothing() {
        let row =
            Row::not_measured("nixl tcp 4 KiB".to_owned(), Measure::GB_PER_S, "no such package".to_owned());
        assert_eq!(row.to_string(), "nixl tcp 4 KiB           not measured: no such package");
        assert_eq!(row.to_json()["not_measured"], "no such package");
        assert!(judge(&[row]).is_ok());
    }

    #[test]
    fn a_row_of_a_busy_machine_tells_so() {
        let mut row = row(&[1.0], Some(Goal::AtLeast(0.9)));
        row.held.others = vec![0.1];
        assert!(row.to_string().ends_with("at least 0.9"), "{row}");
        row.held.others = vec![1.2];
        assert!(row.to_string().ends_with("at least 0.9   others used 1.2 cores"), "{row}");
    }

    #[test]
    fn json_has_the_same() {
        let json = row(&[1.0, 2.0, 3.0], Some(Goal::AtLeast(1.8))).to_json();
        assert_eq!(json["ratio"]["median"], 2.0);
        assert_eq!((&json["rounds_kept"], &json["rounds_tried"]), (&json!(3), &json!(9)));
        assert_eq!(json["is_reached"], true);
    }
}
