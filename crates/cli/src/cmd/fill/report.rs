//! The report of `farreach fill`.

use serde::Serialize;

use super::pages::Region;
use super::{Share, Task};
use crate::report::{Head, Processors};
use crate::show::paint::Paint;
use crate::{terminal, units};

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FillReport {
    #[serde(flatten)]
    pub(crate) head: Head,
    pub(crate) page_bytes: u64,
    pub(crate) pages_per_region: u32,
    pub(crate) regions: u32,
    pub(crate) seed: u32,
    pub(crate) pages_arrived: u64,
    /// From the start signal until the counter had counted the last page.
    pub(crate) elapsed_ns: u64,
    pub(crate) bits_per_second: f64,
    /// The verified bytes of the regions, including the gaps; 0 if the test was interrupted.
    pub(crate) verified_bytes: u64,
    /// The share of each of the server's rails.
    pub(super) server_rails: Vec<Share>,
    /// Null if the test was interrupted.
    pub(crate) processors: Option<Processors>,
}

impl FillReport {
    pub(super) fn new(head: Head, task: &Task) -> Self {
        Self {
            head,
            page_bytes: task.page_bytes,
            pages_per_region: task.pages,
            regions: task.regions,
            seed: task.seed,
            pages_arrived: 0,
            elapsed_ns: 0,
            bits_per_second: 0.0,
            verified_bytes: 0,
            server_rails: Vec::new(),
            processors: None,
        }
    }

    fn bytes_per_second(&self) -> f64 {
        let bytes = (self.pages_arrived * self.page_bytes) as f64;
        if self.elapsed_ns == 0 { 0.0 } else { bytes / (self.elapsed_ns as f64 / 1e9) }
    }

    /// Computes the derived figures.
    pub(super) fn sum_up(&mut self) {
        self.bits_per_second = self.bytes_per_second() * 8.0;
    }
}

pub(super) fn text(report: &FillReport, task: &Task, is_verbose: bool, width: Option<u16>) -> String {
    let paint = Paint::for_stdout();
    let place =
        if report.regions == 1 { "1 region".to_owned() } else { format!("{} regions", report.regions) };
    let head = format!("fill from {}: pages into {place}", report.head.over());
    let mut text = terminal::folded("", &head, width);
    let bytes = report.pages_arrived * report.page_bytes;
    let pages = format!(
        "{} pages of {}: {} in {}",
        report.pages_arrived,
        units::size(report.page_bytes),
        units::amount(bytes),
        units::duration(report.elapsed_ns as f64)
    );
    text.push_str(&terminal::folded("written   ", &pages, width));
    let rate = report.bytes_per_second();
    let figure = format!("{}, {}", units::bit_rate(rate * 8.0), units::byte_rate(rate));
    text.push_str(&format!("rate      {}\n", paint.figure(&figure)));
    for share in &report.server_rails {
        let Share { rail, operations, bytes, immediates } = share;
        let by =
            format!("{rail}: {} in {operations} writes, {immediates} with immediate", units::amount(*bytes));
        text.push_str(&terminal::folded("rail      ", &by, width));
    }
    if let Some(processors) = &report.processors {
        text.push_str(&format!("CPU       {}\n", processors.words()));
    }
    if report.head.is_interrupted {
        text.push_str(&format!("verified  {}\n", paint.bad("no: the test was interrupted")));
    } else {
        text.push_str(&verified(report, width, paint));
    }
    if is_verbose {
        for number in 0..report.regions {
            text.push_str(&map(&Region::new(task, number), number, width));
        }
    }
    text
}

/// Describes what was compared: the pages, and the gaps between them, which must be unchanged.
fn verified(report: &FillReport, width: Option<u16>, paint: Paint) -> String {
    let written = report.pages_arrived * report.page_bytes;
    let gaps = report.verified_bytes.saturating_sub(written);
    let [all, written, gaps] = [report.verified_bytes, written, gaps].map(units::amount);
    let words = format!("{all}: {written} written, {gaps} of gaps unchanged");
    let seed = format!("(seed {})", report.seed);
    let lead = "verified  ";
    let is_one_line =
        width.is_none_or(|width| lead.len() + words.len() + 1 + seed.len() <= usize::from(width));
    let between = if is_one_line { " ".to_owned() } else { format!("\n{:1$}", "", lead.len()) };
    format!("{lead}{}{between}{seed}\n", paint.good(&words))
}

/// Up to this many pages are listed one by one.
const TOLD_ONE_BY_ONE: usize = 64;

/// The maximum number of rows of a map. More are not readable.
const ROWS_MAX: usize = 8;

/// Renders a map of the pages of a region. Each mark stands for one place, or for several if there
/// are many.
fn map(region: &Region, number: u32, width: Option<u16>) -> String {
    let pages = region.places.len();
    let mut text = format!("\nregion {number}: {pages} pages in {} places\n", region.place_count);
    let columns = usize::from(width.unwrap_or(80)).saturating_sub(2).max(8);
    let per_mark = (region.place_count as usize).div_ceil(columns * ROWS_MAX).max(1);
    let mut filled = vec![0; (region.place_count as usize).div_ceil(per_mark)];
    for place in &region.places {
        filled[*place as usize / per_mark] += 1;
    }
    let mark = |count: &usize| match count * 4 / per_mark {
        0 if *count == 0 => '·',
        0 | 1 => '░',
        2 => '▒',
        3 => '▓',
        _ => '█',
    };
    for row in filled.chunks(columns) {
        text.push_str(&format!("  {}\n", row.iter().map(mark).collect::<String>()));
    }
    if per_mark > 1 {
        text.push_str(&format!("  each mark is {per_mark} places: · none written, █ all written\n"));
    }
    if pages <= TOLD_ONE_BY_ONE {
        let told: Vec<String> =
            region.places.iter().enumerate().map(|(page, place)| format!("{page}→{place}")).collect();
        text.push_str(&terminal::folded("  page→place: ", &told.join(" "), width));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_shows_every_page_and_what_is_empty() {
        let task = Task { page_bytes: 1, pages: 8, regions: 1, seed: 1, alter_byte: false };
        let text = map(&Region::new(&task, 0), 0, Some(80));
        assert_eq!(text.matches('█').count(), 8, "{text}");
        assert_eq!(text.matches('·').count(), 2, "{text}");
        assert_eq!(text.matches('→').count(), 9, "{text}");
    }

    #[test]
    fn both_amounts_are_told_and_fit_the_screen() {
        let task = Task { page_bytes: 65536, pages: 1024, regions: 2, seed: u32::MAX, alter_byte: false };
        let mut report = FillReport::new(crate::report::tests::head("fill"), &task);
        (report.pages_arrived, report.verified_bytes) = (2048, 2048 * 65536 / 4 * 5);
        let line = |width| verified(&report, Some(width), Paint::PLAIN);
        let words = "verified  160 MiB: 128 MiB written, 32.0 MiB of gaps unchanged";
        assert_eq!(line(80), format!("{words} (seed 4294967295)\n"));
        assert_eq!(line(70), format!("{words}\n          (seed 4294967295)\n"));
    }

    #[test]
    fn a_map_of_many_places_stays_small() {
        let task = Task { page_bytes: 1, pages: 100_000, regions: 1, seed: 1, alter_byte: false };
        let text = map(&Region::new(&task, 0), 0, Some(80));
        assert!(text.lines().count() <= ROWS_MAX + 3, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn the_schema_is_what_the_type_says() {
        crate::schema::assert_current::<FillReport>("fill.json");
    }
}
