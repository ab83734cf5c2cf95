//! Displays the progress of a command on stderr. It is cleared before the result is printed.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::sparkline::Sparkline;
use crate::report::SCHEMA_VERSION;
use crate::terminal::{self, harmless};
use crate::units;

/// Short enough to follow, and long enough for a log.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Short enough to look continuous.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

/// In 80 columns, the text beside the bar takes up to 54.
const BAR: &str = "{bar:24} {msg}";

/// Progress of filling memory: bytes, rate, time left.
#[derive(Debug)]
pub(crate) struct FillProgress {
    place: Place,
    total_bytes: u64,
    started: Instant,
    told: Instant,
}

impl FillProgress {
    /// Starts now. `is_json` states that the result is JSON.
    pub(crate) fn new(total_bytes: u64, is_json: bool) -> Self {
        let place = Place::stderr(is_json, total_bytes, BAR);
        Self::at(place, total_bytes, Instant::now())
    }

    fn at(place: Place, total_bytes: u64, now: Instant) -> Self {
        Self { place, total_bytes, started: now, told: now }
    }

    /// Reports the bytes done so far. May be called at any rate.
    pub(crate) fn tick(&mut self, done_bytes: u64) {
        self.tick_at(done_bytes, Instant::now());
    }

    fn tick_at(&mut self, done_bytes: u64, now: Instant) {
        if now.duration_since(self.told) < self.place.interval() {
            return;
        }
        self.told = now;
        let line = self.line(done_bytes, now.duration_since(self.started));
        self.place.show(done_bytes, line);
    }

    fn line(&self, done_bytes: u64, elapsed: Duration) -> String {
        let rate = done_bytes as f64 / elapsed.as_secs_f64();
        let (done, total) = (units::amount(done_bytes), units::amount(self.total_bytes));
        let mut line = format!("{done} of {total}, {}", units::byte_rate(rate));
        if done_bytes > 0 {
            let left = self.total_bytes.saturating_sub(done_bytes) as f64 / rate;
            line.push_str(&format!(", {} left", rough(left)));
        }
        line
    }
}

/// Progress of a stream, once per interval: time, rate, and the course of the rate.
pub(crate) struct BlastProgress {
    place: Place,
    started: Instant,
    sampled: Instant,
    sampled_bytes: u64,
    interval: Duration,
    /// Receives the intervals, if a program reads them.
    lines: Option<IntervalReader>,
    rates: Sparkline,
}

type IntervalReader = Box<dyn FnMut(&Interval) + Send>;

/// One interval of `farreach blast`, as a line of JSON. Sizes are in bytes, times in ns since the
/// start. The schema is docs/schema/blast-interval.json.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Interval {
    #[cfg_attr(test, schemars(extend("const" = SCHEMA_VERSION)))]
    schema_version: u32,
    /// Always `interval`. The report has a `command` instead.
    event: &'static str,
    start_ns: u64,
    end_ns: u64,
    /// The bytes of both directions.
    bytes: u64,
    bits_per_second: f64,
}

impl BlastProgress {
    /// Starts now. `is_json` states that the result is JSON: with an interval too, each interval is
    /// printed as a line of JSON.
    pub(crate) fn new(is_json: bool, interval: Option<Duration>) -> Self {
        let mut progress = Self::at(Place::stderr(is_json, 0, "{msg}"), Instant::now());
        progress.interval = interval.unwrap_or(LINE_INTERVAL);
        progress.lines = (is_json && interval.is_some()).then(|| Box::new(print) as IntervalReader);
        progress
    }

    fn at(place: Place, now: Instant) -> Self {
        Self {
            place,
            started: now,
            sampled: now,
            sampled_bytes: 0,
            interval: LINE_INTERVAL,
            lines: None,
            rates: Sparkline::default(),
        }
    }

    /// Reports the bytes done since the start. May be called at any rate.
    pub(crate) fn tick(&mut self, done_bytes: u64) {
        self.tick_at(done_bytes, Instant::now());
    }

    fn tick_at(&mut self, done_bytes: u64, now: Instant) {
        let since = now.duration_since(self.sampled);
        if since < self.interval {
            return;
        }
        let bytes = done_bytes.saturating_sub(self.sampled_bytes);
        let bytes_per_second = bytes as f64 / since.as_secs_f64();
        if let Some(tell) = &mut self.lines {
            let ns = |time: Instant| time.duration_since(self.started).as_nanos() as u64;
            tell(&Interval {
                schema_version: SCHEMA_VERSION,
                event: "interval",
                start_ns: ns(self.sampled),
                end_ns: ns(now),
                bytes,
                bits_per_second: bytes_per_second * 8.0,
            });
        }
        (self.sampled, self.sampled_bytes) = (now, done_bytes);
        self.rates.push(bytes_per_second);
        let elapsed = clock(now.duration_since(self.started));
        let (bits, bytes) = (units::bit_rate(bytes_per_second * 8.0), units::byte_rate(bytes_per_second));
        let line = format!("{elapsed:>5}  {bits:>9}  {bytes:>10}");
        // A log has the figures in a column already.
        let course = self.place.columns().map(|columns| {
            let free = columns.saturating_sub(line.chars().count() + 3);
            self.rates.render(free)
        });
        let line = course.map_or(line.clone(), |course| format!("{line}  {course}"));
        self.place.show(done_bytes, line);
    }

    /// Clears the display, and returns the course of the rate for the result.
    pub(crate) fn finish(self) -> Sparkline {
        self.rates
    }
}

impl fmt::Debug for BlastProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlastProgress").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Prints an interval as a line of JSON, and flushes it.
fn print(interval: &Interval) {
    let line = serde_json::to_string(interval).unwrap_or_default();
    // A closed stdout does not end the command, as with its result.
    let _ = terminal::print(&format!("{line}\n"));
}

/// Progress of a ping, once a second: size, number of trips, and their latency.
#[derive(Debug)]
pub(crate) struct PingProgress {
    place: Place,
    started: Instant,
    told: Instant,
}

impl PingProgress {
    /// Starts now. `is_json` states that the result is JSON.
    pub(crate) fn new(is_json: bool) -> Self {
        Self::at(Place::stderr(is_json, 0, "{msg}"), Instant::now())
    }

    fn at(place: Place, now: Instant) -> Self {
        Self { place, started: now, told: now }
    }

    /// Reports the trips of this size so far. May be called at any rate.
    pub(crate) fn tick(&mut self, size_bytes: usize, trips: &Histogram<u64>) {
        self.tick_at(size_bytes, trips, Instant::now());
    }

    fn tick_at(&mut self, size_bytes: usize, trips: &Histogram<u64>, now: Instant) {
        // A log gets only the result.
        if now.duration_since(self.told) < LINE_INTERVAL || !matches!(self.place, Place::Screen(_)) {
            return;
        }
        self.told = now;
        let elapsed = clock(now.duration_since(self.started));
        let p50 = units::microseconds(trips.value_at_quantile(0.5) as f64);
        let size = units::size(size_bytes as u64);
        self.place.show(trips.len(), format!("{elapsed}  {size}: {} trips, p50 {p50} µs", trips.len()));
    }
}

/// Progress of a bench: the row that is being measured.
#[derive(Debug)]
pub(crate) struct BenchProgress {
    place: Place,
    total: u64,
    done: u64,
}

impl BenchProgress {
    /// Starts now, with this many rows. `is_json` states that the result is JSON.
    pub(crate) fn new(total: usize, is_json: bool) -> Self {
        let total = total as u64;
        Self { place: Place::stderr(is_json, total, BAR), total, done: 0 }
    }

    /// Starts the next row.
    pub(crate) fn tick(&mut self, row: &str) {
        self.done += 1;
        // A log gets only the result.
        if matches!(self.place, Place::Screen(_)) {
            self.place.show(self.done - 1, format!("{} of {}: {row}", self.done, self.total));
        }
    }
}

/// Progress as a line of text.
#[derive(Debug)]
pub(crate) struct LineProgress(Place);

impl LineProgress {
    /// Starts now. `is_json` states that the result is JSON.
    pub(crate) fn new(is_json: bool) -> Self {
        Self(Place::stderr(is_json, 0, "{msg}"))
    }

    /// Shows the next step.
    pub(crate) fn tick(&mut self, line: String) {
        // A log gets only the result.
        if matches!(self.0, Place::Screen(_)) {
            self.0.show(0, line);
        }
    }
}

/// Formats an elapsed time: `0:12`, `61:05`.
fn clock(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Formats a remaining time: `12 s`, `3 min 5 s`, `2 h 10 min`. More precision is of no use.
fn rough(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// The destination of progress.
enum Place {
    /// A line of a terminal, redrawn in place.
    Screen(ProgressBar),
    /// A file or pipe, which gets a line at intervals.
    Log(Box<dyn Write + Send>),
    /// No destination.
    Nowhere,
}

impl Place {
    fn stderr(is_json: bool, total: u64, template: &str) -> Self {
        let is_screen = io::stderr().is_terminal() && env::var_os("TERM").is_some_and(|term| term != "dumb");
        match (is_screen, is_json) {
            (true, _) => Self::screen(ProgressDrawTarget::stderr(), total, template),
            // A program that reads JSON may also read stderr, and take its contents for an error.
            (false, true) => Self::Nowhere,
            (false, false) => Self::Log(Box::new(io::stderr())),
        }
    }

    fn screen(target: ProgressDrawTarget, total: u64, template: &str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), target);
        // The templates are constants and covered by tests. The default style would do as well.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        }
        Self::Screen(bar)
    }

    fn interval(&self) -> Duration {
        match self {
            Self::Screen(_) => DRAW_INTERVAL,
            Self::Log(_) | Self::Nowhere => LINE_INTERVAL,
        }
    }

    /// Returns the width of the screen, or `None` without a screen.
    fn columns(&self) -> Option<usize> {
        match self {
            Self::Screen(_) => Some(
                terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0)),
            ),
            Self::Log(_) | Self::Nowhere => None,
        }
    }

    fn show(&mut self, done: u64, line: String) {
        // It may name the other side.
        let line = harmless(&line);
        match self {
            Self::Screen(bar) => {
                bar.set_position(done);
                bar.set_message(line);
            }
            // If stderr is closed, the result still goes to stdout.
            Self::Log(log) => drop(writeln!(log, "{line}")),
            Self::Nowhere => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Screen(bar) = self {
            bar.finish_and_clear();
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Screen(_) => "Screen",
            Self::Log(_) => "Log",
            Self::Nowhere => "Nowhere",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::TermLike;

    use super::*;

    /// Records what was written.
    #[derive(Debug, Clone, Default)]
    struct Paper(Arc<Mutex<String>>);

    impl Paper {
        fn text(&self) -> String {
            self.0.lock().unwrap().clone()
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A terminal of one line, with its current contents.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn text(&self) -> String {
            self.0.lock().unwrap().trim_end().to_owned()
        }

        fn place(&self, total: u64, template: &str) -> Place {
            let target = ProgressDrawTarget::term_like(Box::new(self.clone()));
            Place::screen(target, total, template)
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(text)
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().unwrap().clear();
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    const GIB: u64 = 1 << 30;

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn a_log_has_at_most_a_line_a_second() {
        let (paper, start) = (Paper::default(), Instant::now());
        let mut fill = FillProgress::at(Place::Log(Box::new(paper.clone())), 16 * GIB, start);
        for ms in (0..=2_500).step_by(10) {
            fill.tick_at(ms * GIB / 1000, after(start, ms));
        }
        drop(fill);
        assert_eq!(
            paper.text(),
            "1.00 GiB of 16.0 GiB, 1.00 GiB/s, 15 s left\n2.00 GiB of 16.0 GiB, 1.00 GiB/s, 14 s left\n"
        );
    }

    #[test]
    fn a_stream_tells_the_rate_of_the_last_second() {
        let (paper, start) = (Paper::default(), Instant::now());
        let mut blast = BlastProgress::at(Place::Log(Box::new(paper.clone())), start);
        for (ms, bytes) in [(500, GIB), (1_000, 2 * GIB), (1_900, 2 * GIB), (62_000, 3 * GIB)] {
            blast.tick_at(bytes, after(start, ms));
        }
        assert_eq!(blast.finish().render(80), "█▁");
        assert_eq!(paper.text(), " 0:01  17.2 Gb/s  2.00 GiB/s\n 1:02   141 Mb/s  16.8 MiB/s\n");
    }

    #[test]
    fn a_program_reads_each_interval() {
        let (heard, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let mut blast = BlastProgress::at(Place::Nowhere, start);
        blast.interval = Duration::from_millis(500);
        let told = Arc::clone(&heard);
        blast.lines = Some(Box::new(move |interval| told.lock().unwrap().push(*interval)));
        for (ms, bytes) in [(400, 1), (500, 1000), (900, 1500), (1_500, 3000)] {
            blast.tick_at(bytes, after(start, ms));
        }
        let interval = |start_ms: u64, end_ms: u64, bytes, bits_per_second| Interval {
            schema_version: 1,
            event: "interval",
            start_ns: start_ms * 1_000_000,
            end_ns: end_ms * 1_000_000,
            bytes,
            bits_per_second,
        };
        assert_eq!(*heard.lock().unwrap(), [interval(0, 500, 1000, 16e3), interval(500, 1500, 2000, 16e3)]);
    }

    #[test]
    fn the_schema_of_an_interval_is_what_the_type_says() {
        crate::schema::assert_current::<Interval>("blast-interval.json");
    }

    #[test]
    fn a_screen_has_one_line_and_is_empty_in_the_end() {
        let (screen, start) = (Screen::default(), Instant::now());
        let mut fill = FillProgress::at(screen.place(16 * GIB, BAR), 16 * GIB, start);
        fill.tick_at(4 * GIB, after(start, 2_000));
        assert_eq!(screen.text(), "██████▏                  4.00 GiB of 16.0 GiB, 2.00 GiB/s, 6 s left");
        drop(fill);
        assert_eq!(screen.text(), "");

        let mut blast = BlastProgress::at(screen.place(0, "{msg}"), start);
        blast.tick_at(GIB, after(start, 1_000));
        assert!(screen.text().starts_with(" 0:01  8.59 Gb/s  1.00 GiB/s  █"), "{}", screen.text());
        drop(blast);
        assert_eq!(screen.text(), "");
    }

    #[test]
    fn a_ping_tells_its_median_on_a_screen_only() {
        let (screen, paper, start) = (Screen::default(), Paper::default(), Instant::now());
        let mut trips = Histogram::new(3).unwrap();
        trips.record_n(3_410, 5_000).unwrap();
        let mut ping = PingProgress::at(screen.place(0, "{msg}"), start);
        ping.tick_at(64, &trips, after(start, 900));
        assert_eq!(screen.text(), "");
        ping.tick_at(64, &trips, after(start, 65_000));
        assert_eq!(screen.text(), "1:05  64 B: 5000 trips, p50 3.41 µs");
        drop(ping);
        assert_eq!(screen.text(), "");
        PingProgress::at(Place::Log(Box::new(paper.clone())), start).tick_at(
            64,
            &trips,
            after(start, 65_000),
        );
        assert_eq!(paper.text(), "");
    }

    #[test]
    fn what_is_being_done_is_told_on_a_screen_only() {
        let (screen, paper) = (Screen::default(), Paper::default());
        let mut line = LineProgress(screen.place(0, "{msg}"));
        line.tick("trying mlx5_0 with mlx5_3 of storage-7 (5 of 64)".to_owned());
        assert_eq!(screen.text(), "trying mlx5_0 with mlx5_3 of storage-7 (5 of 64)");
        drop(line);
        assert_eq!(screen.text(), "");
        LineProgress(Place::Log(Box::new(paper.clone()))).tick("trying".to_owned());
        assert_eq!(paper.text(), "");
    }

    #[test]
    fn nobody_is_told_what_nobody_reads() {
        let start = Instant::now();
        let mut fill = FillProgress::at(Place::Nowhere, GIB, start);
        fill.tick_at(GIB, after(start, 5_000));
        drop(fill);
        // Tests have no terminal as stderr, unless a developer runs them.
        if !io::stderr().is_terminal() {
            assert_eq!(format!("{:?}", Place::stderr(true, 1, BAR)), "Nowhere");
            assert_eq!(format!("{:?}", Place::stderr(false, 1, BAR)), "Log");
        }
    }

    #[test]
    fn waiting_is_told_roughly() {
        assert_eq!(
            [0.4, 59.4, 59.6, 185.0, 7_800.0].map(rough),
            ["0 s", "59 s", "1 min 0 s", "3 min 5 s", "2 h 10 min"]
        );
    }
}
