//! `cargo xtask bench shm`: the crate `farreach-shm` alone, against the bare machine.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::contest::{Held, Measure};
use super::report::{Goal, Row};
use crate::binaries::build_dist_example;
use crate::paths;
use crate::process::{command, output};

/// The processor time that an idle pair may use in 10 s.
const IDLE_MS_MAX: f64 = 5.0;

#[derive(Debug, clap::Args)]
pub(crate) struct ShmArgs {
    /// The number of rounds: bare, shm, shm, bare.
    #[arg(long, value_name = "N", default_value_t = 25)]
    rounds: usize,

    /// Do not raise the priority of the programs above that of other processes.
    #[arg(long)]
    as_is: bool,

    /// Also write the results to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// The goals. The first word of a label that begins so decides.
const GOALS: &[(&str, Goal)] = &[
    ("write shm 4 KiB", Goal::AtLeast(0.8)),
    ("write shm", Goal::AtLeast(0.9)),
    ("ping shm", Goal::AtMost(2.0)),
    ("wake shm", Goal::AtMost(1.5)),
];

/// Runs the measurements. Returns an error if an idle pair uses too much processor time.
pub(super) fn measure(args: &ShmArgs) -> Result<Vec<Row>> {
    build_dist_example("farreach-shm", "measure")?;
    let program = paths::target().join("dist/examples/measure");
    let program = program.to_str().context("the path is not valid UTF-8")?;
    let rounds = args.rounds.to_string();
    println!("bare and shm: GB/s, µs, and their ratio");
    let mut rows = Vec::new();
    for what in ["pages", "ping", "wake", "idle"] {
        let priority: &[&str] = if args.as_is { &[] } else { &["chrt", "--rr", "10"] };
        let words = [priority, &[program, &rounds, what]].concat();
        let told = output(&mut command(words[0], words[1..].iter().copied()))?;
        for line in told.lines().filter(|line| line.starts_with('{')) {
            let result: Value = serde_json::from_str(line).context("the result is not JSON")?;
            match row(&result)? {
                Some(row) => {
                    println!("{row}");
                    rows.push(row);
                }
                None => idle(&result)?,
            }
        }
    }
    ensure!(rows.len() == 7, "{} of 7 measurements were made", rows.len());
    Ok(rows)
}

/// Returns a comparison; `None` if the result is none.
fn row(result: &Value) -> Result<Option<Row>> {
    let label = result["label"].as_str().context("a result without a label")?.to_owned();
    if result["ratios"].is_null() {
        return Ok(None);
    }
    let numbers = |name: &str| -> Result<Vec<f64>> {
        let list = result[name].as_array().with_context(|| format!("{label} has no {name}"))?;
        list.iter().map(|value| value.as_f64().context("not a number")).collect()
    };
    let field = match result["field"].as_str() {
        Some("gb_per_s") => "gb_per_s",
        Some("rtt_us") => "rtt_us",
        _ => "wake_us",
    };
    let ratios = numbers("ratios")?;
    let held = Held {
        measure: Measure { field, digits: 2 },
        bare: numbers("bare")?,
        engine: numbers("engine")?,
        tried: ratios.len(),
        ratios,
    };
    let goal = GOALS.iter().find(|(begin, _)| label.starts_with(begin)).map(|(_, goal)| *goal);
    Ok(Some(Row::new(label, held, goal)))
}

fn idle(result: &Value) -> Result<()> {
    let ms = result["value"].as_f64().context("the idle pair has no value")?;
    println!("idle pair: {ms:.2} ms of processor time in 10 s, at most {IDLE_MS_MAX}");
    if ms > IDLE_MS_MAX {
        bail!("an idle pair used {ms:.2} ms of processor time in 10 s");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_become_rows_with_their_goals() {
        let result = json!({ "label": "write shm 4 KiB", "field": "gb_per_s", "bare": [1.0], "engine": [0.5],
            "ratios": [0.5] });
        assert!(row(&result).unwrap().unwrap().to_string().contains("MISSED: at least 0.8"));
        let result = json!({ "label": "ping shm 8 B", "field": "rtt_us", "bare": [1.0], "engine": [1.5],
            "ratios": [1.5] });
        assert!(row(&result).unwrap().unwrap().to_string().contains("at most 2"));
        assert!(row(&json!({ "label": "idle pair", "value": 1.0 })).unwrap().is_none());
        assert!(idle(&json!({ "value": 6.0 })).is_err() && idle(&json!({ "value": 1.0 })).is_ok());
    }
}
