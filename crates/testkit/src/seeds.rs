//! One test with many seeds.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Runs a test with the seeds from 0 to `count`, on all cores. A failure reports its seed, which
/// `FARREACH_SEED=<seed>` in the environment replays. `FARREACH_SEEDS=<count>` runs another number
/// of them. Returns how many it ran, so that a test can check statistics only over many.
///
/// # Panics
///
/// Panics if the test panics with one of the seeds, and names the lowest of these.
pub fn for_each_seed(count: u64, test: impl Fn(u64) + Sync) -> u64 {
    if let Some(seed) = number("FARREACH_SEED") {
        test(seed);
        return 1;
    }
    let count = number("FARREACH_SEEDS").unwrap_or(count);
    assert!(count > 0, "a test with no seed tests nothing");
    let (next, failing) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count || failing.load(Ordering::Relaxed) != u64::MAX {
                return;
            }
            // The test's own panic has been printed by then.
            if catch_unwind(AssertUnwindSafe(|| test(seed))).is_err() {
                failing.fetch_min(seed, Ordering::Relaxed);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let failing = failing.into_inner();
    assert!(
        failing == u64::MAX,
        "seed {failing} fails: replay it by FARREACH_SEED={failing} in the environment"
    );
    count
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable}={text}, which is not a number")))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_seed_is_run_once() {
        let seen = Mutex::new(Vec::new());
        assert_eq!(for_each_seed(100, |seed| seen.lock().unwrap().push(seed)), 100);
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }

    #[test]
    #[should_panic(expected = "seed 7 fails: replay it by FARREACH_SEED=7")]
    fn a_failure_tells_its_seed() {
        for_each_seed(100, |seed| assert_ne!(seed, 7));
    }
}
