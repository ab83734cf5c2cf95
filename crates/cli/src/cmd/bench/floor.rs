//! `--floor`: the figures that a run must reach to pass.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::figures::Measure;
use super::row::{Key, Row};
use super::verdict::{Outcome, Verdict};
use crate::units::parse::{bit_rate_of, duration_of, operation_rate_of, share_of};

/// A lower bound on rates, or an upper bound on latencies, as typed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Floor {
    /// `90%of=FILE`: a share of the operations per second in the same row of an earlier run.
    Share { share: f64, file: PathBuf },
    /// `10Gb/s`, `500k/s`, `20us`, `p99=50us`: the same for every row.
    Fixed { measure: Measure, bound: f64 },
}

impl Floor {
    /// Returns the file of the earlier run, if it is a share of one.
    pub(crate) fn baseline(&self) -> Option<&Path> {
        match self {
            Self::Share { file, .. } => Some(file),
            Self::Fixed { .. } => None,
        }
    }
}

impl FromStr for Floor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((share, file)) = text.split_once("of=") {
            if file.is_empty() {
                return Err("name the file of an earlier run: 90%of=FILE".to_owned());
            }
            return Ok(Self::Share { share: share_of(share)?, file: file.into() });
        }
        let (measure, time) = match text.split_once('=') {
            None => (Measure::LatencyP50Ns, text),
            Some(("p50", time)) => (Measure::LatencyP50Ns, time),
            Some(("p99", time)) => (Measure::LatencyP99Ns, time),
            Some(("max", time)) => (Measure::LatencyMaxNs, time),
            Some((name, _)) => return Err(format!("{name:?} is not a latency: use p50, p99 or max")),
        };
        if let Ok(time) = duration_of(time) {
            return Ok(Self::Fixed { measure, bound: time.as_nanos() as f64 });
        }
        let fixed = |measure, bound| Self::Fixed { measure, bound };
        bit_rate_of(text)
            .map(|bound| fixed(Measure::BitsPerSecond, bound))
            .or_else(|_| operation_rate_of(text).map(|bound| fixed(Measure::OperationsPerSecond, bound)))
            .map_err(|_| format!("{text:?} is not a floor: use 90%of=FILE, 10Gb/s, 500k/s, 20us or p99=50us"))
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share { share, file } => {
                // In floating point, 0.07 × 100 is not 7.
                write!(f, "{} % of {}", (share * 1000.0).round() / 10.0, file.display())
            }
            Self::Fixed { measure, bound } => f.write_str(&measure.text(*bound)),
        }
    }
}

/// A floor with the rows of its earlier run.
#[derive(Debug)]
pub(crate) struct Judge {
    floor: Floor,
    baseline: Vec<Row>,
}

impl Judge {
    /// Judges by a floor. `baseline` are the rows of the file that it names, if any.
    pub(crate) fn new(floor: Floor, baseline: Vec<Row>) -> Self {
        Self { floor, baseline }
    }

    /// Judges each row by the floor.
    pub(crate) fn judge(&self, rows: &[Row]) -> Vec<Verdict> {
        let mut verdicts: Vec<_> = rows.iter().map(|row| self.verdict(row)).collect();
        let is_missing = |there: &&Row| rows.iter().all(|here| here.key != there.key);
        for there in self.baseline.iter().filter(is_missing) {
            let (measure, required) = (Measure::OperationsPerSecond, self.required_by(there));
            verdicts.push(self.outcome(&there.key, measure, None, Some(required), Outcome::MissingHere));
        }
        verdicts
    }

    fn verdict(&self, row: &Row) -> Verdict {
        let (measure, required) = match &self.floor {
            Floor::Fixed { measure, bound } => (*measure, Some(*bound)),
            Floor::Share { .. } => {
                let there = self.baseline.iter().find(|there| there.key == row.key);
                (Measure::OperationsPerSecond, there.map(|there| self.required_by(there)))
            }
        };
        let measured = measure.of(&row.median);
        let outcome = match (measured, required) {
            (_, None) => Outcome::MissingThere,
            (None, _) => Outcome::MissingHere,
            (Some(measured), Some(required)) if measure.is_held(measured, required) => Outcome::Held,
            _ => Outcome::Failed,
        };
        self.outcome(&row.key, measure, measured, required, outcome)
    }

    fn required_by(&self, there: &Row) -> f64 {
        match &self.floor {
            Floor::Share { share, .. } => share * there.median.operations_per_second,
            Floor::Fixed { bound, .. } => *bound,
        }
    }

    fn outcome(
        &self,
        key: &Key,
        measure: Measure,
        measured: Option<f64>,
        required: Option<f64>,
        outcome: Outcome,
    ) -> Verdict {
        Verdict { floor: self.floor.to_string(), key: key.clone(), measure, measured, required, outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn floor(text: &str) -> Floor {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn judged(text: &str, baseline: Vec<Row>, rows: &[Row]) -> Vec<Verdict> {
        Judge::new(floor(text), baseline).judge(rows)
    }

    fn outcomes(verdicts: &[Verdict]) -> Vec<Outcome> {
        verdicts.iter().map(|verdict| verdict.outcome).collect()
    }

    #[test]
    fn floors_are_read_as_they_are_typed() {
        let fixed = |measure, bound| Floor::Fixed { measure, bound };
        assert_eq!(floor("90%of=base.json"), Floor::Share { share: 0.9, file: "base.json".into() });
        assert_eq!(floor("90% of=a b.json"), Floor::Share { share: 0.9, file: "a b.json".into() });
        assert_eq!(floor("10Gb/s"), fixed(Measure::BitsPerSecond, 10e9));
        assert_eq!(floor("500k/s"), fixed(Measure::OperationsPerSecond, 500e3));
        assert_eq!(floor("20us"), fixed(Measure::LatencyP50Ns, 20e3));
        assert_eq!(floor("p99=1ms"), fixed(Measure::LatencyP99Ns, 1e6));
        for (text, words) in [
            ("fast", "\"fast\" is not a floor: use 90%of=FILE, 10Gb/s, 500k/s, 20us or p99=50us"),
            ("90%of=", "name the file of an earlier run: 90%of=FILE"),
            ("90of=x", "\"90\" is not a percentage: use 90%"),
            ("p75=20us", "\"p75\" is not a latency: use p50, p99 or max"),
        ] {
            assert_eq!(text.parse::<Floor>(), Err(words.to_owned()));
        }
    }

    #[test]
    fn a_bound_that_is_met_exactly_is_held() {
        let rows = [sample::row("write", 1000, 1, &[500_000.0])];
        for (text, expected) in [
            ("500k/s", Outcome::Held),
            ("500001/s", Outcome::Failed),
            ("4Gb/s", Outcome::Held),
            ("4.01Gb/s", Outcome::Failed),
            ("2us", Outcome::Held),
            ("1.9us", Outcome::Failed),
        ] {
            assert_eq!(outcomes(&judged(text, vec![], &rows)), [expected], "{text}");
        }
    }
}
