//! Runs two programs alternately while other processes are idle.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::load::Load;
use super::spread::ratio;
use crate::cell::Cell;
use crate::process::output;

/// A round does not count if other processes used more of a core than this, unless all count.
const OTHERS_MAX: f64 = 0.15;

/// How long to observe other processes before a round, how often, and the pause in between.
const LOOK: Duration = Duration::from_millis(300);
const LOOKS_MAX: usize = 20;
const WAIT: Duration = Duration::from_millis(700);

/// The maximum number of rounds, as a multiple of the rounds that have to count.
const TRIES: usize = 3;

/// A number in the result of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measure {
    /// The name in the result.
    pub(super) field: &'static str,
    /// The number of significant digits after the point.
    pub(super) digits: usize,
}

impl Measure {
    pub(super) const GB_PER_S: Self = Self { field: "gb_per_s", digits: 2 };
    pub(super) const HALF_RTT_US: Self = Self { field: "half_rtt_us", digits: 2 };
    pub(super) const RTT_US: Self = Self { field: "rtt_us", digits: 1 };
}

/// Two programs that do the same work, and print results in the same form.
pub(super) struct Contest<'a> {
    pub(super) cell: &'a Cell,
    /// The bare program and that of the engine.
    pub(super) programs: [&'a Path; 2],
    pub(super) words: &'a [&'a str],
    pub(super) measure: Measure,
    /// Rounds count also if other processes are busy.
    pub(super) counts_all: bool,
}

/// The results of a contest.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) measure: Measure,
    /// Of the rounds that count: the result of each program, and the ratio of the engine's to the
    /// bare one's.
    pub(super) bare: Vec<f64>,
    pub(super) engine: Vec<f64>,
    pub(super) ratios: Vec<f64>,
    pub(super) tried: usize,
}

impl Contest<'_> {
    /// Runs rounds until `rounds` of them count, or too many were tried.
    pub(super) fn hold(&self, rounds: usize) -> Result<Held> {
        let mut held = Held { measure: self.measure, bare: vec![], engine: vec![], ratios: vec![], tried: 0 };
        // The first run of each program reads it from the disk.
        self.run(0)?;
        self.run(1)?;
        while held.ratios.len() < rounds && held.tried < rounds * TRIES {
            held.tried += 1;
            if !self.counts_all {
                wait_for_quiet()?;
            }
            let before = Load::now()?;
            let bare_first = self.run(0)?;
            let engine = [self.run(1)?, self.run(1)?];
            let bare = [bare_first, self.run(0)?];
            if before.others_since()? > OTHERS_MAX && !self.counts_all {
                continue;
            }
            held.ratios.push(ratio(&engine, &bare));
            held.bare.extend(bare);
            held.engine.extend(engine);
        }
        if held.ratios.is_empty() {
            bail!(
                "other processes used more than {OTHERS_MAX} of a core in each of {} rounds\nfix: \
                 measure when the machine is idle, or use --busy",
                held.tried
            );
        }
        Ok(held)
    }

    /// Runs one program once, with a priority above that of other processes, so that they slow
    /// neither program down.
    fn run(&self, which: usize) -> Result<f64> {
        let program = self.programs[which].to_str().context("the path is not valid UTF-8")?;
        let words = [&["chrt", "--rr", "10", program], self.words].concat();
        let told = output(&mut self.cell.command(Path::new("/tmp"), &words))?;
        number(&told, self.measure.field)
    }
}

/// Waits until other processes are idle, for a limited time.
fn wait_for_quiet() -> Result<()> {
    for _ in 0..LOOKS_MAX {
        let before = Load::now()?;
        thread::sleep(LOOK);
        if before.others_since()? <= OTHERS_MAX {
            break;
        }
        thread::sleep(WAIT);
    }
    Ok(())
}

/// Returns a number from the JSON line of a program.
fn number(told: &str, field: &str) -> Result<f64> {
    let line = told
        .lines()
        .find(|line| line.starts_with('{'))
        .with_context(|| format!("the program printed no result: {told}"))?;
    let result: Value =
        serde_json::from_str(line).with_context(|| format!("the result is not JSON: {line}"))?;
    let number = result[field].as_f64().with_context(|| format!("the result has no {field}: {line}"))?;
    ensure!(number > 0.0 && number.is_finite(), "{field} cannot be {number}");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_a_line_of_json_among_others() {
        let told = "connecting\n{\"test\":\"write\",\"gb_per_s\":1.5}\n";
        assert_eq!(number(told, "gb_per_s").unwrap(), 1.5);
        for (told, field) in
            [("", "x"), ("{\"x\":\"fast\"}", "x"), ("{\"x\":0}", "x"), ("{\"y\":1}", "x"), ("{", "x")]
        {
            assert!(number(told, field).is_err(), "{told}");
        }
    }
}
