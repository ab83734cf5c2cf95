//! `cargo xtask bench growth`: instructions of the protocol and the carrier for an operation, with
//! more and more peers, operations in flight, pages, segments and grants.
//!
//! valgrind counts them, so that the result does not depend on the machine's load. Each count is run
//! with two numbers of operations: the difference has no setup in it. `--plots` also writes the
//! counts and their plots to `docs/performance`. The test `engine/library_costs` counts the smaller
//! ones in CI.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::plot::Plot;
use crate::binaries::build_dist_example;
use crate::paths;
use crate::process::{command, output};

/// The cost at a larger count may be so many times the least cost at a smaller one.
const GROWTH_MAX: f64 = 1.3;

/// What grows, and the unit that is counted.
const KINDS: &[Kind] = &[
    Kind { name: "peers", unit: "write", across: "connected peers", counts: &[1, 10, 100, 1_000, 10_000] },
    Kind {
        name: "in-flight",
        unit: "write",
        across: "writes in flight",
        counts: &[1, 4, 16, 64, 256, 1_024, 4_096],
    },
    Kind {
        name: "pages",
        unit: "page",
        across: "pages of a transfer",
        counts: &[1, 10, 100, 1_000, 10_000, 100_000, 1_000_000],
    },
    Kind {
        name: "segments",
        unit: "segment",
        across: "segments of a transfer",
        counts: &[1, 10, 100, 1_000, 10_000, 100_000],
    },
    Kind {
        name: "regions",
        unit: "segment",
        across: "regions of a transfer, each of another grant",
        counts: &[1, 10, 100, 1_000, 10_000],
    },
    Kind {
        name: "granted",
        unit: "write",
        across: "grants of the peer that is written to",
        counts: &[1, 10, 100, 1_000, 10_000, 100_000],
    },
    Kind {
        name: "grants",
        unit: "grant and its revocation",
        across: "grants that exist already",
        counts: &[1, 10, 100, 1_000, 10_000, 100_000],
    },
];

struct Kind {
    name: &'static str,
    unit: &'static str,
    /// The label of the counts in a plot.
    across: &'static str,
    counts: &'static [u64],
}

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub(crate) struct GrowthArgs {
    /// Leave out counts above this one.
    #[arg(long, value_name = "COUNT", default_value_t = u64::MAX)]
    up_to: u64,

    /// Also write the counts and their plots to docs/performance.
    #[arg(long, conflicts_with = "up_to")]
    plots: bool,

    /// Draw the plots of the counts in docs/performance again, and count nothing.
    #[arg(long, conflicts_with_all = ["up_to", "plots"])]
    redraw: bool,
}

/// The counts, as they are stored.
#[derive(Debug, Serialize, Deserialize)]
struct Counted {
    /// The state of the sources that were counted.
    commit: String,
    kinds: Vec<CountedKind>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CountedKind {
    name: String,
    /// Counts, and the instructions of one operation.
    points: Vec<(u64, u64)>,
}

/// Prints the instructions of each kind at each count. Returns an error where they grow.
pub(crate) fn execute(args: &GrowthArgs) -> Result<()> {
    if args.redraw {
        return draw(&stored()?);
    }
    build_dist_example("farreach-sim", "growth")?;
    let program = paths::target().join("dist/examples/growth");
    let (mut kinds, mut grown) = (Vec::new(), Vec::new());
    for kind in KINDS {
        println!("{}: instructions of one {}", kind.name, kind.unit);
        let (mut points, mut least) = (Vec::new(), f64::INFINITY);
        for count in kind.counts.iter().copied().filter(|count| *count <= args.up_to) {
            let cost = cost(&program, kind.name, count)?;
            let ratio = if least.is_finite() { cost / least } else { 1.0 };
            println!("{count:>11} {cost:>9.0} {ratio:>6.2}");
            if ratio > GROWTH_MAX {
                grown.push(format!("{} at {count}: {ratio:.2} times", kind.name));
            }
            least = least.min(cost);
            points.push((count, cost.round() as u64));
        }
        kinds.push(CountedKind { name: kind.name.to_owned(), points });
    }
    if args.plots {
        let counted = Counted { commit: commit()?, kinds };
        fs::create_dir_all(folder())?;
        fs::write(folder().join(COUNTS), serde_json::to_string_pretty(&counted)? + "\n")?;
        draw(&counted)?;
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
    collected(&mut command("valgrind", words))
}

/// Runs valgrind, and returns the instructions that it has counted.
pub(super) fn collected(valgrind: &mut Command) -> Result<i64> {
    let told = valgrind.output().context("cannot start valgrind")?;
    let (status, told) = (told.status, String::from_utf8_lossy(&told.stderr));
    ensure!(status.success(), "{valgrind:?} ended with {status}:\n{told}");
    let line = told.lines().find_map(|line| line.split_once("Collected : "));
    let (_, collected) = line.with_context(|| format!("valgrind counted nothing:\n{told}"))?;
    collected.trim().parse().context("valgrind's count is not a number")
}

/// The file with the counts that are plotted.
const COUNTS: &str = "growth.json";

fn folder() -> PathBuf {
    paths::repository().join("docs/performance")
}

fn stored() -> Result<Counted> {
    let file = folder().join(COUNTS);
    let text = fs::read_to_string(&file)
        .with_context(|| format!("cannot read {}\nfix: cargo xtask bench growth --plots", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not as it was written", file.display()))
}

/// What is counted.
const SOURCES: [&str; 2] = [":(glob)crates/*/src/**", "crates/sim/examples/growth.rs"];

/// Returns the last commit that changed the sources, and whether they have changed since.
fn commit() -> Result<String> {
    let git = |words: &[&str]| {
        output(command("git", words.iter().chain(&["--"]).chain(&SOURCES)).current_dir(paths::repository()))
    };
    let commit = git(&["log", "-1", "--format=%h", "--abbrev=8"])?;
    let changed = git(&["status", "--porcelain"])?;
    Ok(format!("{}{}", commit.trim(), if changed.is_empty() { "" } else { " with changes" }))
}

fn draw(counted: &Counted) -> Result<()> {
    for (kind, image) in images(counted)? {
        let file = folder().join(format!("growth-{kind}.svg"));
        fs::write(&file, image)?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Returns the plot of each kind.
fn images(counted: &Counted) -> Result<Vec<(&'static str, String)>> {
    let image = |kind: &'static Kind| -> Result<(&'static str, String)> {
        let of_kind = counted.kinds.iter().find(|counted| counted.name == kind.name);
        let points = &of_kind.with_context(|| format!("{} was not counted", kind.name))?.points;
        let title = format!("Instructions of one {}, by {}", kind.unit, kind.across);
        let plot = Plot { title: &title, across: kind.across, points, growth_max: GROWTH_MAX };
        Ok((kind.name, plot.render()))
    };
    KINDS.iter().map(image).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plots_are_those_of_the_stored_counts() {
        let counted = stored().unwrap();
        for (kind, points) in KINDS.iter().zip(&counted.kinds) {
            let counts: Vec<u64> = points.points.iter().map(|point| point.0).collect();
            assert_eq!((kind.name, kind.counts), (points.name.as_str(), &counts[..]));
        }
        for (kind, image) in images(&counted).unwrap() {
            let file = folder().join(format!("growth-{kind}.svg"));
            let text = fs::read_to_string(&file).unwrap_or_default();
            assert!(text == image, "{}: run `cargo xtask bench growth --redraw`", file.display());
        }
    }
}
