//! Histories of whole engines in virtual time, each by its seed.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::paths;
use crate::process::{command, run};

/// Seeds of one process at a time: some seconds.
const CHUNK: u64 = 500;
/// Processes at a time.
const WORKERS: u64 = 2;

/// `cargo xtask sim`
#[derive(Debug, clap::Args)]
pub(crate) struct SimArgs {
    /// How many histories.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,

    /// The first one's seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,

    /// As many as fit into so many seconds, instead of a number.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,

    /// Tells what happens in them.
    #[arg(long)]
    log: bool,
}

pub(crate) fn execute(args: &SimArgs) -> Result<()> {
    // Built once, so that no process waits for another's build.
    run(cargo().arg("--no-run").current_dir(paths::repository()))?;
    let start = Instant::now();
    let limit = args.seconds.map(Duration::from_secs);
    let seeds = if limit.is_some() { u64::MAX } else { args.seeds };
    let (mut next, mut total) = (0, BTreeMap::<String, u64>::new());
    while next < seeds && limit.is_none_or(|limit| start.elapsed() < limit) {
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            let count = CHUNK.min(seeds - next);
            if count > 0 {
                workers.push(begin(args.from + next, count, args.log)?);
                next += count;
            }
        }
        for worker in workers {
            add(&mut total, &end(worker)?);
        }
    }
    for (what, times) in &total {
        println!("{times:>12} {what}");
    }
    let histories = total.get("histories").copied().unwrap_or_default();
    println!(
        "sim: {histories} histories from seed {} in {:.0} s, each as it should be",
        args.from,
        start.elapsed().as_secs_f32()
    );
    Ok(())
}

fn cargo() -> std::process::Command {
    command("cargo", ["test", "--quiet", "--profile", "sim", "--package", "farreach", "--lib"])
}

fn begin(from: u64, count: u64, is_logged: bool) -> Result<Child> {
    let mut test = cargo();
    test.args(["--", "--ignored", "--exact", "simulation::seeds_of_the_environment", "--nocapture"]);
    test.env("FARREACH_SIM_FROM", from.to_string()).env("FARREACH_SIM_SEEDS", count.to_string());
    if is_logged {
        test.env("FARREACH_SIM_LOG", "1");
    }
    test.current_dir(paths::repository()).stdout(Stdio::piped()).spawn().context("cannot start cargo")
}

/// What a process told.
fn end(worker: Child) -> Result<String> {
    let output = worker.wait_with_output()?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("a history went wrong:\n{told}");
    }
    Ok(told)
}

/// Adds the lines of a number and what it counts.
fn add(total: &mut BTreeMap<String, u64>, told: &str) {
    for line in told.lines() {
        let Some((times, what)) = line.trim().split_once(' ') else { continue };
        if let Ok(times) = times.parse::<u64>() {
            *total.entry(what.to_owned()).or_default() += times;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_of_several_processes_are_added() {
        let mut total = BTreeMap::new();
        add(&mut total, "\nrunning 1 test\n           5 links died\n         300 histories\n1.5 s\n");
        add(&mut total, "         200 histories\n");
        assert_eq!(total.get("histories"), Some(&500));
        assert_eq!(total.get("links died"), Some(&5));
    }
}
