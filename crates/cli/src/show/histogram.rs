//! Renders latencies as rows of bars.

use hdrhistogram::Histogram;

use super::bar;
use super::bounds::Bounds;
use super::paint::Paint;
use crate::units::percent;

/// The width if stdout is not a terminal.
const COLUMNS_USUAL: usize = 80;
/// A longer bar is no easier to read.
const BAR_COLUMNS_MAX: usize = 120;
/// A narrower terminal wraps the lines.
const BAR_COLUMNS_MIN: usize = 8;

/// Renders the rows. `what` is the quantity: `RTT`, `½ RTT`. The latencies are in ns. The text is
/// empty if nothing was recorded.
pub(crate) fn rows(histogram: &Histogram<u64>, what: &str, width: Option<u16>, paint: Paint) -> String {
    if histogram.is_empty() {
        return String::new();
    }
    let bounds = Bounds::of(histogram);
    let labels = labels(&bounds);
    let counts = counts(histogram, &bounds);
    let heading = format!("{what}, µs");
    let label_columns = columns(labels.iter().map(String::as_str).chain([heading.as_str()]));
    let count_columns = counts.iter().max().map_or(0, |most| most.to_string().len()).max("count".len());
    let left = label_columns + count_columns + PERCENT_COLUMNS + 6;
    let columns = width.map_or(COLUMNS_USUAL, usize::from).saturating_sub(left);
    let columns = columns.clamp(BAR_COLUMNS_MIN, BAR_COLUMNS_MAX);

    let heading =
        format!("{heading:>label_columns$}  {:>count_columns$}  {:>PERCENT_COLUMNS$}", "count", "%");
    let mut text = paint.faint(heading.trim_end()) + "\n";
    let most = counts.iter().max().copied().unwrap_or(0);
    for (label, count) in labels.iter().zip(&counts) {
        let share = percent(*count as f64 / histogram.len() as f64);
        let bar = paint.figure(&bar(*count as f64 / most as f64, columns));
        let row =
            format!("{label:>label_columns$}  {count:>count_columns$}  {share:>PERCENT_COLUMNS$}  {bar}");
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// The width of `100.0 %`.
const PERCENT_COLUMNS: usize = 7;

/// Counts the latencies in each row.
fn counts(histogram: &Histogram<u64>, bounds: &Bounds) -> Vec<u64> {
    let ends: Vec<u64> = bounds.all().skip(1).collect();
    let mut counts = vec![0; ends.len()];
    for recorded in histogram.iter_recorded() {
        // The histogram has a precision of 1/1000. A round number is the lower end of its range.
        let ns = histogram.lowest_equivalent(recorded.value_iterated_to());
        let row = ends.iter().position(|end| ns < *end).unwrap_or(ends.len() - 1);
        counts[row] += recorded.count_since_last_iteration();
    }
    counts
}

/// Formats the rows' bounds: `4.5 –  5.0`, with the second number right-aligned. Bounds of the body
/// have the same number of decimals.
fn labels(bounds: &Bounds) -> Vec<String> {
    let decimals = bounds.body.iter().map(|ns| decimals(*ns)).max().unwrap_or(0);
    let body = bounds.body.iter().map(|ns| exact(*ns, decimals));
    let tail = bounds.tail.iter().map(|ns| exact(*ns, self::decimals(*ns)));
    let numbers: Vec<String> = body.chain(tail).collect();
    let columns = columns(numbers.iter().map(String::as_str));
    numbers.windows(2).map(|pair| format!("{} – {:>columns$}", pair[0], pair[1])).collect()
}

/// Returns the number of decimals that a bound needs in µs.
fn decimals(ns: u64) -> usize {
    [1000, 100, 10].iter().position(|unit| ns.is_multiple_of(*unit)).unwrap_or(3)
}

fn exact(ns: u64, decimals: usize) -> String {
    format!("{:.decimals$}", ns as f64 / 1e3)
}

fn columns<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(latencies: &[(u64, u64)]) -> Histogram<u64> {
        let mut histogram = Histogram::new(3).unwrap();
        for (ns, count) in latencies {
            histogram.record_n(*ns, *count).unwrap();
        }
        histogram
    }

    /// A body, a tail and a gap between them, as in a ping over tcp.
    fn usual() -> Histogram<u64> {
        histogram(&[
            (4_810, 2_000),
            (5_020, 70_000),
            (6_100, 20_000),
            (7_400, 5_000),
            (9_900, 2_950),
            (31_000, 49),
            (402_000, 1),
        ])
    }

    #[test]
    fn body_and_tail_are_both_seen() {
        assert_eq!(
            rows(&usual(), "RTT", Some(60), Paint::PLAIN),
            "   RTT, µs  count        %
  4 –    5   2000    2.0 %  ▉
  5 –    6  70000   70.0 %  ████████████████████████████████
  6 –    7  20000   20.0 %  █████████▏
  7 –    8   5000    5.0 %  ██▎
  8 –    9      0    0.0 %
  9 –   10   2950    2.9 %  █▍
 10 –  100     49   <0.1 %  ▏
100 – 1000      1   <0.1 %  ▏
"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [60, 80, 200] {
            let text = rows(&usual(), "RTT", Some(width), Paint::PLAIN);
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
                assert_eq!(line.trim_end(), line);
            }
        }
    }

    #[test]
    fn nothing_measured_shows_nothing() {
        assert_eq!(rows(&histogram(&[]), "RTT", Some(80), Paint::PLAIN), "");
    }

    #[test]
    fn every_latency_is_counted_once() {
        let histogram = usual();
        let bounds = Bounds::of(&histogram);
        assert_eq!(counts(&histogram, &bounds).iter().sum::<u64>(), histogram.len());
    }
}
