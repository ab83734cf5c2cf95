//! Runs two programs alternately while other processes are idle.

use std::fmt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::load::Load;
use super::spread::ratio;
use crate::cell::Cell;
use crate::process::output;

/// A round does not count if other processes used more of a core than this.
pub(super) const OTHERS_MAX: f64 = 0.15;

/// Returns how much of a core other processes may use in a round that counts.
pub(super) fn others_max(is_busy: bool) -> f64 {
    if is_busy { f64::INFINITY } else { OTHERS_MAX }
}

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
    /// The commands of the bare program and of the engine's.
    pub(super) commands: [&'a [&'a str]; 2],
    pub(super) measure: Measure,
    /// The bytes that each run must report to have moved, if it moves any.
    pub(super) bytes: Option<u64>,
    /// How much of a core other processes may use in a round that counts.
    pub(super) others_max: f64,
}

/// The context of an error of the bare program, or of what the engine is compared with.
#[derive(Debug)]
pub(super) struct BareFailed;

impl fmt::Display for BareFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the program that the engine is compared with failed")
    }
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
    /// How much of a core other processes used in each of these rounds, if that was observed.
    pub(super) others: Vec<f64>,
    pub(super) tried: usize,
}

impl Contest<'_> {
    /// Runs rounds until `rounds` of them count, or too many were tried.
    pub(super) fn hold(&self, rounds: usize) -> Result<Held> {
        let mut held = Held::nothing(self.measure);
        // The first run of each program reads it from the disk.
        self.run(0)?;
        self.run(1)?;
        while held.ratios.len() < rounds && held.tried < rounds * TRIES {
            held.tried += 1;
            wait_for_quiet(self.others_max)?;
            let before = Load::now()?;
            let bare_first = self.run(0)?;
            let engine = [self.run(1)?, self.run(1)?];
            let bare = [bare_first, self.run(0)?];
            let others = before.others_since()?;
            if others > self.others_max {
                continue;
            }
            held.others.push(others);
            held.ratios.push(ratio(&engine, &bare));
            held.bare.extend(bare);
            held.engine.extend(engine);
        }
        if held.ratios.is_empty() {
            bail!(
                "other processes used more than {} of a core in each of {} rounds\nfix: measure when the \
                 machine is idle, or use --busy",
                self.others_max,
                held.tried
            );
        }
        Ok(held)
    }

    /// Runs one program once, with a priority above that of other processes, so that they slow
    /// neither program down.
    fn run(&self, which: usize) -> Result<f64> {
        let words = [&["chrt", "--rr", "10"], self.commands[which]].concat();
        let told = output(&mut self.cell.command(Path::new("/tmp"), &words));
        let number = told.and_then(|told| figure(&told, self.measure.field, self.bytes));
        if which == 0 { number.context(BareFailed) } else { number }
    }
}

impl Held {
    /// Returns a contest without a round.
    pub(super) fn nothing(measure: Measure) -> Self {
        Self { measure, bare: vec![], engine: vec![], ratios: vec![], others: vec![], tried: 0 }
    }
}

/// Waits until other processes are idle, for a limited time.
fn wait_for_quiet(others_max: f64) -> Result<()> {
    for _ in 0..LOOKS_MAX {
        let before = Load::now()?;
        thread::sleep(LOOK);
        if before.others_since()? <= others_max {
            break;
        }
        thread::sleep(WAIT);
    }
    Ok(())
}

/// Returns a number from the JSON line of a program, which must have moved `bytes`.
fn figure(told: &str, field: &str, bytes: Option<u64>) -> Result<f64> {
    let line = told
        .lines()
        .find(|line| line.starts_with('{'))
        .with_context(|| format!("the program printed no result: {told}"))?;
    let result: Value =
        serde_json::from_str(line).with_context(|| format!("the result is not JSON: {line}"))?;
    let number = result[field].as_f64().with_context(|| format!("the result has no {field}: {line}"))?;
    ensure!(number > 0.0 && number.is_finite(), "{field} cannot be {number}");
    if let Some(bytes) = bytes {
        let moved = result["bytes"].as_u64();
        ensure!(moved == Some(bytes), "the program moved {moved:?} instead of {bytes} bytes: {line}");
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_a_line_of_json_among_others() {
        let told = "connecting\n{\"test\":\"write\",\"gb_per_s\":1.5}\n";
        assert_eq!(figure(told, "gb_per_s", None).unwrap(), 1.5);
        for (told, field) in
            [("", "x"), ("{\"x\":\"fast\"}", "x"), ("{\"x\":0}", "x"), ("{\"y\":1}", "x"), ("{", "x")]
        {
            assert!(figure(told, field, None).is_err(), "{told}");
        }
    }

    #[test]
    fn a_result_of_other_work_is_an_error() {
        let told = "{\"bytes\": 4096, \"gb_per_s\": 1.5}";
        assert_eq!(figure(told, "gb_per_s", Some(4096)).unwrap(), 1.5);
        let error = figure(told, "gb_per_s", Some(8192)).unwrap_err().to_string();
        assert!(error.contains("instead of 8192 bytes"), "{error}");
        assert!(figure("{\"gb_per_s\": 1.5}", "gb_per_s", Some(4096)).is_err(), "no bytes are told");
        assert!(figure("{\"bytes\": -1, \"gb_per_s\": 1.5}", "gb_per_s", Some(4096)).is_err());
    }
}
