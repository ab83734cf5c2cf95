//! Lets many clients contend for a lock in the server's memory, and proves mutual exclusion by a
//! counter beside it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;

use super::reach::Reach;
use crate::exit::{Exit, Failure};
use crate::measure;

/// The offset of the lock: 0 if it is free, otherwise the number of its owner.
pub(super) const LOCK: usize = 0;

/// The offset of the counter, in little-endian order.
pub(super) const COUNTER: usize = 8;

/// The size of both.
pub(super) const BYTES: usize = 16;

/// If no client got the lock for this long, none will.
const STANDSTILL: Duration = Duration::from_secs(30);

/// The results of one client.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    pub(super) acquisitions: u64,
    /// Attempts that found the lock held.
    pub(super) failed_attempts: u64,
    /// Releases at which the lock was no longer held by this client.
    pub(super) intrusions: u64,
    /// Times from the first attempt to the acquisition.
    pub(super) waits: Histogram<u64>,
}

/// The results of all clients.
#[derive(Debug)]
pub(super) struct Contest {
    pub(super) clients: Vec<Tally>,
    pub(super) elapsed: Duration,
    /// The fewest and the most acquisitions of a client when the first client was done. Later there
    /// is less contention.
    pub(super) spread: (u64, u64),
}

impl Contest {
    pub(super) fn acquisitions(&self) -> u64 {
        self.clients.iter().map(|client| client.acquisitions).sum()
    }

    pub(super) fn failed_attempts(&self) -> u64 {
        self.clients.iter().map(|client| client.failed_attempts).sum()
    }

    pub(super) fn intrusions(&self) -> u64 {
        self.clients.iter().map(|client| client.intrusions).sum()
    }

    /// Returns the waits of all clients.
    pub(super) fn waits(&self) -> Histogram<u64> {
        let mut all = measure::histogram();
        for client in &self.clients {
            // Cannot fail: all histograms have the same bounds.
            let _ = all.add(&client.waits);
        }
        all
    }

    /// Returns the failure if the lock did not exclude. `read` is the counter as a client reads it,
    /// `seen` as the server's CPU sees it.
    pub(super) fn verdict(&self, read: u64, seen: u64) -> Option<Failure> {
        let (expected, intrusions) = (self.acquisitions(), self.intrusions());
        if read == expected && seen == expected && intrusions == 0 {
            return None;
        }
        let cause = if intrusions > 0 {
            format!(
                "the lock had another owner when it was released, {intrusions} times; the counter is {read} after {expected} acquisitions"
            )
        } else if read == seen {
            format!("the counter is {read} after {expected} acquisitions, each of which increments it")
        } else {
            format!(
                "after {expected} acquisitions a client reads {read} from the counter, and the server reads {seen}"
            )
        };
        Some(
            Failure::new(Exit::Failed, "the lock does not exclude").cause(cause).fix(
                "do not rely on compare-and-swap over this path; to see the scope of the card's atomics:\nfarreach devices -v",
            ),
        )
    }
}

/// The state that all clients share.
struct Course<'a> {
    rounds: u64,
    /// The acquisitions of each client.
    progress: Vec<AtomicU64>,
    spread: OnceLock<(u64, u64)>,
    /// A client has failed, and may hold the lock for ever.
    is_over: AtomicBool,
    is_enough: &'a (dyn Fn() -> bool + Sync),
}

impl Course<'_> {
    /// Runs one client. Its end is visible to the others.
    fn run(&self, reach: &mut dyn Reach, number: usize) -> Result<Tally> {
        let tally = take_turns(reach, number, self);
        if tally.is_err() {
            self.is_over.store(true, Ordering::Relaxed);
        }
        self.note_spread();
        tally
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || (self.is_enough)()
    }

    fn done(&self) -> u64 {
        self.progress.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn note_spread(&self) {
        let counts = || self.progress.iter().map(|count| count.load(Ordering::Relaxed));
        // Only the first client sets it.
        let _ = self.spread.set((counts().min().unwrap_or(0), counts().max().unwrap_or(0)));
    }
}

/// Has every client take the lock `rounds` times, or until `is_enough`.
pub(super) fn contend(
    clients: &mut [Box<dyn Reach>],
    rounds: u64,
    is_enough: &(dyn Fn() -> bool + Sync),
) -> Result<Contest> {
    let progress = clients.iter().map(|_| AtomicU64::new(0)).collect();
    let course =
        Course { rounds, progress, spread: OnceLock::new(), is_over: AtomicBool::new(false), is_enough };
    let began = Instant::now();
    let tallies: Result<Vec<Tally>> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, reach) in clients.iter_mut().enumerate() {
            let course = &course;
            let client = move || course.run(reach.as_mut(), number);
            threads.push(thread::Builder::new().name(format!("client {number}")).spawn_scoped(scope, client));
        }
        let tallies: Vec<Result<Tally>> = threads
            .into_iter()
            .map(|thread| thread?.join().map_err(|_| anyhow!("the thread of a client panicked"))?)
            .collect();
        // Waits for all clients, then returns the first failure.
        tallies.into_iter().collect()
    });
    let elapsed = began.elapsed();
    Ok(Contest { clients: tallies?, elapsed, spread: course.spread.get().copied().unwrap_or_default() })
}

/// Runs one client.
fn take_turns(reach: &mut dyn Reach, number: usize, course: &Course<'_>) -> Result<Tally> {
    // 0 means that the lock is free.
    let own = number as u64 + 1;
    let mut tally = Tally { acquisitions: 0, failed_attempts: 0, intrusions: 0, waits: measure::histogram() };
    while tally.acquisitions < course.rounds && acquire(reach, own, course, &mut tally)? {
        raise(reach)?;
        // Released by compare-and-swap too, which shows whether the lock was ours all the time.
        let was = reach.compare_and_swap(LOCK, own, 0)?;
        tally.intrusions += u64::from(was != own);
        tally.acquisitions += 1;
        course.progress[number].store(tally.acquisitions, Ordering::Relaxed);
    }
    Ok(tally)
}

/// Tries until the lock is acquired. Returns `false` if the contest is over.
fn acquire(reach: &mut dyn Reach, own: u64, course: &Course<'_>, tally: &mut Tally) -> Result<bool> {
    let began = Instant::now();
    let (mut moved, mut done) = (began, course.done());
    while !course.is_over() {
        if reach.compare_and_swap(LOCK, 0, own)? == 0 {
            tally.waits.saturating_record(began.elapsed().as_nanos() as u64);
            return Ok(true);
        }
        tally.failed_attempts += 1;
        let done_now = course.done();
        if done_now != done {
            (moved, done) = (Instant::now(), done_now);
        } else if moved.elapsed() >= STANDSTILL {
            return Err(Failure::new(Exit::Failed, "the lock is never released")
                .cause(format!("no client acquired it for {STANDSTILL:?}"))
                .fix("check whether another program or the card has changed the memory")
                .into());
        }
        // If there are fewer cores than clients, the owner of the lock needs this one.
        thread::yield_now();
    }
    Ok(false)
}

/// Increments the counter by a read and a write. Two clients at once would lose an increment.
fn raise(reach: &mut dyn Reach) -> Result<()> {
    let raised = counter(reach)? + 1;
    reach.scratch()[..8].copy_from_slice(&raised.to_le_bytes());
    reach.write(COUNTER, 8)
}

/// Reads the counter.
pub(super) fn counter(reach: &mut dyn Reach) -> Result<u64> {
    reach.read(COUNTER, 8)?;
    reach
        .scratch()
        .first_chunk()
        .copied()
        .map(u64::from_le_bytes)
        .ok_or_else(|| anyhow!("the counter was not read"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, Mutex};

    use super::*;

    /// Memory of this process, with a lock that may be made not to exclude: no card has such a lock
    /// for a test.
    struct Near {
        memory: Memory,
        /// With a lock that does not exclude, each client waits here after its read, until the
        /// other has read too.
        all_have_read: Option<Arc<Barrier>>,
        scratch: [u8; BYTES],
    }

    type Memory = Arc<Mutex<[u8; BYTES]>>;

    fn near(count: usize, all_have_read: Option<Arc<Barrier>>) -> (Memory, Vec<Box<dyn Reach>>) {
        let memory: Memory = Arc::default();
        let one = |_| {
            let (memory, all_have_read) = (Arc::clone(&memory), all_have_read.clone());
            Box::new(Near { memory, all_have_read, scratch: [0; BYTES] }) as Box<dyn Reach>
        };
        let clients = (0..count).map(one).collect();
        (memory, clients)
    }

    fn word(memory: &Memory, offset: usize) -> u64 {
        u64::from_le_bytes(memory.lock().unwrap()[offset..offset + 8].try_into().unwrap())
    }

    impl Reach for Near {
        fn scratch(&mut self) -> &mut [u8] {
            &mut self.scratch
        }

        fn read(&mut self, offset: usize, len: usize) -> Result<()> {
            self.scratch[..len].copy_from_slice(&self.memory.lock().unwrap()[offset..offset + len]);
            if let Some(barrier) = &self.all_have_read {
                barrier.wait();
            }
            Ok(())
        }

        fn write(&mut self, offset: usize, len: usize) -> Result<()> {
            self.memory.lock().unwrap()[offset..offset + len].copy_from_slice(&self.scratch[..len]);
            Ok(())
        }

        fn compare_and_swap(&mut self, offset: usize, expected: u64, desired: u64) -> Result<u64> {
            if self.all_have_read.is_some() {
                return Ok(expected);
            }
            let mut memory = self.memory.lock().unwrap();
            let word: &mut [u8] = &mut memory[offset..offset + 8];
            let was = u64::from_le_bytes((*word).try_into().unwrap());
            if was == expected {
                word.copy_from_slice(&desired.to_le_bytes());
            }
            Ok(was)
        }

        fn expect_message(&mut self, _len: usize) -> Result<()> {
            unreachable!("nobody sends one")
        }

        fn recv_message(&mut self) -> Result<Vec<u8>> {
            unreachable!("nobody sends one")
        }
    }

    #[test]
    fn a_lock_that_excludes_loses_no_round() {
        let (memory, mut clients) = near(4, None);
        let contest = contend(&mut clients, 500, &|| false).unwrap();
        assert_eq!(contest.acquisitions(), 2000);
        assert_eq!(contest.waits().len(), 2000);
        assert_eq!(contest.spread.1, 500, "the first one was done");
        let read = counter(clients[0].as_mut()).unwrap();
        assert_eq!((read, word(&memory, COUNTER)), (2000, 2000));
        assert!(contest.verdict(read, read).is_none());
    }

    #[test]
    fn a_lock_that_does_not_exclude_is_noticed() {
        let (memory, mut clients) = near(2, Some(Arc::new(Barrier::new(2))));
        let contest = contend(&mut clients, 10, &|| false).unwrap();
        assert_eq!(contest.acquisitions(), 20);
        // Each two clients have read, and written, the same value.
        let counter = word(&memory, COUNTER);
        let failure = contest.verdict(counter, counter).expect("every second one is lost");
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.cause.unwrap().contains("is 10 after 20 acquisitions"));
    }

    #[test]
    fn who_has_enough_leaves_the_lock_free_and_the_counter_right() {
        let (memory, mut clients) = near(3, None);
        let began = Instant::now();
        let is_enough = || began.elapsed() > Duration::from_millis(20);
        let contest = contend(&mut clients, u64::MAX, &is_enough).unwrap();
        assert_eq!(word(&memory, COUNTER), contest.acquisitions());
        assert_eq!(word(&memory, LOCK), 0, "nobody has it");
    }

    #[test]
    fn every_difference_is_a_verdict() {
        let tally = Tally { acquisitions: 5, failed_attempts: 0, intrusions: 0, waits: measure::histogram() };
        let contest = |intrusions| Contest {
            clients: vec![Tally { intrusions, ..tally.clone() }, tally.clone()],
            elapsed: Duration::from_secs(1),
            spread: (5, 5),
        };
        assert!(contest(0).verdict(10, 10).is_none());
        for (intrusions, read, seen, words) in [
            (0, 9, 9, "counter is 9 after 10"),
            (0, 11, 11, "counter is 11 after 10"),
            (0, 10, 9, "reads 10 from the counter, and the server reads 9"),
            (1, 10, 10, "the lock had another owner when it was released, 1 times"),
        ] {
            let failure = contest(intrusions).verdict(read, seen).expect(words);
            assert!(failure.cause.as_ref().is_some_and(|cause| cause.contains(words)), "{failure:?}");
        }
    }
}
