//! Formats the rows as a table: medians with the deviation of the repetitions, and as many columns
//! as fit.

use super::against::{Comparison, Comparisons};
use super::figures::deviation;
use super::report::{BenchReport, INTERRUPTED};
use super::row::{Key, Row};
use crate::show::paint::Paint;
use crate::terminal::folded;
use crate::units::{self, digits, microseconds, percent};

/// A column with its cells.
struct Column {
    heading: &'static str,
    /// The column with the highest value is dropped first if not all fit; zero is never dropped.
    expendable: u8,
    is_text: bool,
    cells: Vec<String>,
}

impl Column {
    fn number(heading: &'static str, expendable: u8, rows: &[Row], cell: impl Fn(&Row) -> String) -> Self {
        Self { heading, expendable, is_text: false, cells: rows.iter().map(cell).collect() }
    }

    fn text(heading: &'static str, rows: &[Row], cell: impl Fn(&Row) -> String) -> Self {
        Self { is_text: true, ..Self::number(heading, 0, rows, cell) }
    }

    fn width(&self) -> usize {
        self.cells.iter().map(String::as_str).chain([self.heading]).map(columns).max().unwrap_or(0)
    }

    fn padded(&self, text: &str) -> String {
        let width = self.width();
        if self.is_text { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

fn columns(text: &str) -> usize {
    text.chars().count()
}

/// The gap between two columns.
const GAP: &str = "  ";

/// Formats the whole table, with shared properties above it and notes below.
pub(crate) fn render(report: &BenchReport, width: Option<u16>, paint: Paint) -> String {
    let rows = &report.rows;
    if rows.is_empty() {
        return format!("bench {}: nothing was measured\n", report.head.peer.address);
    }
    let (shown, hidden) = fitting(all_columns(rows, report.comparisons.as_ref()), width);
    let mut text = folded("", &shared(report), width);
    text.push('\n');
    let heading: Vec<_> = shown.iter().map(|column| column.padded(column.heading)).collect();
    text.push_str(&paint.faint(heading.join(GAP).trim_end()));
    text.push('\n');
    for (number, row) in rows.iter().enumerate() {
        // An empty line between groups, if a group has several rows.
        let is_other = number > 0 && !is_same_group(&rows[number - 1].key, &row.key);
        if is_other && rows.windows(2).any(|pair| is_same_group(&pair[0].key, &pair[1].key)) {
            text.push('\n');
        }
        let cells: Vec<_> = shown.iter().map(|column| column.padded(&column.cells[number])).collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&notes(report, &hidden, width, paint));
    text
}

/// Returns whether only the size differs.
fn is_same_group(one: &Key, other: &Key) -> bool {
    Key { size_bytes: other.size_bytes, ..one.clone() } == *other
}

/// Drops the most expendable columns until the rest fits. Returns the dropped headings too.
fn fitting(mut columns: Vec<Column>, width: Option<u16>) -> (Vec<Column>, Vec<&'static str>) {
    let limit = width.map_or(usize::MAX, usize::from);
    let mut hidden = Vec::new();
    loop {
        let total = columns.iter().map(|column| column.width() + GAP.len()).sum::<usize>() - GAP.len();
        let most = columns.iter().map(|column| column.expendable).max().unwrap_or(0);
        if total <= limit || most == 0 {
            return (columns, hidden);
        }
        let (kept, dropped): (Vec<_>, Vec<_>) = columns.into_iter().partition(|it| it.expendable != most);
        // The spread of a figure is dropped with it, and is not listed.
        hidden.splice(0..0, dropped.iter().map(|it| it.heading).filter(|heading| *heading != SPREAD));
        columns = kept;
    }
}

const SPREAD: &str = "±";
const CPU: &str = "CPU ns";

fn all_columns(rows: &[Row], comparisons: Option<&Comparisons>) -> Vec<Column> {
    let micro = |ns: Option<u64>| ns.map_or_else(unknown, |ns| microseconds(ns as f64));
    let each = |ns: Option<f64>| ns.map_or_else(unknown, digits);
    let mut columns = vec![Column::text("op", rows, |row| row.key.operation.clone())];
    columns.push(Column::number("size", 0, rows, |row| units::size(row.key.size_bytes)));
    if varies(rows, |key| key.depth) {
        columns.push(Column::number("depth", 0, rows, |row| row.key.depth.to_string()));
    }
    if varies(rows, |key| key.queues) {
        columns.push(Column::number("queues", 0, rows, |row| row.key.queues.to_string()));
    }
    if varies(rows, |key| key.rails.clone()) {
        columns.push(Column::text("rails", rows, |row| row.key.rails.join("+")));
    }
    columns.push(Column::number("Gb/s", 0, rows, |row| digits(row.median.bits_per_second / 1e9)));
    columns.push(Column::number(SPREAD, 0, rows, rate_spread));
    if let Some(comparisons) = comparisons {
        let ratio = |row: &Row| comparisons.of(row).map_or_else(unknown, Comparison::ratio);
        columns.push(Column::number("×old", 0, rows, ratio));
    }
    let gibibytes = |row: &Row| digits(row.median.bits_per_second / 8.0 / f64::from(1 << 30));
    columns.push(Column::number("GiB/s", 7, rows, gibibytes));
    let rate = |row: &Row| units::operation_rate(row.median.operations_per_second).replace("/s", "");
    columns.push(Column::number("op/s", 3, rows, move |row| rate(row).trim_end().to_owned()));
    columns.push(Column::number("p50 µs", 1, rows, |row| micro(row.median.latency_p50_ns)));
    columns.push(Column::number(SPREAD, 6, rows, latency_spread));
    columns.push(Column::number("p99 µs", 2, rows, |row| micro(row.median.latency_p99_ns)));
    columns.push(Column::number("max µs", 4, rows, |row| micro(row.median.latency_max_ns)));
    columns.push(Column::number(CPU, 5, rows, |row| each(row.median.cpu_here_ns_per_operation)));
    columns.push(Column::number("peer ns", 5, rows, |row| each(row.median.cpu_peer_ns_per_operation)));
    columns
}

fn rate_spread(row: &Row) -> String {
    let [min, median, max] =
        [&row.spread.min, &row.median, &row.spread.max].map(|figures| figures.operations_per_second);
    spread(row, Some([min, median, max]))
}

fn latency_spread(row: &Row) -> String {
    let [min, median, max] = [&row.spread.min, &row.median, &row.spread.max]
        .map(|figures| figures.latency_p50_ns.map(|ns| ns as f64));
    spread(row, min.zip(median).zip(max).map(|((min, median), max)| [min, median, max]))
}

/// Formats the spread. A single repetition has none.
fn spread(row: &Row, figures: Option<[f64; 3]>) -> String {
    match figures {
        Some([min, median, max]) if row.repetitions.len() > 1 => percent(deviation(min, median, max)),
        _ => unknown(),
    }
}

fn unknown() -> String {
    "-".to_owned()
}

fn varies<T: PartialEq>(rows: &[Row], of: impl Fn(&Key) -> T) -> bool {
    rows.windows(2).any(|pair| of(&pair[0].key) != of(&pair[1].key))
}

/// Describes what is the same for every row.
fn shared(report: &BenchReport) -> String {
    let rows = &report.rows;
    let mut parts = vec![format!("bench {}", report.head.peer.address)];
    let mut operations: Vec<&str> = Vec::new();
    for row in rows {
        if !operations.contains(&row.key.operation.as_str()) {
            operations.push(&row.key.operation);
        }
    }
    if let Some(Row { key, .. }) = rows.first() {
        if !varies(rows, |key| key.rails.clone()) {
            let rails: Vec<String> = key.rails.iter().map(|rail| report.head.rail_words(rail)).collect();
            parts[0].push_str(&format!(" over {}", rails.join(" + ")));
        }
        parts[0].push_str(&format!(": {}", operations.join(", ")));
        if !varies(rows, |key| key.depth) {
            parts.push(format!("depth {}", key.depth));
        }
        if !varies(rows, |key| key.queues) {
            parts.push(format!("{} queue{}", key.queues, if key.queues == 1 { "" } else { "s" }));
        }
    }
    parts.extend(report.parameters.queue_pair.map(|args| format!("verbs queue pairs: {}", args.words())));
    let marks = report.head.tuning_words();
    parts.extend(marks.strip_prefix(", ").map(str::to_owned));
    let (count, each) = (report.parameters.repetitions, report.parameters.duration_ns as f64);
    parts.push(match count {
        1 => format!("1 repetition of {}", units::duration(each)),
        count => format!("median of {count} × {}", units::duration(each)),
    });
    parts.join(", ")
}

fn notes(report: &BenchReport, hidden: &[&str], width: Option<u16>, paint: Paint) -> String {
    let mut notes = Vec::new();
    if report.parameters.repetitions > 1 {
        notes.push("±: largest deviation of a repetition from the median.".to_owned());
    }
    let timed: Vec<&Row> = report.rows.iter().filter(|row| row.median.latency_p50_ns.is_some()).collect();
    let mut kinds: Vec<_> = timed.iter().map(|row| row.latency_of).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in &kinds {
        let mut operations: Vec<_> = timed
            .iter()
            .filter(|row| row.latency_of == *kind)
            .map(|row| row.key.operation.as_str())
            .collect();
        operations.dedup();
        let of = if kinds.len() > 1 { format!(" of {}", operations.join(", ")) } else { String::new() };
        notes.push(format!("Latency{of}: {}.", kind.label()));
    }
    if !hidden.contains(&CPU) {
        notes.push("CPU ns, peer ns: CPU time per operation of client and server.".to_owned());
    }
    if !hidden.is_empty() {
        notes.push(format!("Not shown: {}. Use a wider terminal, --csv or --json.", hidden.join(", ")));
    }
    let mut text = folded("", &notes.join(" "), width);
    if let Some(comparisons) = &report.comparisons {
        text.push_str(&comparisons.notes(width));
    }
    if report.head.is_interrupted {
        text.push_str(&folded("", INTERRUPTED, width));
    }
    text.lines().map(|line| paint.faint(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::super::against::Against;
    use super::super::sample;
    use super::*;

    /// Returns a report of few rows, so that a test can state its text.
    fn report(rows: Vec<Row>) -> BenchReport {
        BenchReport { rows, ..sample::report() }
    }

    fn few() -> Vec<Row> {
        vec![
            sample::row("write", 8, 16, &[8.4e6, 8.2e6, 8.5e6]),
            sample::row("write", 65536, 16, &[186e3, 186e3, 180e3]),
            sample::row("read", 8, 16, &[6.1e6, 6.1e6, 6.3e6]),
            sample::row("read", 65536, 16, &[185e3, 181e3, 186e3]),
        ]
    }

    #[test]
    fn what_all_rows_share_is_said_once_and_columns_are_dropped_until_they_fit() {
        assert_eq!(
            render(&report(few()), Some(60), Paint::PLAIN),
            "\
bench storage-7:18520 over mlx5_0 (RDMA): write, read, depth
16, 1 queue, median of 3 × 1.00 s

op       size   Gb/s      ±    op/s  p50 µs  p99 µs  max µs
write     8 B  0.538  2.4 %  8.40 M    1.91    2.67    19.0
write  64 KiB   97.5  3.2 %   186 k    86.0     120     860

read      8 B  0.390  3.3 %  6.10 M    2.62    3.67    26.2
read   64 KiB   97.0  2.2 %   185 k    86.5     121     865

±: largest deviation of a repetition from the median.
Latency: post to completion. Not shown: CPU ns, peer ns,
GiB/s. Use a wider terminal, --csv or --json.
"
        );
    }

    #[test]
    fn with_room_for_all_nothing_is_left_out() {
        let mut rows = few();
        rows[3].key.rails = vec!["mlx5_0".to_owned(), "mlx5_1".to_owned()];
        rows[3].key.queues = 4;
        rows[3].key.depth = 64;
        assert_eq!(
            render(&report(rows), None, Paint::PLAIN),
            "\
bench storage-7:18520: write, read, median of 3 × 1.00 s

op       size  depth  queues  rails           Gb/s      ±   GiB/s    op/s  p50 µs      ±  p99 µs  max µs  CPU ns  peer ns
write     8 B     16       1  mlx5_0         0.538  2.4 %  0.0626  8.40 M    1.91  2.4 %    2.67    19.0     180    0.250
write  64 KiB     16       1  mlx5_0          97.5  3.2 %    11.4   186 k    86.0  3.3 %     120     860     246    0.250

read      8 B     16       1  mlx5_0         0.390  3.3 %  0.0454  6.10 M    2.62  3.2 %    3.67    26.2     180    0.250

read   64 KiB     64       4  mlx5_0+mlx5_1   97.0  2.2 %    11.3   185 k    86.5  2.2 %     121     865     246    0.250

±: largest deviation of a repetition from the median. Latency: post to completion. CPU ns, peer ns: CPU time per operation of client and server.
"
        );
    }

    #[test]
    fn a_ratio_that_may_be_chance_is_marked() {
        let mut report = report(few()[..3].to_vec());
        let earlier = vec![
            sample::row("write", 8, 16, &[8.3e6, 8.2e6, 8.5e6]),
            sample::row("write", 65536, 16, &[200e3, 201e3, 202e3]),
        ];
        report.comparisons = Some(Against::new("base.json", earlier).compare(&report.rows));
        assert_eq!(
            render(&report, Some(60), Paint::PLAIN),
            "\
bench storage-7:18520 over mlx5_0 (RDMA): write, read, depth
16, 1 queue, median of 3 × 1.00 s

op       size   Gb/s      ±   ×old    op/s  p50 µs  p99 µs
write     8 B  0.538  2.4 %  ≈1.01  8.40 M    1.91    2.67
write  64 KiB   97.5  3.2 %   0.93   186 k    86.0     120

read      8 B  0.390  3.3 %      -  6.10 M    2.62    3.67

±: largest deviation of a repetition from the median.
Latency: post to completion. Not shown: max µs, CPU ns, peer
ns, GiB/s. Use a wider terminal, --csv or --json.
×old: operations per second relative to base.json; ≈ if the
repetitions of both runs overlap.
Not in the earlier run: read 8 B, depth 16, mlx5_0.
"
        );
    }

    #[test]
    fn one_repetition_says_that_it_has_no_spread() {
        let mut report = report(vec![sample::row("write", 8, 16, &[8.4e6])]);
        report.parameters.repetitions = 1;
        report.head.is_interrupted = true;
        assert_eq!(
            render(&report, Some(60), Paint::PLAIN),
            "\
bench storage-7:18520 over mlx5_0 (RDMA): write, depth 16, 1
queue, 1 repetition of 1.00 s

op     size   Gb/s  ±    op/s  p50 µs  p99 µs  max µs
write   8 B  0.538  -  8.40 M    1.91    2.67    19.0

Latency: post to completion. Not shown: CPU ns, peer ns,
GiB/s. Use a wider terminal, --csv or --json.
Interrupted: the remaining rows were not measured.
"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let mut report = sample::report();
        report.comparisons = Some(Against::new("base.json", sample::report().rows).compare(&report.rows));
        for width in [50, 80, 200] {
            for line in render(&report, Some(width), Paint::PLAIN).lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
                assert_eq!(line.trim_end(), line);
            }
        }
    }

    #[test]
    fn nothing_measured_is_said() {
        let text = render(&report(Vec::new()), Some(80), Paint::PLAIN);
        assert_eq!(text, "bench storage-7:18520: nothing was measured\n");
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let mut row = sample::row("write", 8, 16, &[8.4e6]);
        for figures in [&mut row.median, &mut row.spread.min, &mut row.spread.max] {
            figures.latency_p50_ns = None;
            figures.cpu_peer_ns_per_operation = None;
        }
        let text = render(&report(vec![row]), None, Paint::PLAIN);
        let line = "write   8 B  0.538  -  0.0626  8.40 M       -  -    2.67    19.0     180        -";
        assert_eq!(text.lines().nth(3), Some(line));
        assert!(!text.contains("Latency:"), "{text}");
    }
}
