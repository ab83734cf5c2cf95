//! `cargo xtask bench readers`: many processes read published memory, beside threads that copy as much; and
//! what still succeeds when it is revoked meanwhile.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::contest::{Held, Measure};
use super::report::Row;
use super::text;
use crate::binaries::build_dist_example;
use crate::cell::Cell;
use crate::paths;
use crate::process::output;
use crate::vm::Userland;

const RATE: Measure = Measure { field: "gb_per_s", digits: 2 };

#[derive(Debug, clap::Args)]
pub(crate) struct ReadersArgs {
    /// The release whose libfabric is used.
    #[arg(long, value_enum, default_value = "newest")]
    userland: Userland,

    /// The rails.
    #[arg(long, value_name = "NAME", default_values = ["shm", "tcp"])]
    rail: Vec<String>,

    /// The number of readers, each a process.
    #[arg(long, value_name = "N", default_value_t = 64)]
    readers: u32,

    /// The MiB that are published, and that each reader reads.
    #[arg(long, value_name = "N", default_value_t = 256)]
    mib: u32,

    /// The number of rounds: copy, read, read, copy.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: u32,

    /// Also write the results to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// Runs the measurements. Fails if an operation succeeds after the memory was revoked.
pub(super) fn measure(args: &ReadersArgs) -> Result<Vec<Row>> {
    build_dist_example("farreach", "readers")?;
    let program = text(&paths::target().join("dist/examples/readers"))?;
    let root = args.userland.root().get()?;
    println!("with the libraries of {}", root.origin);
    println!("{} readers of {} MiB, all together in GB/s, beside copies", args.readers, args.mib);
    let mut cell = Cell::new(&root.path)?;
    // With its default, libfabric 2.x needs 17 MB for each peer.
    cell.set("FI_TCP_MAX_RX_SIZE", "128");
    let mut rows = Vec::new();
    for rail in &args.rail {
        let numbers = [args.readers, args.mib, args.rounds].map(|number| number.to_string());
        let words = [&program[..], rail, &numbers[0], &numbers[1], &numbers[2]];
        let told = output(&mut cell.command(paths::repository(), &words))?;
        let line = told.lines().find(|line| line.starts_with('{')).context("there is no result")?;
        let told: Value = serde_json::from_str(line).context("it is not JSON")?;
        let row = of_run(rail, &told)?;
        println!("{row}");
        println!("{}", revoked(rail, &told)?);
        rows.push(row);
    }
    Ok(rows)
}

fn of_run(rail: &str, told: &Value) -> Result<Row> {
    let numbers = |name: &str| -> Result<Vec<f64>> {
        let list = told[name].as_array().with_context(|| format!("there is no {name}"))?;
        list.iter().map(|value| value.as_f64().context("not a number")).collect()
    };
    let (bare, engine) = (numbers("copied_gb_per_s")?, numbers("gb_per_s")?);
    let ratios: Vec<f64> = engine.iter().zip(&bare).map(|(read, copied)| read / copied).collect();
    let held = Held { measure: RATE, bare, engine, tried: ratios.len(), ratios, others: vec![] };
    Ok(Row::new(format!("readers {rail}"), held, None))
}

/// Checks what happened when the memory was revoked, and returns it in words.
fn revoked(rail: &str, told: &Value) -> Result<String> {
    let number = |name: &str| told[name].as_f64().with_context(|| format!("there is no {name}"));
    let (late, changed, moved) = (number("late")?, number("changed")?, number("moved")?);
    ensure!(moved > 0.0, "{rail}: nothing moved before the memory was revoked");
    ensure!(late == 0.0, "{rail}: {late} operations succeeded after the memory was revoked");
    ensure!(changed == 0.0, "{rail}: {changed} bytes were written after the memory was revoked");
    let is_slice = told["is_slice"].as_bool().context("there is no is_slice")?;
    let back = if is_slice { "a slice again" } else { "not proven to be free of late writes" };
    Ok(format!(
        "{rail}: revoked after {moved} operations, in {:.0} ms; none succeeded later, and the memory is {back}",
        number("revoke_ms")?
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_operation_after_the_revoke_is_an_error() {
        let told = |late: u32, changed: u32, moved: u32| json!({ "revoke_ms": 3.2, "moved": moved, "late": late, "changed": changed, "is_slice": true });
        assert!(revoked("shm", &told(0, 0, 5)).unwrap().ends_with("the memory is a slice again"));
        for wrong in [told(1, 0, 5), told(0, 1, 5), told(0, 0, 0), json!({})] {
            revoked("shm", &wrong).unwrap_err();
        }
    }

    #[test]
    fn a_rate_is_compared_with_the_copies_of_its_round() {
        let told = json!({ "gb_per_s": [3.0, 4.0], "copied_gb_per_s": [6.0, 8.0] });
        assert!(of_run("shm", &told).unwrap().to_string().contains("0.50"));
    }
}
