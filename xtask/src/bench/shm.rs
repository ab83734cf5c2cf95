//! `cargo xtask bench shm`: the crate `farreach-shm` and the engine over it, against the bare machine.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::contest::{Held, Measure};
use super::report::{Goal, Row};
use super::text;
use crate::binaries::build_dist_example;
use crate::paths;
use crate::process::{command, output};

/// The programs, each with its measurements and the number of rows that they have.
const PROGRAMS: &[(&str, &str, &[&str], usize)] = &[
    ("farreach-shm", "measure", &["pages", "ping", "wake", "idle"], 8),
    ("farreach", "within_host", &["pages", "ping", "writes", "threads", "wake", "idle"], 17),
];

/// Pages of a round of `paged`, and rounds of a short run and of a long one.
const PAGES: f64 = 4096.0;
const SHORT: u32 = 4;
const LONG: u32 = 12;

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

/// The goals. The first that a label begins with decides.
const GOALS: &[(&str, Goal)] = &[
    ("write shm 4 KiB", Goal::AtLeast(0.8)),
    ("write shm", Goal::AtLeast(0.9)),
    ("write engine 4 KiB", Goal::AtLeast(0.8)),
    ("write engine 64 KiB", Goal::AtLeast(0.9)),
    ("write engine 1024 KiB", Goal::AtLeast(0.9)),
    ("write engine 8 B depth 16", Goal::FigureAtLeast(1e6)),
    ("p50 engine 8 B depth 1 ", Goal::FigureAtMost(1.0)),
    ("ping shm", Goal::AtMost(2.0)),
    ("ping engine", Goal::AtMost(4.0)),
    ("2 threads, engines: 2", Goal::AtLeast(1.8)),
    ("wake shm", Goal::AtMost(1.5)),
    ("wake engine", Goal::AtMost(1.5)),
    ("idle", Goal::FigureAtMost(5.0)),
    ("instructions", Goal::FigureAtMost(250.0)),
];

/// Runs the measurements.
pub(super) fn measure(args: &ShmArgs) -> Result<Vec<Row>> {
    println!("bare and shm or engine: GB/s, µs, operations a second, and their ratio");
    let (rounds, mut rows) = (args.rounds.to_string(), Vec::new());
    for (package, example, measurements, count) in PROGRAMS {
        build_dist_example(package, example)?;
        let program = text(&paths::target().join("dist/examples").join(example))?;
        let before = rows.len();
        for what in *measurements {
            let priority: &[&str] = if args.as_is { &[] } else { &["chrt", "--rr", "10"] };
            let words = [priority, &[&program, &rounds, what]].concat();
            let told = output(&mut command(words[0], words[1..].iter().copied()))?;
            for line in told.lines().filter(|line| line.starts_with('{')) {
                let row = row(&serde_json::from_str(line).context("the result is not JSON")?)?;
                println!("{row}");
                rows.push(row);
            }
        }
        let made = rows.len() - before;
        ensure!(made == *count, "{example} made {made} of {count} measurements");
    }
    let row = instructions()?;
    println!("{row}");
    rows.push(row);
    Ok(rows)
}

/// Counts the instructions of a page of 4 KiB in the engine that writes it, without those of the copy
/// function. The difference of two runs has no setup in it.
fn instructions() -> Result<Row> {
    build_dist_example("farreach", "paged")?;
    let program = text(&paths::target().join("dist/examples/paged"))?;
    let file = text(&paths::target().join("callgrind.shm"))?;
    let out = format!("--callgrind-out-file={file}");
    let count = |rounds: u32| -> Result<f64> {
        let rounds = rounds.to_string();
        let words = ["--tool=callgrind", &out, &program, "write", "--provider", "shm", "--rounds", &rounds];
        let told = command("valgrind", words).output().context("cannot start valgrind")?;
        ensure!(told.status.success(), "paged failed: {}", String::from_utf8_lossy(&told.stderr));
        without_copies(&output(&mut command("callgrind_annotate", ["--threshold=100", &file]))?)
    };
    let page = (count(LONG)? - count(SHORT)?) / f64::from(LONG - SHORT) / PAGES;
    let label = "instructions 4 KiB".to_owned();
    let goal = goal(&label).context("instructions have no goal")?;
    Ok(Row::of_figure(label, "instructions", page, goal))
}

/// Returns the instructions of all functions but those that copy, from the list that
/// `callgrind_annotate` prints.
fn without_copies(list: &str) -> Result<f64> {
    let (mut total, mut copies) = (None, 0.0);
    for line in list.lines() {
        let Some((count, _)) = line.trim_start().split_once(" (") else { continue };
        let Ok(count) = count.replace(',', "").parse::<f64>() else { continue };
        if line.contains("PROGRAM TOTALS") {
            total = Some(count);
        } else if line.contains("memcpy") || line.contains("memmove") {
            copies += count;
        }
    }
    let total = total.context("callgrind_annotate printed no sum")?;
    ensure!(copies > 0.0, "callgrind counted no copy function");
    Ok(total - copies)
}

fn goal(label: &str) -> Option<Goal> {
    // With a space, so that a depth of 1 is none of 16.
    let label = format!("{label} ");
    GOALS.iter().find(|(begin, _)| label.starts_with(begin)).map(|(_, goal)| *goal)
}

fn row(result: &Value) -> Result<Row> {
    let label = result["label"].as_str().context("a result without a label")?.to_owned();
    if result["ratios"].is_null() {
        let figure = result["value"].as_f64().with_context(|| format!("{label} has no value"))?;
        let goal = goal(&label).with_context(|| format!("{label} has no goal"))?;
        return Ok(Row::of_figure(label, "cpu_ms_in_10_s", figure, goal));
    }
    let numbers = |name: &str| -> Result<Vec<f64>> {
        let list = result[name].as_array().with_context(|| format!("{label} has no {name}"))?;
        list.iter().map(|value| value.as_f64().context("not a number")).collect()
    };
    let field = result["field"].as_str().with_context(|| format!("{label} has no field"))?;
    let fields = ["gb_per_s", "rtt_us", "per_s", "p50_us", "wake_us"];
    let known = fields.into_iter().find(|known| *known == field);
    let field = known.with_context(|| format!("{label} has an unknown field: {field}"))?;
    let digits = if field == "per_s" { 0 } else { 2 };
    let ratios = numbers("ratios")?;
    let held = Held {
        measure: Measure { field, digits },
        bare: numbers("bare")?,
        engine: numbers("engine")?,
        tried: ratios.len(),
        ratios,
        others: vec![],
    };
    let goal = goal(&label);
    Ok(Row::new(label, held, goal))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_become_rows_with_their_goals() {
        let told = |label: &str, field: &str, figure: f64| {
            let result = json!({ "label": label, "field": field, "bare": [1.0], "engine": [figure], "ratios": [figure] });
            row(&result).unwrap().to_string()
        };
        assert!(told("write shm 4 KiB", "gb_per_s", 0.5).contains("MISSED: at least 0.8"));
        assert!(told("ping shm 8 B", "rtt_us", 1.5).ends_with("at most 2"));
        assert!(told("write engine 8 B depth 16", "per_s", 9e5).contains("MISSED: the figure"));
        assert!(told("p50 engine 8 B depth 1", "p50_us", 1.5).contains("MISSED: the figure"));
        assert!(told("p50 engine 8 B depth 16", "p50_us", 1.5).ends_with("rounds"), "it has no goal");
        let idle = |ms: f64| row(&json!({ "label": "idle pair", "value": ms })).unwrap().to_string();
        assert!(idle(6.0).contains("MISSED") && !idle(1.0).contains("MISSED"));
        assert!(row(&json!({ "label": "new", "value": 1.0 })).is_err(), "a figure without a goal");
    }

    #[test]
    fn copies_do_not_count() {
        let list = "--\n1,500 (100.0%)  PROGRAM TOTALS\n--\n1,000 (66.67%)  x.S:__memcpy_avx [libc.so.6]\n\
                    100 ( 6.67%)  ???:__memmove_x [libc.so.6]\n  400 (26.67%)  ???:copy_some [paged]\n";
        assert_eq!(without_copies(list).unwrap(), 400.0);
        assert!(without_copies("1,500 (100.0%)  PROGRAM TOTALS\n").is_err());
        assert!(without_copies("").is_err());
    }
}
