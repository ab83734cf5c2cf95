//! Draws the rows as an SVG chart: throughput by size, and latency below. It embeds no fonts; the
//! viewer's are used.

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::BenchReport;
use super::row::Row;
use super::series::{self, Series};
use crate::units;

const SIZE: (u32, u32) = (1000, 860);
const TITLE_HEIGHT: i32 = 64;
const LEGEND_WIDTH: i32 = 210;
const INK: RGBColor = RGBColor(40, 44, 52);
const GRID: RGBColor = RGBColor(225, 228, 232);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A figure of a row, if it was measured.
type Figure<'a, T> = &'a dyn Fn(&Row) -> Option<T>;

/// One of the charts.
struct Panel<'a> {
    heading: &'a str,
    /// The line: a figure of a row with its minimum and maximum.
    figure: Figure<'a, [f64; 3]>,
    /// A second, dashed line.
    beside: Option<Figure<'a, f64>>,
}

/// Returns the chart as the text of an SVG file.
pub(crate) fn render(report: &BenchReport) -> Result<String> {
    let series = series::of(&report.rows);
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&root, report, &series)
            .and_then(|()| root.present().map_err(broken))
            .context("cannot draw the chart")?;
    }
    Ok(text)
}

/// Converts an error of the drawing library, which borrows the picture and cannot be returned.
fn broken(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}

fn draw(root: &Area<'_>, report: &BenchReport, series: &[Series<'_>]) -> Result<()> {
    // A transparent background would be unreadable on a dark page.
    root.fill(&WHITE).map_err(broken)?;
    let (top, below) = root.split_vertically(TITLE_HEIGHT);
    title(&top, report)?;
    let (charts, legend) = below.split_horizontally(SIZE.0 as i32 - LEGEND_WIDTH);
    let (upper, lower) = charts.split_vertically((SIZE.1 as i32 - TITLE_HEIGHT) / 2);
    let throughput = |row: &Row| {
        Some([&row.spread.min, &row.median, &row.spread.max].map(|figures| figures.bits_per_second / 1e9))
    };
    let latency = |row: &Row| {
        let [min, median, max] = [&row.spread.min, &row.median, &row.spread.max]
            .map(|figures| figures.latency_p50_ns.map(|ns| ns as f64 / 1e3));
        Some([min?, median?, max?])
    };
    let longest = |row: &Row| row.median.latency_p99_ns.map(|ns| ns as f64 / 1e3);
    let panel = Panel { heading: "Throughput, Gb/s", figure: &throughput, beside: None };
    chart(&upper, &panel, series)?;
    let heading = format!("Latency{}, µs: p50 solid, p99 dashed", timed(&report.rows));
    let panel = Panel { heading: &heading, figure: &latency, beside: Some(&longest) };
    chart(&lower, &panel, series)?;
    draw_legend(&legend, series)
}

fn title(area: &Area<'_>, report: &BenchReport) -> Result<()> {
    let rails: Vec<_> = report.head.rails.iter().map(|rail| rail.name.as_str()).collect();
    let heading = format!("farreach bench: {} over {}", report.head.peer.address, rails.join(" + "));
    area.draw(&Text::new(heading, (24, 12), font(24))).map_err(broken)?;
    let line = format!(
        "median of {} × {}; bars from minimum to maximum",
        report.parameters.repetitions,
        units::duration(report.parameters.duration_ns as f64)
    );
    area.draw(&Text::new(line, (24, 38), font(15))).map_err(broken)
}

/// Returns the kind of latency, if it is the same for all rows.
fn timed(rows: &[Row]) -> String {
    match rows.first() {
        Some(first) if rows.iter().all(|row| row.latency_of == first.latency_of) => {
            format!(" ({})", first.latency_of.label())
        }
        _ => String::new(),
    }
}

fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Top))
}

fn chart(area: &Area<'_>, panel: &Panel<'_>, series: &[Series<'_>]) -> Result<()> {
    area.draw(&Text::new(panel.heading, (24, 4), font(17))).map_err(broken)?;
    let rows = || series.iter().flat_map(|series| &series.rows);
    let beside = |row: &Row| panel.beside.and_then(|beside| beside(row));
    let figures = rows().filter_map(|row| (panel.figure)(row)).flatten();
    let bounds = ends(figures.chain(rows().filter_map(|row| beside(row))));
    let Some(([low, high], [first, last])) = bounds.zip(ends(rows().map(|row| row.key.size_bytes as f64)))
    else {
        return area.draw(&Text::new("not measured", (94, 60), font(15))).map_err(broken);
    };
    let (low, high) = around(low, high);
    let x = (first / 1.4..last * 1.4).log_scale().with_key_points(series::sizes(series));
    let y = (low..high).log_scale().with_key_points(round_numbers(low, high));
    let mut chart = ChartBuilder::on(area)
        .margin_top(34)
        .margin_right(12)
        .margin_bottom(6)
        .x_label_area_size(34)
        .y_label_area_size(70)
        .build_cartesian_2d(x, y)
        .map_err(broken)?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(("sans-serif", 15, &INK))
        .x_label_formatter(&|bytes| units::size(bytes.round() as u64))
        .y_label_formatter(&|value| plain(*value))
        .draw()
        .map_err(broken)?;
    for Series { colour, rows, .. } in series {
        let points = || rows.iter().filter_map(|row| Some((row.key.size_bytes as f64, (panel.figure)(row)?)));
        let line = points().map(|(size, [_, median, _])| (size, median));
        chart.draw_series(LineSeries::new(line, colour.stroke_width(2))).map_err(broken)?;
        let dots = points().map(|(size, [_, median, _])| Circle::new((size, median), 3, colour.filled()));
        chart.draw_series(dots).map_err(broken)?;
        let bars = points().map(|(size, [min, _, max])| {
            PathElement::new([(size, min), (size, max)], colour.stroke_width(1))
        });
        chart.draw_series(bars).map_err(broken)?;
        let dashed = rows.iter().filter_map(|row| Some((row.key.size_bytes as f64, beside(row)?)));
        chart.draw_series(DashedLineSeries::new(dashed, 4, 4, colour.stroke_width(1))).map_err(broken)?;
    }
    Ok(())
}

/// Draws the legend beside both charts, which have the same lines.
fn draw_legend(area: &Area<'_>, series: &[Series<'_>]) -> Result<()> {
    const TOP: i32 = 44;
    let (_, height) = area.dim_in_pixel();
    let distance = (height as i32 - TOP) / i32::try_from(series.len()).unwrap_or(i32::MAX).max(1);
    let style = font(15).pos(Pos::new(HPos::Left, VPos::Center));
    for (number, Series { label, colour, .. }) in (0..).zip(series) {
        let y = TOP + distance.min(24) * number;
        area.draw(&PathElement::new([(10, y), (38, y)], colour.stroke_width(2))).map_err(broken)?;
        area.draw(&Circle::new((24, y), 3, colour.filled())).map_err(broken)?;
        area.draw(&Text::new(label.clone(), (46, y), style.clone())).map_err(broken)?;
    }
    Ok(())
}

/// Returns the smallest and the largest positive value, or `None`. Zero has no place on a
/// logarithmic axis.
fn ends(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    let widen = |ends: Option<[f64; 2]>, value: f64| {
        let [low, high] = ends.unwrap_or([value, value]);
        Some([low.min(value), high.max(value)])
    };
    values.filter(|value| *value > 0.0).fold(None, widen)
}

/// Returns round bounds of an axis that enclose both ends.
fn around(low: f64, high: f64) -> (f64, f64) {
    let (least, most) = (low / 1.05, high * 1.05);
    let rounds =
        || (-30..30).flat_map(|decade| [1.0, 2.0, 5.0].map(|mantissa| mantissa * 10_f64.powi(decade)));
    let below = rounds().take_while(|number| *number <= least).last();
    (below.unwrap_or(least), rounds().find(|number| *number >= most).unwrap_or(most))
}

/// Returns the lines of the vertical axis: 1, 2, 5 of each decade, or the decades alone if there
/// are many.
fn round_numbers(low: f64, high: f64) -> Vec<f64> {
    let mantissas: &[f64] = if high / low > 1e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let numbers =
        decades.flat_map(|decade| mantissas.iter().map(move |mantissa| mantissa * 10_f64.powi(decade)));
    numbers.filter(|number| (low..=high).contains(number)).collect()
}

/// Formats a round number without trailing zeros.
fn plain(value: f64) -> String {
    let text = units::digits(value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn both_charts_have_every_line_with_its_name() {
        let text = render(&sample::report()).unwrap();
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"), "{text}");
        for operation in ["write", "read", "send"] {
            for depth in [1, 16, 64] {
                assert!(text.contains(&format!("{operation}, depth {depth}\n")), "{operation} {depth}");
            }
        }
        for words in
            ["storage-7:18520 over mlx5_0", "Throughput, Gb/s", "Latency (post to completion), µs", "64 KiB"]
        {
            assert!(text.contains(words), "{words}");
        }
        // A dot for each row in each chart, and one for each line in the legend.
        assert_eq!(text.matches("<circle").count(), 2 * 45 + 9);
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let mut report = sample::report();
        for row in &mut report.rows {
            row.median.latency_p50_ns = None;
            row.median.latency_p99_ns = None;
        }
        assert_eq!(render(&report).unwrap().matches("not measured").count(), 1);
        report.rows.clear();
        assert_eq!(render(&report).unwrap().matches("not measured").count(), 2);
    }

    #[test]
    fn a_name_cannot_break_the_picture() {
        let mut report = sample::report();
        report.head.peer.address = "<a>&\"b\"".to_owned();
        let text = render(&report).unwrap();
        assert!(text.contains("&lt;a&gt;&amp;") && !text.contains("<a>"), "{text}");
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(round_numbers(0.9, 100.0), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!((around(0.9, 97.0), around(3.0, 3.0)), ((0.5, 200.0), (2.0, 5.0)));
        assert_eq!(round_numbers(0.02, 97.0), [0.1, 1.0, 10.0]);
        assert_eq!([0.1, 1.0, 20.0, 1000.0].map(plain), ["0.1", "1", "20", "1000"]);
    }
}
