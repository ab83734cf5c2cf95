//! The lines of a chart.

use plotters::style::{BLACK, RGBColor};

use super::row::{Key, Row};

/// Colours that the colour-blind can distinguish (Okabe and Ito), one for each operation.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];

/// One line of both charts: the rows that differ in size alone.
pub(super) struct Series<'a> {
    pub(super) label: String,
    pub(super) colour: RGBColor,
    /// Sorted by size.
    pub(super) rows: Vec<&'a Row>,
}

/// Returns the lines of the rows, with their colours.
pub(super) fn of(rows: &[Row]) -> Vec<Series<'_>> {
    let mut operations: Vec<&str> = rows.iter().map(|row| row.key.operation.as_str()).collect();
    operations.dedup();
    let mut series: Vec<Series<'_>> = Vec::new();
    for row in rows {
        let is_same = |key: &Key| Key { size_bytes: row.key.size_bytes, ..key.clone() } == row.key;
        match series.iter_mut().find(|series| is_same(&series.rows[0].key)) {
            Some(found) => found.rows.push(row),
            None => series.push(Series { label: label(&row.key, rows), colour: BLACK, rows: vec![row] }),
        }
    }
    // Of the lines with one colour, the first is the palest.
    let of = |series: &Series<'_>| series.rows[0].key.operation.clone();
    for index in 0..series.len() {
        let operation = of(&series[index]);
        let kin: Vec<usize> = (0..series.len()).filter(|other| of(&series[*other]) == operation).collect();
        let place = kin.iter().position(|other| *other == index).unwrap_or(0);
        let hue = operations.iter().position(|other| *other == operation).unwrap_or(0);
        let paleness = 0.6 * (1.0 - (place + 1) as f64 / kin.len() as f64);
        series[index].colour = paler(COLOURS[hue % COLOURS.len()], paleness);
        series[index].rows.sort_by_key(|row| row.key.size_bytes);
    }
    series
}

fn paler(colour: RGBColor, part: f64) -> RGBColor {
    let mix = |channel: u8| (f64::from(channel) + (255.0 - f64::from(channel)) * part) as u8;
    RGBColor(mix(colour.0), mix(colour.1), mix(colour.2))
}

/// Returns a label with the properties that differ between rows, and no more.
fn label(key: &Key, rows: &[Row]) -> String {
    let mut label = key.operation.clone();
    if rows.iter().any(|row| row.key.depth != key.depth) {
        label.push_str(&format!(", depth {}", key.depth));
    }
    if rows.iter().any(|row| row.key.queues != key.queues) {
        label.push_str(&format!(", queues {}", key.queues));
    }
    if rows.iter().any(|row| row.key.rails != key.rails) {
        label.push_str(&format!(", {}", key.rails.join("+")));
    }
    label
}

/// Returns the lines of the size axis: at measured sizes, and few enough that their labels do not
/// touch.
pub(super) fn sizes(series: &[Series<'_>]) -> Vec<f64> {
    const SIZES_MAX: usize = 9;
    let mut sizes: Vec<u64> =
        series.iter().flat_map(|series| &series.rows).map(|row| row.key.size_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let step = sizes.len().div_ceil(SIZES_MAX).max(1);
    // Starts at the largest size, which matters most.
    sizes.into_iter().rev().step_by(step).map(|bytes| bytes as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn rows_that_differ_in_size_alone_are_one_line() {
        let report = sample::report();
        let series = of(&report.rows);
        let labels: Vec<_> = series.iter().map(|series| series.label.as_str()).collect();
        assert_eq!(labels[..4], ["write, depth 1", "write, depth 16", "write, depth 64", "read, depth 1"]);
        assert!(series.iter().all(|series| series.rows.len() == 5));
        assert_eq!(series[2].colour, COLOURS[0], "the last of an operation has its full colour");
        assert_eq!(series[5].colour, COLOURS[1]);
        assert_ne!(series[0].colour, series[1].colour);
    }

    #[test]
    fn a_label_says_only_what_differs() {
        let rows = [sample::row("write", 8, 1, &[1.0]), sample::row("write", 16, 1, &[1.0])];
        assert_eq!(of(&rows)[0].label, "write");
        let mut rows = rows.to_vec();
        rows[1].key.queues = 4;
        rows[1].key.rails = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(of(&rows)[1].label, "write, queues 4, a+b");
    }

    #[test]
    fn sizes_do_not_crowd_the_axis() {
        let rows: Vec<_> = (3..=20).map(|power| sample::row("write", 1 << power, 1, &[1.0])).collect();
        let shown = sizes(&of(&rows));
        assert_eq!((shown.len(), shown[0]), (9, f64::from(1 << 20)));
        assert_eq!(sizes(&of(&rows[..5])), [128.0, 64.0, 32.0, 16.0, 8.0]);
        assert_eq!(sizes(&[]), [0.0; 0]);
    }
}
