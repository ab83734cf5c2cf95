//! `cargo xtask bench growth`: instructions of the protocol and the carrier for an operation, with
//! more and more peers, operations in flight, pages and grants.
//!
//! valgrind counts them, so that the result does not depend on the machine's load. Each count is run
//! with two numbers of operations: the difference has no setup in it.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::binaries::build_dist_example;
use crate::paths;
use crate::process::command;

/// The cost at a larger count may be so many times the least cost at a smaller one.
const GROWTH_MAX: f64 = 1.3;

/// What grows, and the unit that is counted.
const KINDS: &[Kind] = &[
    Kind { name: "peers", unit: "write", counts: &[1, 10, 100, 1_000, 10_000] },
    Kind { name: "in-flight", unit: "write", counts: &[1, 4, 16, 64, 256, 1_024, 4_096] },
    Kind { name: "pages", unit: "page", counts: &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000] },
    Kind { name: "granted", unit: "write", counts: &[1, 10, 100, 1_000, 10_000, 100_000] },
    Kind { name: "grants", unit: "grant and revoke", counts: &[1, 10, 100, 1_000, 10_000, 100_000] },
];

struct Kind {
    name: &'static str,
    unit: &'static str,
    counts: &'static [u64],
}

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub(crate) struct GrowthArgs {
    /// Leave out counts above this one.
    #[arg(long, value_name = "COUNT", default_value_t = u64::MAX)]
    up_to: u64,
}

/// Prints the instructions of each kind at each count. Returns an error where they grow.
pub(crate) fn execute(args: &GrowthArgs) -> Result<()> {
    build_dist_example("farreach-sim", "growth")?;
    let program = paths::target().join("dist/examples/growth");
    let mut grown = Vec::new();
    for kind in KINDS {
        println!("{}: instructions of one {}", kind.name, kind.unit);
        let mut least = f64::INFINITY;
        for count in kind.counts.iter().copied().filter(|count| *count <= args.up_to) {
            let cost = cost(&program, kind.name, count)?;
            let ratio = if least.is_finite() { cost / least } else { 1.0 };
            println!("{count:>11} {cost:>9.0} {ratio:>6.2}");
            if ratio > GROWTH_MAX {
                grown.push(format!("{} at {count}: {ratio:.2} times", kind.name));
            }
            least = least.min(cost);
        }
    }
    ensure!(grown.is_empty(), "the cost grows by more than {GROWTH_MAX}: {}", grown.join(", "));
    Ok(())
}

/// Returns the instructions of one operation.
fn cost(program: &Path, kind: &str, count: u64) -> Result<f64> {
    // Whole transfers, and as many as there are peers, so that each takes part equally.
    let operations = count.max(4_000);
    let [once, thrice] =
        [operations, 3 * operations].map(|operations| count_of(program, kind, count, operations));
    Ok((thrice? - once?) as f64 / (2 * operations) as f64)
}

/// Counts the instructions of a run.
fn count_of(program: &Path, kind: &str, count: u64, operations: u64) -> Result<i64> {
    let program = program.to_str().context("the path of the program is not UTF-8")?;
    let (count, operations) = (count.to_string(), operations.to_string());
    let words = ["--tool=callgrind", "--callgrind-out-file=/dev/null", program, kind, &count, &operations];
    let told = command("valgrind", words).output().context("cannot start valgrind")?;
    ensure!(told.status.success(), "growth {kind} {count} {operations} failed");
    let told = String::from_utf8_lossy(&told.stderr);
    let line = told.lines().find_map(|line| line.split_once("Collected : "));
    let (_, collected) = line.with_context(|| format!("valgrind counted nothing:\n{told}"))?;
    collected.trim().parse().context("valgrind's count is not a number")
}
