//! Statistics of measurements.

use std::fmt;

use serde_json::{Value, json};

/// The median of measurements, and their quartiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) lower_quartile: f64,
    pub(super) median: f64,
    pub(super) upper_quartile: f64,
}

impl Spread {
    /// Returns the spread; `None` without measurements.
    pub(super) fn of(measurements: &[f64]) -> Option<Self> {
        let mut sorted = measurements.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            lower_quartile: quantile(&sorted, 0.25)?,
            median: quantile(&sorted, 0.5)?,
            upper_quartile: quantile(&sorted, 0.75)?,
        })
    }

    pub(super) fn to_json(self) -> Value {
        json!({ "lower_quartile": self.lower_quartile, "median": self.median, "upper_quartile": self.upper_quartile })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} ({:.0} to {:.0})", self.median, self.lower_quartile, self.upper_quartile)
    }
}

/// Returns the quantile; between two measurements, it is interpolated.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let place = part * (sorted.len().checked_sub(1)? as f64);
    let (below, above) = (sorted.get(place.floor() as usize)?, sorted.get(place.ceil() as usize)?);
    Some(below + (above - below) * place.fract())
}

/// Returns the ratio of two series of equal length: the geometric mean, so that swapping them gives
/// the inverse.
pub(super) fn ratio(of: &[f64], to: &[f64]) -> f64 {
    let middle = |values: &[f64]| values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64;
    (middle(of) - middle(to)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_odd_number_the_middle_one_counts() {
        let spread = Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { lower_quartile: 2.0, median: 3.0, upper_quartile: 4.0 });
    }

    #[test]
    fn between_two_the_proportion_counts() {
        let spread = Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { lower_quartile: 1.75, median: 2.5, upper_quartile: 3.25 });
    }

    #[test]
    fn one_is_its_own_spread_and_none_has_none() {
        let spread = Spread::of(&[7.0]).unwrap();
        assert_eq!((spread.lower_quartile, spread.median, spread.upper_quartile), (7.0, 7.0, 7.0));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_single_stray_measurement_moves_no_median() {
        assert_eq!(Spread::of(&[1.0, 1.0, 1.0, 1.0, 100.0]).unwrap().median, 1.0);
    }

    #[test]
    fn a_ratio_is_the_inverse_the_other_way_round() {
        let (first, second) = ([2.0, 8.0], [1.0, 4.0]);
        assert!((ratio(&first, &second) - 2.0).abs() < 1e-12);
        assert!((ratio(&second, &first) - 0.5).abs() < 1e-12);
        // The arithmetic mean would be 1.25, also with swapped arguments.
        assert!((ratio(&[1.0, 2.0], &[2.0, 1.0]) - 1.0).abs() < 1e-12);
    }
}
