//! Runs histories of whole engines in virtual time, one for each seed, and small scenarios in every order.

mod coverage;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::binaries::{all_test_binaries, library_tests};
use crate::process::command;

/// The number of seeds for one process, which take some seconds.
const CHUNK: u64 = 500;

/// `cargo xtask sim`
#[derive(Debug, clap::Args)]
pub(crate) struct SimArgs {
    /// The number of histories.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    seeds: u64,

    /// The seed of the first history.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,

    /// Run as many histories as fit into this number of seconds.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,

    /// Print the events of the histories.
    #[arg(long)]
    log: bool,

    /// Try all orders of small scenarios, also of those that take minutes, instead of histories.
    #[arg(long, conflicts_with_all = ["seeds", "from", "seconds", "log", "test_build"])]
    explore: bool,

    /// Run the build of the tests: several times slower, but nothing else has to be built.
    #[arg(long)]
    test_build: bool,

    /// Note which lines of the protocol the histories reach. Fails if there is one that none reaches and
    /// the list of reasons does not have.
    #[arg(long, conflicts_with_all = ["test_build", "log"])]
    coverage: bool,
}

/// Runs as many histories as fit into this time, with the build of the tests.
pub(crate) fn for_a_while(seconds: u64) -> Result<()> {
    let (seconds, test_build) = (Some(seconds), true);
    execute(&SimArgs { seeds: 0, from: 0, seconds, log: false, test_build, coverage: false, explore: false })
}

pub(crate) fn execute(args: &SimArgs) -> Result<()> {
    if args.coverage {
        return coverage::report(args);
    }
    if args.explore {
        return explore();
    }
    let program = if args.test_build {
        let binaries = all_test_binaries()?;
        let unit_tests = binaries.iter().find(|it| it.name() == "sim/lib");
        unit_tests.context("the simulation has no unit tests")?.path()?.to_owned()
    } else {
        library_tests("farreach-sim", "sim")?
    };
    run_seeds(args, &program, None)
}

/// Runs the histories. `profile`: the file to which a process notes what it has reached.
fn run_seeds(args: &SimArgs, program: &str, profile: Option<&Path>) -> Result<()> {
    let (start, next, has_failed) = (Instant::now(), AtomicU64::new(0), AtomicBool::new(false));
    let limit = args.seconds.map(Duration::from_secs);
    let seeds = if limit.is_some() { u64::MAX } else { args.seeds };
    // Each worker takes the next seeds until there are none left, the time is over, or a history
    // failed.
    let work = || -> Result<BTreeMap<String, u64>> {
        let mut total = BTreeMap::new();
        while !has_failed.load(Ordering::Relaxed) && limit.is_none_or(|limit| start.elapsed() < limit) {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= seeds {
                break;
            }
            let count = CHUNK.min(seeds - first);
            let told = histories(program, args.from + first, count, (args.log, profile));
            add(&mut total, &told.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?);
        }
        Ok(total)
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let totals: Vec<Result<_>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let mut total = BTreeMap::<String, u64>::new();
    for (what, times) in totals.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten() {
        let sum = total.entry(what).or_default();
        *sum = sum.wrapping_add(times);
    }
    let digest = total.remove(DIGEST).unwrap_or_default();
    for (what, times) in &total {
        println!("{times:>12} {what}");
    }
    let took = start.elapsed().as_secs_f64();
    let histories = total.get("histories").copied().unwrap_or_default();
    println!(
        "sim: {histories} histories passed, from seed {}, in {took:.0} s ({:.0} per second); digest \
         {digest:016x}",
        args.from,
        histories as f64 / took
    );
    Ok(())
}

/// Tries all orders of all scenarios, and prints how many there are.
fn explore() -> Result<()> {
    let program = library_tests("farreach-sim", "sim")?;
    let tested = command(&program, ["--include-ignored", "explore::", "--nocapture"]).status();
    if !tested.context("cannot start the simulation")?.success() {
        bail!("an order of a scenario failed");
    }
    Ok(())
}

/// Runs some histories. Returns the output of their process.
fn histories(
    program: &str,
    from: u64,
    count: u64,
    (is_logged, profile): (bool, Option<&Path>),
) -> Result<String> {
    let words = ["--ignored", "--exact", "histories::tests::seeds_of_the_environment", "--nocapture"];
    let mut test: Command = command(program, words);
    test.env("FARREACH_SIM_FROM", from.to_string()).env("FARREACH_SIM_SEEDS", count.to_string());
    if is_logged {
        test.env("FARREACH_SIM_LOG", "1");
    }
    if let Some(profile) = profile {
        test.env(coverage::PROFILE, profile);
    }
    let output = test.stderr(Stdio::inherit()).output().context("cannot start the simulation")?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!("a history failed:\n{told}");
    }
    Ok(told)
}

/// The word before the sum of all digests. The sum is the same before and after a change that moves
/// code without changing behaviour.
const DIGEST: &str = "digest";

/// Adds the lines that consist of a number and a description.
fn add(total: &mut BTreeMap<String, u64>, told: &str) {
    for line in told.lines() {
        let Some((times, what)) = line.trim().split_once(' ') else { continue };
        if times == DIGEST
            && let Ok(digest) = u64::from_str_radix(what, 16)
        {
            let sum = total.entry(DIGEST.to_owned()).or_default();
            *sum = sum.wrapping_add(digest);
        }
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
        add(&mut total, "digest ffffffffffffffff\n");
        add(&mut total, "digest 0000000000000003\n");
        assert_eq!(total.get(DIGEST), Some(&2));
    }
}
