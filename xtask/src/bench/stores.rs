//! `cargo xtask bench stores`: the same block store on the engine, on NIXL and on Mooncake.
//!
//! A store has blocks in its memory, which workers read and write. `benches/market/stores.py` runs the
//! processes in a cell, because all of one store must be in one network. The runs of the stores
//! alternate, so that other load disturbs all of them.
//!
//! The libraries are fetched at the first use. If one cannot be had, or fails, its row says why.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::market::{MOONCAKE, NIXL, PYTHON_PROGRAM, python_cell, reason};
use super::spread::Spread;
use super::{SHM, text};
use crate::binaries::build_dist_example;
use crate::cell::Cell;
use crate::paths;
use crate::process::output;
use crate::python::Packages;

/// Arguments of the benchmark.
#[derive(Debug, clap::Args)]
pub(crate) struct StoresArgs {
    /// The number of workers, which are processes.
    #[arg(long, value_name = "N", default_value_t = 8)]
    workers: usize,

    /// The number of blocks of 64 KiB.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    blocks: usize,

    /// The number of runs, with digests and without them.
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: usize,
}

/// A block store on one library over one transport.
struct Store {
    name: &'static str,
    rail: &'static str,
    packages: Option<Packages<'static>>,
    /// The code that its user writes.
    files: &'static [&'static str],
    /// The programs with digests and without them, and the options of the second.
    programs: [&'static str; 2],
    /// The rounds of a worker in the first run of each, which take seconds.
    rounds: [u64; 2],
}

const ENGINE_FILES: &[&str] = &["crates/examples/examples/block_store.rs"];
const ENGINE_PROGRAMS: [&str; 2] = ["block_store", "rounds"];
const NIXL_PROGRAM: &str = "benches/market/store_with_nixl.py";
const MOONCAKE_PROGRAM: &str = "benches/market/store_with_mooncake.py";
/// What NIXL and Mooncake have in common.
const COMMON: &str = "benches/market/blocks.py";

const STORES: [Store; 5] = [
    Store::of_engine(SHM, [8000, 32_000]),
    Store::of_engine("tcp", [4000, 8000]),
    Store::of_library("NIXL", SHM, NIXL, &[NIXL_PROGRAM, COMMON], NIXL_PROGRAM, [4000, 16_000]),
    Store::of_library("NIXL", "tcp", NIXL, &[NIXL_PROGRAM, COMMON], NIXL_PROGRAM, [4000, 4000]),
    Store::of_library(
        "Mooncake",
        "tcp",
        MOONCAKE,
        &[MOONCAKE_PROGRAM, COMMON],
        MOONCAKE_PROGRAM,
        [2000, 2000],
    ),
];

/// If the rounds are over before all workers have started, there are more.
const ROUNDS_MAX: u64 = 1 << 20;

impl Store {
    const fn of_engine(rail: &'static str, rounds: [u64; 2]) -> Self {
        Self {
            name: "Farreach",
            rail,
            packages: None,
            files: ENGINE_FILES,
            programs: ENGINE_PROGRAMS,
            rounds,
        }
    }

    const fn of_library(
        name: &'static str,
        rail: &'static str,
        packages: Packages<'static>,
        files: &'static [&'static str],
        program: &'static str,
        rounds: [u64; 2],
    ) -> Self {
        Self { name, rail, packages: Some(packages), files, programs: [program; 2], rounds }
    }

    /// Returns the options and the words of the program.
    fn words(&self, digests: bool) -> Result<Vec<String>> {
        let mut words = vec![format!("rail={}", self.rail)];
        let program = self.programs[usize::from(!digests)];
        if self.packages.is_none() {
            let program = text(&paths::target().join("dist/examples").join(program))?;
            words.extend(["--".to_owned(), program]);
        } else {
            words.extend((!digests).then(|| "digests=no".to_owned()));
            let program = text(&paths::repository().join(program))?;
            words.extend(["--", PYTHON_PROGRAM].map(ToOwned::to_owned).into_iter().chain([program]));
        }
        Ok(words)
    }

    /// Returns the lines of code of each file.
    fn lines(&self) -> Result<Vec<usize>> {
        let count = |file: &&str| {
            let source = std::fs::read_to_string(paths::repository().join(file));
            Ok(lines_of_code(&source.with_context(|| format!("cannot read {file}"))?))
        };
        self.files.iter().map(count).collect()
    }
}

/// Returns the number of lines that are neither empty nor only a comment or a docstring.
fn lines_of_code(source: &str) -> usize {
    let mut is_in_docstring = false;
    let mut count = 0;
    for line in source.lines().map(str::trim) {
        if is_in_docstring {
            is_in_docstring = !line.contains(DOCSTRING);
        } else if let Some(rest) = line.strip_prefix(DOCSTRING) {
            is_in_docstring = !rest.contains(DOCSTRING);
        } else if !line.is_empty() && !COMMENTS.iter().any(|comment| line.starts_with(comment)) {
            count += 1;
        }
    }
    count
}

const DOCSTRING: &str = "\"\"\"";
/// `#[…]` and `#![…]` of Rust are code.
const COMMENTS: [&str; 3] = ["//", "# ", "#!/"];

/// What was measured of a store.
#[derive(Debug, Default)]
struct Measured {
    /// With digests, and without them.
    rates: [Vec<f64>; 2],
    torn: u64,
    killed: Option<Value>,
}

/// Runs all stores, and prints the table.
pub(super) fn execute(args: &StoresArgs) -> Result<()> {
    build_dist_example("farreach-examples", "block_store")?;
    build_dist_example("farreach", "rounds")?;
    let mut cells: Vec<Result<Cell>> = STORES
        .iter()
        .map(|store| {
            let (cell, origin) = python_cell(store.packages)?;
            println!("{} over {}: {origin}", store.name, store.rail);
            Ok(cell)
        })
        .collect();
    let mut measured: Vec<Measured> = STORES.iter().map(|_| Measured::default()).collect();
    let mut rounds = STORES.map(|store| store.rounds);
    for run in 0..=args.runs {
        for (place, store) in STORES.iter().enumerate() {
            let Ok(cell) = &cells[place] else { continue };
            let ran = match run {
                0 => kill(cell, args, store, &mut measured[place]),
                _ => rates(cell, args, store, &mut rounds[place], &mut measured[place]),
            };
            if let Err(error) = ran {
                cells[place] = Err(error);
            }
        }
    }
    print(args, &cells, &measured)
}

/// Kills a worker of a store, and then the store.
fn kill(cell: &Cell, args: &StoresArgs, store: &Store, of: &mut Measured) -> Result<()> {
    let told = run_in(cell, "kill", args, 0, &store.words(true)?)?;
    println!("{} over {}: {}; {}", store.name, store.rail, worker_killed(&told), store_killed(&told));
    of.killed = Some(told);
    Ok(())
}

/// Runs a store with digests and without them.
fn rates(
    cell: &Cell,
    args: &StoresArgs,
    store: &Store,
    rounds: &mut [u64; 2],
    of: &mut Measured,
) -> Result<()> {
    for ((digests, rounds), rates) in [true, false].into_iter().zip(rounds).zip(&mut of.rates) {
        let told = rate(cell, args, rounds, &store.words(digests)?)?;
        let rate = told["rounds_per_s"].as_f64().context("there is no rate")?;
        let torn = told["torn"].as_u64().context("the torn blocks are not told")?;
        let with = if digests { "with" } else { "without" };
        print!("{} over {} {with} digests: {rate:.0} rounds/s, {torn} torn; ", store.name, store.rail);
        println!("{}", told["store"].as_str().unwrap_or_default());
        rates.push(rate);
        of.torn += torn;
    }
    Ok(())
}

/// Runs a store until its workers have worked at the same time for long enough.
fn rate(cell: &Cell, args: &StoresArgs, rounds: &mut u64, words: &[String]) -> Result<Value> {
    while *rounds <= ROUNDS_MAX {
        let told = run_in(cell, "rate", args, *rounds, words)?;
        if told["needs_more_rounds"] != true {
            return Ok(told);
        }
        *rounds *= 2;
    }
    bail!("the workers never work at the same time")
}

fn run_in(cell: &Cell, what: &str, args: &StoresArgs, rounds: u64, words: &[String]) -> Result<Value> {
    let script = text(&paths::repository().join("benches/market/stores.py"))?;
    let [workers, blocks, rounds] =
        [args.workers as u64, args.blocks as u64, rounds].map(|it| it.to_string());
    let start = [PYTHON_PROGRAM, &script, what, &workers, &blocks, &rounds];
    let words: Vec<&str> = start.into_iter().chain(words.iter().map(String::as_str)).collect();
    let told = output(&mut cell.command(Path::new("/tmp"), &words))?;
    let line = told.lines().find(|line| line.starts_with('{')).context("there is no result")?;
    serde_json::from_str(line).with_context(|| format!("the result is not JSON: {line}"))
}

fn print(args: &StoresArgs, cells: &[Result<Cell>], measured: &[Measured]) -> Result<()> {
    println!(
        "\n{} workers, {} blocks of 64 KiB; {} runs: median and quartiles",
        args.workers, args.blocks, args.runs
    );
    println!("\n| | lines | rounds/s | without digests | torn |\n|---|---|---|---|---|");
    for ((store, cell), of) in STORES.iter().zip(cells).zip(measured) {
        let lines = store.lines()?;
        let parts: Vec<_> = lines.iter().map(ToString::to_string).collect();
        let sum = match &parts[..] {
            [one] => one.clone(),
            parts => format!("{} = {}", lines.iter().sum::<usize>(), parts.join(" + ")),
        };
        let [rate, bare] = [&of.rates[0], &of.rates[1]]
            .map(|rates| Spread::of(rates).map_or("not measured".to_owned(), |spread| spread.to_string()));
        println!("| {} over {} | {sum} | {rate} | {bare} | {} |", store.name, store.rail, of.torn);
        if let Err(error) = cell {
            println!("| | {} | | | |", reason(error));
        }
    }
    println!("\n| | a worker is killed | the store is killed |\n|---|---|---|");
    for (store, of) in STORES.iter().zip(measured) {
        if let Some(told) = &of.killed {
            println!(
                "| {} over {} | {} | {} |",
                store.name,
                store.rail,
                worker_killed(told),
                store_killed(told)
            );
        }
    }
    Ok(())
}

/// Says what the store and the others did.
fn worker_killed(told: &Value) -> String {
    let freed = match told["store_told_s"].as_f64() {
        Some(s) => format!("after {s:.2} s: {}", told["store_said"].as_str().unwrap_or_default()),
        None => "the store did not notice within 30 s".to_owned(),
    };
    let next =
        if told["next_works"] == true { "the next worker got its share" } else { "no other got its share" };
    format!("{freed}; {} others continued; {next}", told["others_continue"])
}

/// Says what the workers did: each ending once, with their number and the longest time.
fn store_killed(told: &Value) -> String {
    let mut endings: Vec<(String, usize, f64)> = Vec::new();
    for worker in told["workers"].as_array().into_iter().flatten() {
        let how = match worker["code"].as_i64() {
            Some(code) => format!("exit code {code}: {}", worker["said"].as_str().unwrap_or_default()),
            None => "still waiting after 30 s".to_owned(),
        };
        let s = worker["s"].as_f64().unwrap_or_default();
        match endings.iter_mut().find(|(other, ..)| *other == how) {
            Some((_, count, longest)) => (*count, *longest) = (*count + 1, longest.max(s)),
            None => endings.push((how, 1, s)),
        }
    }
    let shown = endings.iter().map(|(how, count, s)| format!("{count} workers within {s:.2} s: {how}"));
    shown.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_docstrings_are_no_code() {
        assert_eq!(lines_of_code("//! Why.\n\n#![allow(x)]\nfn main() {\n    // Why.\n}\n"), 3);
        let python = "\"\"\"What.\n\nMore.\n\"\"\"\n\nimport os\n\ndef f():\n    \"\"\"Why.\"\"\"\n    # Why.\n    return 1\n";
        assert_eq!(lines_of_code(python), 3);
        assert!(STORES.iter().all(|store| store.lines().unwrap().iter().all(|lines| *lines > 20)));
    }

    #[test]
    fn the_end_of_workers_is_told_once_for_each_way() {
        let worker = |code, s| json!({ "code": code, "s": s, "said": "error: lost" });
        let told = json!({ "workers": [worker(Some(4), Some(0.1)), worker(Some(4), Some(0.25)), worker(None, None)] });
        assert_eq!(
            store_killed(&told),
            "2 workers within 0.25 s: exit code 4: error: lost; 1 workers within 0.00 s: still waiting after 30 s"
        );
        let told = json!({ "store_told_s": null, "others_continue": 7, "next_works": false });
        assert_eq!(
            worker_killed(&told),
            "the store did not notice within 30 s; 7 others continued; no other got its share"
        );
    }
}
