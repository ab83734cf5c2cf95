//! Two programs in turn, while nobody else is busy.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::load::Load;
use super::spread::ratio;
use crate::cell::Cell;
use crate::process::output;

/// What others may use of a core before a round does not count.
const OTHERS_MAX: f64 = 0.15;

/// How long to look before a round whether others are busy, how often, and how long to wait between.
const LOOK: Duration = Duration::from_millis(300);
const LOOKS_MAX: usize = 20;
const WAIT: Duration = Duration::from_millis(700);

/// How many times as many rounds are tried as should count.
const TRIES: usize = 3;

/// A number of a program's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measure {
    /// Its name there.
    pub(super) field: &'static str,
    /// Digits behind the point that mean something.
    pub(super) digits: usize,
}

impl Measure {
    pub(super) const GB_PER_S: Self = Self { field: "gb_per_s", digits: 2 };
    pub(super) const HALF_RTT_US: Self = Self { field: "half_rtt_us", digits: 2 };
}

/// Two programs that do the same, told by the same words.
pub(super) struct Contest<'a> {
    pub(super) cell: &'a Cell,
    /// The bare one, and the engine's.
    pub(super) programs: [&'a Path; 2],
    pub(super) words: &'a [&'a str],
    pub(super) measure: Measure,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) measure: Measure,
    /// Of the rounds that count: what each program reached, and the engine's part of the bare one's.
    pub(super) bare: Vec<f64>,
    pub(super) engine: Vec<f64>,
    pub(super) ratios: Vec<f64>,
    pub(super) tried: usize,
}

impl Contest<'_> {
    /// Holds rounds until so many count, or too many were tried.
    pub(super) fn hold(&self, rounds: usize) -> Result<Held> {
        let mut held = Held { measure: self.measure, bare: vec![], engine: vec![], ratios: vec![], tried: 0 };
        // The first run of each program reads it from the disk.
        self.run(0)?;
        self.run(1)?;
        while held.ratios.len() < rounds && held.tried < rounds * TRIES {
            held.tried += 1;
            wait_for_quiet()?;
            let before = Load::now()?;
            let bare_first = self.run(0)?;
            let engine = [self.run(1)?, self.run(1)?];
            let bare = [bare_first, self.run(0)?];
            if before.others_since()? > OTHERS_MAX {
                continue;
            }
            held.ratios.push(ratio(&engine, &bare));
            held.bare.extend(bare);
            held.engine.extend(engine);
        }
        if held.ratios.is_empty() {
            bail!(
                "others used more than {OTHERS_MAX} of a core in each of {} rounds\nfix: measure when the machine is idle",
                held.tried
            );
        }
        Ok(held)
    }

    /// One run of one program, ahead of everything that is not of this priority: what others do meanwhile moves neither program.
    fn run(&self, which: usize) -> Result<f64> {
        let program = self.programs[which].to_str().context("a path that is not text")?;
        let words = [&["chrt", "--rr", "10", program], self.words].concat();
        let told = output(&mut self.cell.command(Path::new("/tmp"), &words))?;
        number(&told, self.measure.field)
    }
}

/// Waits until nobody else is busy, or for so long that one may as well try.
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

/// A number out of a program's line of JSON.
fn number(told: &str, field: &str) -> Result<f64> {
    let line =
        told.lines().find(|line| line.starts_with('{')).with_context(|| format!("no result: {told}"))?;
    let result: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
    let number = result[field].as_f64().with_context(|| format!("no {field}: {line}"))?;
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
