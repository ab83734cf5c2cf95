//! Computes the bounds of the rows in a histogram of latencies.
//!
//! Latencies have a body and a tail: most are close together, and a few are a hundred times as
//! long. Rows of equal width would show only one of the two. So the body, up to the 99th
//! percentile, has rows of its own, and the tail has a few rows of growing width.

use hdrhistogram::Histogram;

/// The maximum number of rows of the body.
const BODY_ROWS: usize = 9;
/// The maximum number of rows of the tail, unless even whole decades need more.
const TAIL_ROWS: usize = 3;
/// If the end of the body is at least this many times its beginning, its rows grow too.
const EVEN_RATIO: u64 = 4;

/// Bounds in ns. A row extends from one bound to below the next. The last bound is above the
/// longest latency.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) body: Vec<u64>,
    /// Continues from the last bound of the body.
    pub(super) tail: Vec<u64>,
}

impl Bounds {
    /// Computes bounds for a histogram, which must not be empty.
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        let (shortest, longest) = (histogram.min().max(1), histogram.max().max(1));
        let mut common = histogram.value_at_quantile(0.99).clamp(shortest, longest);
        if longest - common <= (common - shortest) / 4 {
            // Latencies that end this close to the body are no tail.
            common = longest;
        }
        let body = if common / shortest >= EVEN_RATIO {
            growing(shortest, common, BODY_ROWS)
        } else {
            even(shortest, common)
        };
        let end = body.last().copied().unwrap_or(shortest);
        let mut tail = Vec::new();
        if longest >= end {
            tail = growing(end, longest, TAIL_ROWS);
            tail.retain(|bound| *bound > end);
        }
        Self { body, tail }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = u64> {
        self.body.iter().chain(&self.tail).copied()
    }
}

/// Returns rows of equal width between round numbers.
fn even(shortest: u64, common: u64) -> Vec<u64> {
    // The histogram has a precision of 1/1000, and rows must not be narrower.
    let fits = |step: &u64| *step >= shortest / 1000 && common / step - shortest / step < BODY_ROWS as u64;
    let step = rising(&[10, 20, 25, 40, 50]).find(fits).unwrap_or(common);
    let first = shortest / step * step;
    (0..).map(|row| first + row * step).scan(false, |done, bound| until_above(common, done, bound)).collect()
}

/// Returns rows of growing width between round numbers.
fn growing(shortest: u64, longest: u64, rows_max: usize) -> Vec<u64> {
    const SERIES: [&[u64]; 4] =
        [&[10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82], &[10, 15, 20, 30, 50, 70], &[10, 20, 50], &[10]];
    let mut bounds = Vec::new();
    for series in SERIES {
        let below = rising(series).take_while(|bound| *bound <= shortest).last().unwrap_or(0);
        bounds = rising(series)
            .skip_while(|bound| *bound < below)
            .scan(false, |done, bound| until_above(longest, done, bound))
            .collect();
        if bounds.len() <= rows_max + 1 {
            break;
        }
    }
    bounds
}

/// Returns each bound up to the first one above the limit.
fn until_above(limit: u64, done: &mut bool, bound: u64) -> Option<u64> {
    let is_wanted = !*done;
    *done = bound > limit;
    is_wanted.then_some(bound)
}

/// Returns the mantissas, in tenths, times the powers of ten up to 10¹⁷. Fractions are left out.
fn rising(mantissas: &[u64]) -> impl Iterator<Item = u64> {
    let powers = (0..18).map(|power| 10_u64.pow(power));
    let numbers = powers.flat_map(move |power| mantissas.iter().map(move |mantissa| mantissa * power));
    numbers.filter(|tenths| tenths % 10 == 0).map(|tenths| tenths / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(latencies: impl IntoIterator<Item = (u64, u64)>) -> Bounds {
        let mut histogram = Histogram::new(3).unwrap();
        for (ns, count) in latencies {
            histogram.record_n(ns, count).unwrap();
        }
        Bounds::of(&histogram)
    }

    #[test]
    fn what_is_close_together_has_even_rows() {
        let bounds = bounds((4_800..=5_600).map(|ns| (ns, 1)));
        let body = (48..=57).map(|tenths| tenths * 100).collect();
        assert_eq!(bounds, Bounds { body, tail: vec![] });
    }

    #[test]
    fn a_tail_has_rows_that_grow() {
        let bounds = bounds([(4_810, 500), (5_020, 9_000), (9_900, 490), (402_000, 1)]);
        let body = vec![4_000, 5_000, 6_000, 7_000, 8_000, 9_000, 10_000];
        assert_eq!(bounds, Bounds { body, tail: vec![100_000, 1_000_000] });
    }

    #[test]
    fn a_wide_body_has_rows_that_grow_too() {
        let bounds = bounds((1..=100).map(|tenths| (tenths * 1_000, 1)));
        let body = vec![1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000];
        assert_eq!(bounds, Bounds { body, tail: vec![] });
    }

    #[test]
    fn every_latency_is_in_a_row() {
        for [first, second] in [[1, 1], [270, 271], [0, 5], [1, 10_u64.pow(15)], [999, 1000], [10, 100_000]] {
            let bounds: Vec<u64> = bounds([(first, 999), (second, 1)]).all().collect();
            assert!(bounds.is_sorted_by(|left, right| left < right), "{bounds:?}");
            assert!(bounds[0] <= first.max(1) && bounds[bounds.len() - 1] > second, "{bounds:?}");
            assert!((2..=20).contains(&bounds.len()), "{bounds:?}");
        }
    }
}
