//! Measurements that both sides of a test make, and the bytes that they send.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand_mt::Mt;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

/// Makes short sleeps of this process precise. The kernel otherwise extends them by up to 50 µs, to
/// wake up less often.
pub(crate) fn sleep_exactly() {
    // No known kernel refuses this. A failure only makes the figures slightly worse.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Measures the CPU time of this process and the elapsed time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    began: Instant,
    cpu_at_begin: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), cpu_at_begin: cpu() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn usage(&self) -> Usage {
        let ns = |time: Duration| time.as_nanos() as u64;
        Usage { cpu_ns: ns(cpu().saturating_sub(self.cpu_at_begin)), wall_ns: ns(self.elapsed()) }
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU usage of one side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Usage {
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
}

impl Usage {
    /// Returns the usage since an earlier reading of the same stopwatch.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            wall_ns: self.wall_ns.saturating_sub(earlier.wall_ns),
        }
    }

    /// Returns the CPU time as a share of one core: more than 1 if several were busy.
    pub(crate) fn share(&self) -> f64 {
        if self.wall_ns == 0 { 0.0 } else { self.cpu_ns as f64 / self.wall_ns as f64 }
    }
}

/// Returns an arbitrary number.
pub(crate) fn any_number() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Returns an arbitrary seed.
pub(crate) fn any_seed() -> u32 {
    any_number() as u32
}

/// Creates a histogram for latencies from 1 ns to 10 minutes, with three significant digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are in order")
}

/// Bytes that both sides can generate from a seed.
///
/// They are random, and each block is stamped with the number of the message, so that bytes of an
/// earlier message are detected.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    bytes: Vec<u8>,
}

/// The start of each block has a stamp, and so has the end of the last one.
const BLOCK: usize = 4096;
const STAMP: usize = 8;

impl Pattern {
    pub(crate) fn new(seed: u32, len: usize) -> Self {
        let mut bytes = vec![0; len];
        Mt::new(seed).fill_bytes(&mut bytes);
        Self { bytes }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns how long one message may be in flight.
    pub(crate) fn patience(&self) -> Duration {
        crate::session::patience(self.len() as u64)
    }

    /// Returns the bytes of message `number`.
    pub(crate) fn stamped(&mut self, number: u64) -> &[u8] {
        let len = self.bytes.len();
        let stamp = |place: usize| (number ^ (place as u64) << 32).to_le_bytes();
        for start in (0..len).step_by(BLOCK) {
            let room = STAMP.min(len - start);
            self.bytes[start..start + room].copy_from_slice(&stamp(start)[..room]);
        }
        if len >= 2 * STAMP {
            self.bytes[len - STAMP..].copy_from_slice(&stamp(len));
        }
        &self.bytes
    }

    /// Checks that these are the bytes of message `number`.
    pub(crate) fn check(&mut self, number: u64, found: &[u8]) -> Result<(), Failure> {
        compare(self.stamped(number), found, || format!("message {number} has wrong bytes"))
    }
}

/// Compares bytes. On a mismatch the failure has this message, and states where they differ.
pub(crate) fn compare(expected: &[u8], found: &[u8], error: impl FnOnce() -> String) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    let failure = Failure::new(Exit::Mismatch, error())
        .fix("do not use this path for data; check the error counters of cards and switches, and the memory");
    Err(match expected.iter().zip(found).position(|(one, other)| one != other) {
        Some(place) => {
            let wrong = expected.iter().zip(found).filter(|(one, other)| one != other).count();
            let (one, other, len) = (expected[place], found[place], expected.len());
            failure.cause(format!(
                "{wrong} of {len} bytes differ; byte {place} is {other:#04x} instead of {one:#04x}"
            ))
        }
        None => failure.cause(format!("{} bytes arrived, {} were sent", found.len(), expected.len())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_told_from_any_other_and_from_one_wrong_byte() {
        for len in [1, 7, 8, 9, 15, 16, 17, 4095, 4096, 4097, 10_000] {
            let (mut ours, mut theirs) = (Pattern::new(7, len), Pattern::new(7, len));
            let sent = theirs.stamped(42).to_vec();
            ours.check(42, &sent).expect("the same");
            let earlier = ours.check(43, &sent).expect_err("another message");
            assert_eq!(earlier.exit, Exit::Mismatch);
            for place in [0, len / 2, len - 1] {
                let mut spoilt = sent.clone();
                spoilt[place] ^= 1;
                let failure = ours.check(42, &spoilt).expect_err("a wrong byte");
                assert!(failure.cause.expect("a cause").starts_with("1 of"), "byte {place} of {len}");
            }
            assert!(ours.check(42, &sent[1..]).is_err());
        }
    }
}
