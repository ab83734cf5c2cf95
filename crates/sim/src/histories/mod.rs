//! Whole engines in virtual time: some hosts with some cards each, their users, and all faults.
//!
//! A seed determines the hosts, the requests of the users, and the faults with their times. The
//! same code runs as in an engine: each host's [machine](farreach_proto::machine) over [simulated
//! cards](crate), with a control connection that is ordered and delayed. Nothing depends on a clock
//! or a thread, so the same seed gives the same history.
//!
//! After every step of a machine, its answers are checked. A counter has counted no page that has
//! not arrived. A finished transfer has its bytes in the peer's memory; its source is its user's
//! again, who overwrites it at once. Granted memory comes back when no operation of the peer can
//! land in it any more, and keeps its content from then on. A peer that has lost a publication does not
//! change it any more, and cannot open it. Messages arrive in order, each once.
//! Atomics take effect once. Every wait ends in time, and no healthy peer is lost. At the end all
//! faults stop: everything that was begun ends, living engines continue, and when all users have
//! left, nothing is kept.
//!
//! In some histories one host [lies](liar), and in some the control connection between two hosts is
//! silent for a while, in one direction or both. Then everything above holds for the others: what
//! is between honest hosts is exact, every wait of an honest host ends, memory that is back stays
//! as it is, and what an honest machine keeps for the liar is within its budgets.
//!
//! `cargo xtask sim` runs many histories. A failed one is reported by its seed.

mod answer;
mod chance;
mod channel;
mod check;
mod close;
mod content;
mod fate;
mod forged;
mod liar;
mod messages;
mod pages;
mod partition;
mod party;
mod publications;
mod scenario;
mod shared_counters;
mod thing;
mod user;
mod world;

use std::collections::BTreeMap;
use std::io::Write;

use chance::Chance;
use world::World;

/// The events of one history with their numbers, and its digest.
type Told = (BTreeMap<&'static str, u64>, u64);

/// Runs the history that an input chooses: the hosts by its first eight bytes, and what users and the liar
/// do by the others. Faults and delays are drawn.
///
/// # Panics
///
/// If a guarantee does not hold.
pub fn run_input(input: &[u8]) {
    let Some((seed, choices)) = input.split_first_chunk() else { return };
    // What the liar says is chosen, too.
    let (seed, chance) = (u64::from_le_bytes(*seed), Chance::of_input(choices));
    live(World::new(seed, chance.clone(), chance, false));
}

fn live(mut world: World) -> Told {
    world.storm();
    world.calm();
    world.go_on();
    world.wind_up();
    world.finish();
    (std::mem::take(&mut world.tally), world.digest)
}

/// Prints a line for the reader of a replay.
fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Histories of many seeds.
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use farreach_proto::wire::fields::Kind;

    use super::chance::Chance;
    use super::scenario::Scenario;
    use super::world::World;
    use super::{Told, live, print};

    /// The sum of the digests of all histories: equal before and after a change that moves code without
    /// a change of behaviour.
    const DIGEST: &str = "digest";

    /// Runs one history.
    fn run(seed: u64, is_logged: bool) -> Told {
        // Each has another stream than the scenario.
        let [chance, of_liar] = [!seed, seed.rotate_left(7)].map(Chance::new);
        live(World::new(seed, chance, of_liar, is_logged))
    }

    /// Runs histories. Reports how to replay the first one that fails.
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
            // Compared before and after a change that only moves code.
            let sum: &mut u64 = total.entry(DIGEST).or_default();
            *sum = sum.wrapping_add(digest);
        }
        total
    }

    #[test]
    fn some_seeds() {
        let tally = run_all(0..300, false);
        for kind in Kind::ALL {
            // An engine says so before its machine has a peer.
            let is_sent = *kind != Kind::Refused;
            assert_eq!(tally.contains_key(kind.name()), is_sent, "{kind:?}: {tally:?}");
        }
    }

    /// What users, connections and rails may call.
    #[test]
    fn every_call_of_a_machine_occurs_in_histories() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let files = |folder: &str| {
            let entries = std::fs::read_dir(crates.join(folder)).unwrap().map(|entry| entry.unwrap().path());
            entries.filter(|path| path.extension().is_some_and(|it| it == "rs")).collect::<Vec<_>>()
        };
        let mut callers = read(&crates.join("rail/src/carrier.rs"));
        files("sim/src/histories").iter().for_each(|path| callers.push_str(&read(path)));
        let mut calls = 0;
        for path in files("proto/src/machine") {
            let mut is_of_machine = false;
            for line in read(&path).lines() {
                if line.starts_with("impl") {
                    is_of_machine = line == "impl Machine {";
                }
                let Some((name, rest)) = line.strip_prefix("    pub fn ").and_then(|it| it.split_once('('))
                else {
                    continue;
                };
                if is_of_machine && rest.starts_with("&mut self") {
                    assert!(callers.contains(&format!(".{name}(")), "no history calls `Machine::{name}`");
                    calls += 1;
                }
            }
        }
        assert!(calls > 40, "{calls} calls were found");
    }

    /// Histories with a host that lies.
    #[test]
    fn lying_seeds() {
        let is_lying = |seed: &u64| Scenario::new(*seed).lying.is_some();
        let tally = run_all((1000..2200).filter(is_lying), false);
        for what in ["lies", "frames invented", "posts forged"] {
            assert!(tally.get(what).is_some_and(|times| *times > 1000), "{what}: {tally:?}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_history() {
        for seed in 0..20 {
            let digests = [(); 2].map(|()| run(seed, false).1);
            assert_eq!(digests[0], digests[1], "seed {seed}");
        }
    }

    /// The test that `cargo xtask sim` runs. The environment names the seeds.
    #[test]
    #[ignore = "`cargo xtask sim` runs it"]
    fn seeds_of_the_environment() {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let (from, count) =
            (number("FARREACH_SIM_FROM").unwrap_or(0), number("FARREACH_SIM_SEEDS").unwrap_or(1));
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
}
