//! Tables of combinations that take longer than one test run: each run tries some, from a different
//! start.

#![expect(clippy::print_stderr, reason = "a failure is replayed by the line printed before it")]

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

/// Runs combinations of a table until the time is over, each `step` numbers after the last one, and
/// prints each before it runs.
///
/// `step` and `combinations` have no common divisor, so each combination is visited once before the
/// first recurs. Environment variables:
///
/// - `FARREACH_TABLE_SECONDS`: the time; 20 by default.
/// - `FARREACH_TABLE_FROM`: the first combination, to replay a failure; by default the clock
///   determines it.
/// - `FARREACH_TABLE_COUNTS`: a file to which a line with the number of combinations is appended.
pub fn try_combinations(
    combinations: usize,
    step: usize,
    describe: impl Fn(usize) -> String,
    mut run: impl FnMut(usize),
) {
    let number =
        |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("the value is a number"));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let from = number("FARREACH_TABLE_FROM").unwrap_or(now) as usize % combinations;
    let time = Duration::from_secs(number("FARREACH_TABLE_SECONDS").unwrap_or(20));
    let (start, mut tried) = (Instant::now(), 0);
    while start.elapsed() < time {
        let index = (from + tried * step) % combinations;
        eprintln!("{:5} ms, combination {index}: {}", start.elapsed().as_millis(), describe(index));
        run(index);
        tried += 1;
    }
    eprintln!("{tried} combinations of a table of {combinations} were tried");
    if let Some(file) = env::var_os("FARREACH_TABLE_COUNTS") {
        let mut counts =
            OpenOptions::new().create(true).append(true).open(file).expect("the file is writable");
        writeln!(counts, "{tried}").expect("the file is writable");
    }
}
