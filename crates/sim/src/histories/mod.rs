//! Whole engines, in virtual time: some hosts with some cards each, their users, and whatever can go wrong.
//!
//! A seed decides who is there, what the users ask for, and what fails when. The same code that runs in an engine runs here, each
//! host's [machine](farreach_proto::machine) over [simulated cards](crate), with a control channel that is in order and late. Nothing is left to the
//! clock or to a thread, so that the same seed gives the same history.
//!
//! After every step of a machine it is looked whether what it says is true. A counter has counted no page that is not there. A transfer
//! that is done has its bytes in the peer's memory; its source is its user's again, who writes over it at once. Memory that was
//! granted comes back when nothing of the peer's can land in it any more, and stays as its user fills it. Messages come in order, each
//! once. Words were changed once. Every wait ends in time, and no peer is lost that is well. In the end nothing goes wrong any more: all
//! that was begun ends, whoever lives goes on, and when everybody has left, nothing is kept.
//!
//! `cargo xtask sim` runs many histories. One that fails is told by its seed.

mod answer;
mod chance;
mod channel;
mod check;
mod close;
mod content;
mod fate;
mod messages;
mod pages;
mod party;
mod scenario;
mod thing;
mod user;
mod world;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

/// What one history contained, and its digest.
type Told = (BTreeMap<&'static str, u64>, u64);

/// The sum of the digests of all histories: the same before and after a change that moves code and no behaviour.
const DIGEST: &str = "digest";

/// Runs one history.
fn run(seed: u64, is_logged: bool) -> Told {
    let mut world = World::new(seed, is_logged);
    world.storm();
    world.calm();
    world.go_on();
    world.wind_up();
    world.finish();
    (std::mem::take(&mut world.tally), world.digest)
}

/// Whoever replays a history reads it.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Runs histories, and tells how the first one that fails is replayed.
fn run_all(seeds: impl Iterator<Item = u64>, is_logged: bool) -> BTreeMap<&'static str, u64> {
    let mut total = BTreeMap::new();
    for seed in seeds {
        let Ok((tally, digest)) = catch_unwind(AssertUnwindSafe(|| run(seed, is_logged))) else {
            if std::env::var_os("FARREACH_SIM_ON").is_some() {
                *total.entry("failures").or_default() += 1;
                continue;
            }
            panic!("seed {seed} fails: `cargo xtask sim --from {seed} --seeds 1 --log` replays it");
        };
        for (what, times) in tally {
            *total.entry(what).or_default() += times;
        }
        *total.entry("histories").or_default() += 1;
        // Whoever moves code holds it against the one before.
        let sum: &mut u64 = total.entry(DIGEST).or_default();
        *sum = sum.wrapping_add(digest);
    }
    total
}

#[test]
fn some_seeds() {
    run_all(0..300, false);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..20 {
        let digests = [(); 2].map(|()| run(seed, false).1);
        assert_eq!(digests[0], digests[1], "seed {seed}");
    }
}

/// What `cargo xtask sim` runs: which seeds is told by the environment.
#[test]
#[ignore = "`cargo xtask sim` runs it"]
fn seeds_of_the_environment() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (from, count) = (number("FARREACH_SIM_FROM").unwrap_or(0), number("FARREACH_SIM_SEEDS").unwrap_or(1));
    let is_logged = number("FARREACH_SIM_LOG").is_some();
    let started = std::time::Instant::now();
    let total = run_all(from..from + count, is_logged);
    for (what, times) in total {
        match what {
            DIGEST => print(&format!("digest {times:016x}")),
            _ => print(&format!("{times:>12} {what}")),
        }
    }
    print(&format!("{:.1} s", started.elapsed().as_secs_f64()));
}
