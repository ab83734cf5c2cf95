//! `cargo xtask bench urgent`: urgent reads while large transfers move, beside reads while nothing moves.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use super::contest::{Held, Measure};
use super::report::{Goal, Row};
use super::text;
use crate::binaries::build_dist_example;
use crate::cell::Cell;
use crate::paths;
use crate::process::output;
use crate::vm::Userland;

const P99: Measure = Measure { field: "p99_us", digits: 1 };
const P50: Measure = Measure { field: "p50_us", digits: 1 };
const RATE: Measure = Measure { field: "gb_per_s", digits: 2 };

/// The bar: a read waits no longer than two others would take.
const BAR: Goal = Goal::AtMost(3.0);

/// The pause before each read in microseconds: a thread reads all the time, or now and then.
const PAUSES: [&str; 2] = ["0", "200"];

#[derive(Debug, clap::Args)]
pub(crate) struct UrgentArgs {
    /// The release whose libfabric is used.
    #[arg(long, value_enum, default_value = "debian12")]
    userland: Userland,

    /// The rails.
    #[arg(long, value_name = "NAME", default_values = ["shm", "tcp"])]
    rail: Vec<String>,

    /// The priority of the large transfers.
    #[arg(long, value_name = "NAME", default_value = "bulk", value_parser = ["normal", "bulk"])]
    large: String,

    /// The number of rounds: reads while nothing moves, then while large transfers move.
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,

    /// The MiB that move in a round: 10 GiB in ten rounds.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    mib: u64,

    /// Do not raise the priority of the programs above that of other processes.
    #[arg(long)]
    as_is: bool,

    /// Also write the results to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// Runs the measurements.
pub(super) fn measure(args: &UrgentArgs) -> Result<Vec<Row>> {
    build_dist_example("farreach", "urgent")?;
    let program = text(&paths::target().join("dist/examples/urgent"))?;
    let root = args.userland.root().get()?;
    println!("with the libraries of {}", root.origin);
    let cell = Cell::new(&root.path)?;
    println!(
        "reads of 4 KiB, idle and while {} writes move, in us; and GB/s alone and with reads",
        args.large
    );
    let mut rows = Vec::new();
    for rail in &args.rail {
        for pause in PAUSES {
            let priority: &[&str] = if args.as_is { &[] } else { &["chrt", "--rr", "10"] };
            let (rounds, mib) = (args.rounds.to_string(), args.mib.to_string());
            let words = [&program[..], rail, "urgent", &args.large, &rounds, &mib, pause];
            let told = output(&mut cell.command(paths::repository(), &[priority, &words].concat()))?;
            let line = told.lines().find(|line| line.starts_with('{')).context("there is no result")?;
            let of_run = of_run(rail, pause, &serde_json::from_str(line).context("it is not JSON")?)?;
            of_run.iter().for_each(|row| println!("{row}"));
            rows.extend(of_run);
        }
    }
    Ok(rows)
}

/// Returns the rows of one run.
fn of_run(rail: &str, pause: &str, told: &Value) -> Result<[Row; 3]> {
    let numbers = |name: &str| -> Result<Vec<f64>> {
        let list = told[name].as_array().with_context(|| format!("there is no {name}"))?;
        list.iter().map(|value| value.as_f64().context("not a number")).collect()
    };
    let row = |what: &str, measure, [idle, busy]: [&str; 2], goal| -> Result<Row> {
        let (bare, engine) = (numbers(idle)?, numbers(busy)?);
        let ratios: Vec<f64> = engine.iter().zip(&bare).map(|(busy, idle)| busy / idle).collect();
        let held = Held { measure, bare, engine, tried: ratios.len(), ratios, others: vec![] };
        Ok(Row::new(format!("{what} {rail}, pause {pause} us"), held, goal))
    };
    Ok([
        row("p99", P99, ["idle_p99", "busy_p99"], Some(BAR))?,
        row("p50", P50, ["idle_p50", "busy_p50"], None)?,
        row("large", RATE, ["gb_per_s_alone", "gb_per_s"], None)?,
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::report::judge;
    use super::*;

    #[test]
    fn a_run_is_judged_by_its_longest_reads() {
        let told = |busy: f64| {
            json!({ "idle_p50": [1.0], "idle_p99": [2.0], "busy_p50": [9.0], "busy_p99": [busy],
                    "gb_per_s": [5.0], "gb_per_s_alone": [10.0] })
        };
        let run = |busy| of_run("tcp", "0", &told(busy)).unwrap();
        assert!(judge(&run(5.0)).is_ok() && judge(&run(7.0)).is_err());
        assert!(of_run("tcp", "0", &json!({})).is_err());
    }
}
