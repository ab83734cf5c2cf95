//! Draws the cost of an operation over a count as SVG: text, on its own background, so that it reads
//! the same on a light and on a dark page.

use crate::pictures::svg::{GROUND, TEXT, escaped};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
/// The area of the curve. Labels are to the left of it and below.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 724.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = 318.0;

const FAINT: &str = "#9aa0aa";
const GRID: &str = "#2b2f38";
const COST: &str = "#79b8ff";
const LIMIT: &str = "#ff7b72";

/// One plot.
#[derive(Debug)]
pub(super) struct Plot<'a> {
    pub(super) title: &'a str,
    /// What is counted on the horizontal axis, which is logarithmic.
    pub(super) across: &'a str,
    /// The costs at ascending counts, of which none is 0.
    pub(super) points: &'a [(u64, u64)],
    /// The cost at a count may be so many times the least cost at a smaller one.
    pub(super) growth_max: f64,
}

impl Plot<'_> {
    /// Returns the image. It depends on the points only.
    pub(super) fn render(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif\" font-size=\"13\">\n\
             <title>{}</title>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{GROUND}\"/>\n",
            escaped(self.title)
        );
        svg.push_str(&text((LEFT, 32.0), "start", TEXT, 16, self.title));
        self.legend(&mut svg);
        self.axes(&mut svg);
        self.curves(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn legend(&self, svg: &mut String) {
        let y = 57.0;
        svg.push_str(&line((LEFT, y), (LEFT + 22.0, y), COST, "2.5", ""));
        svg.push_str(&text((LEFT + 30.0, y + 4.5), "start", TEXT, 13, "instructions"));
        let x = LEFT + 140.0;
        svg.push_str(&line((x, y), (x + 22.0, y), LIMIT, "1.5", "5 4"));
        let limit = format!("limit: {} times the least at a smaller count", self.growth_max);
        svg.push_str(&text((x + 30.0, y + 4.5), "start", TEXT, 13, &limit));
    }

    fn axes(&self, svg: &mut String) {
        let step = step(self.most());
        for tick in 0..=self.ticks() {
            let (value, y) = (tick * step, self.y((tick * step) as f64));
            svg.push_str(&line((LEFT, y), (RIGHT, y), if tick == 0 { FAINT } else { GRID }, "1", ""));
            svg.push_str(&text((LEFT - 10.0, y + 4.5), "end", FAINT, 13, &grouped(value)));
        }
        for &(count, _) in self.points {
            let x = self.x(count);
            svg.push_str(&line((x, BOTTOM), (x, BOTTOM + 5.0), FAINT, "1", ""));
            svg.push_str(&text((x, BOTTOM + 21.0), "middle", FAINT, 13, &grouped(count)));
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        svg.push_str(&text((middle, BOTTOM + 45.0), "middle", TEXT, 13, self.across));
    }

    fn curves(&self, svg: &mut String) {
        let limits = self.limits();
        // Each limit holds between the middles to its neighbours.
        let mut corners = Vec::new();
        for (index, &(count, limit)) in limits.iter().enumerate() {
            let x = self.x(count);
            let (from, to) = (
                index.checked_sub(1).map_or(x - 22.0, |before| f64::midpoint(self.x(limits[before].0), x)),
                limits.get(index + 1).map_or(x + 22.0, |next| f64::midpoint(x, self.x(next.0))),
            );
            corners.extend([(from.max(LEFT), self.y(limit)), (to, self.y(limit))]);
        }
        svg.push_str(&polyline(&corners, LIMIT, "1.5", "5 4"));
        let points: Vec<(f64, f64)> =
            self.points.iter().map(|&(count, cost)| (self.x(count), self.y(cost as f64))).collect();
        svg.push_str(&polyline(&points, COST, "2.5", ""));
        for (index, (&(x, y), &(_, cost))) in points.iter().zip(self.points).enumerate() {
            svg.push_str(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{COST}\"/>\n"));
            // Below the curve, because the limit is above it, unless the axis or the curve is there.
            let falls = points.get(index + 1).is_some_and(|next| next.1 > y + 20.0);
            let base = if falls || y + 20.0 > BOTTOM { y - 10.0 } else { y + 19.0 };
            let (label, height) = (grouped(cost), 14.0);
            let width = label.len() as f64 * 7.0 + 4.0;
            // On a ground of its own, so that no line of the grid crosses it.
            svg.push_str(&format!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{GROUND}\"/>\n",
                x - width / 2.0,
                base - 11.0
            ));
            svg.push_str(&text((x, base), "middle", TEXT, 12, &label));
        }
    }

    /// Returns the limit at each count but the first.
    fn limits(&self) -> Vec<(u64, f64)> {
        let mut least = u64::MAX;
        let mut limits = Vec::new();
        for &(count, cost) in self.points {
            if least < u64::MAX {
                limits.push((count, least as f64 * self.growth_max));
            }
            least = least.min(cost);
        }
        limits
    }

    /// Returns the largest value that is drawn.
    fn most(&self) -> f64 {
        let costs = self.points.iter().map(|&(_, cost)| cost as f64);
        costs.chain(self.limits().iter().map(|&(_, limit)| limit)).fold(1.0, f64::max)
    }

    /// Returns the number of steps of the vertical axis.
    fn ticks(&self) -> u64 {
        (self.most() / step(self.most()) as f64).ceil() as u64
    }

    fn x(&self, count: u64) -> f64 {
        let last = self.points.last().map_or(1, |&(count, _)| count).max(2);
        let (from, to) = (LEFT + 34.0, RIGHT - 34.0);
        from + (count as f64).ln() / (last as f64).ln() * (to - from)
    }

    fn y(&self, value: f64) -> f64 {
        let top = (self.ticks() * step(self.most())) as f64;
        BOTTOM - value / top * (BOTTOM - TOP)
    }
}

/// Returns a round step of which five or fewer reach so far.
fn step(most: f64) -> u64 {
    let mut unit = 1;
    loop {
        for factor in [1, 2, 5] {
            if most <= (5 * unit * factor) as f64 {
                return unit * factor;
            }
        }
        unit *= 10;
    }
}

/// Returns a number with its thousands apart.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn text((x, y): (f64, f64), anchor: &str, colour: &str, size: u32, words: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{colour}\">{}</text>\n",
        escaped(words)
    )
}

fn line(from: (f64, f64), to: (f64, f64), colour: &str, width: &str, dashes: &str) -> String {
    polyline(&[from, to], colour, width, dashes)
}

fn polyline(points: &[(f64, f64)], colour: &str, width: &str, dashes: &str) -> String {
    let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
    format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"{dashes}/>\n",
        points.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: &[(u64, u64)]) -> Plot<'_> {
        Plot { title: "a < b", across: "peers", points, growth_max: 1.3 }
    }

    #[test]
    fn everything_is_within_the_area() {
        for points in [
            &[(1, 5000), (10, 5100), (10_000, 5200)][..],
            &[(1, 900), (10, 90), (1_000_000, 70)],
            &[(1, 100), (1000, 12_345_678)],
            &[(1, 1)],
            &[],
        ] {
            let plot = plot(points);
            for (count, value) in
                points.iter().map(|&(count, cost)| (count, cost as f64)).chain(plot.limits())
            {
                assert!((LEFT..=RIGHT).contains(&plot.x(count)), "{points:?}");
                assert!((TOP - 0.01..=BOTTOM).contains(&plot.y(value)), "{points:?}");
            }
            let svg = plot.render();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n"), "{svg}");
        }
    }

    #[test]
    fn the_limit_is_that_of_the_least_before() {
        let plot = plot(&[(1, 100), (10, 80), (100, 90)]);
        assert_eq!(plot.limits(), [(10, 130.0), (100, 104.0)]);
    }

    #[test]
    fn axes_have_round_steps() {
        assert_eq!([4.0, 5.0, 6.0, 11.0, 7300.0, 26_000.0].map(step), [1, 1, 2, 5, 2000, 10_000]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
