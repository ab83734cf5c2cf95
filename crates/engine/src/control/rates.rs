//! Rates: how many frames and bytes are read from one connection in a second, and by how many reads.
//! A read costs a call to the kernel, and each TLS record in it a decryption, also if no frame comes
//! of it.
//!
//! A connection that has used up one of them is not read until there are tokens again. TCP then
//! slows the peer down. Its pings wait with its other frames, and any frame is a sign of life:
//! a connection is read again after a hundredth of a second, or as soon as there is a token, so that
//! a peer that is slowed down is not taken for a silent one.

use std::time::{Duration, Instant};

use crate::budgets::ControlBudgets;

const SECOND: Duration = Duration::from_secs(1);

/// A connection that was slowed down is read again when it has the tokens of this part of a second.
/// Fewer would make it wake the engine for single frames.
const PAUSES_PER_SECOND: u64 = 100;

/// The tokens of one connection.
#[derive(Debug)]
pub(super) struct Rates {
    frames: TokenBucket,
    /// There are as many as frames: an honest peer sends a frame at least with each record.
    reads: TokenBucket,
    bytes: TokenBucket,
}

impl Rates {
    pub(super) fn new(budgets: &ControlBudgets, now: Instant) -> Self {
        Self {
            frames: TokenBucket::new(budgets.frames_per_second.into(), now),
            reads: TokenBucket::new(budgets.frames_per_second.into(), now),
            bytes: TokenBucket::new(budgets.bytes_per_second, now),
        }
    }

    /// Returns how many frames may be delivered now.
    pub(super) fn frames(&self, now: Instant) -> usize {
        self.frames.available(now)
    }

    /// Returns how many reads there may be now.
    pub(super) fn reads(&self, now: Instant) -> usize {
        self.reads.available(now)
    }

    /// Returns how many bytes may be read now.
    pub(super) fn bytes(&self, now: Instant) -> usize {
        self.bytes.available(now)
    }

    pub(super) fn take(&mut self, frames: usize, reads: usize, bytes: usize, now: Instant) {
        self.frames.take(frames as u64, now);
        self.reads.take(reads as u64, now);
        self.bytes.take(bytes as u64, now);
    }

    /// Returns until when the connection has to wait, if a token is missing. Bytes that were read
    /// already (`has_more`) need tokens for their frames only.
    pub(super) fn pause(&self, now: Instant, has_more: bool) -> Option<Instant> {
        // Frames need tokens in any case: those that were read are not delivered without.
        let is_out_of_frames = self.frames.available(now) == 0;
        let is_out = |bucket: &TokenBucket| !has_more && bucket.available(now) == 0;
        let frames = is_out_of_frames.then(|| self.frames.ready_at());
        let reads = is_out(&self.reads).then(|| self.reads.ready_at());
        // The latest time: at an earlier one a token is still missing. `None` is less than any
        // time.
        frames.max(reads).max(is_out(&self.bytes).then(|| self.bytes.ready_at()))
    }
}

/// A token bucket that holds the tokens of one second.
#[derive(Debug)]
struct TokenBucket {
    per_second: u64,
    /// When it is full again if nothing is taken.
    full_at: Instant,
}

impl TokenBucket {
    fn new(per_second: u64, now: Instant) -> Self {
        // `time_of` divides by it.
        Self { per_second: per_second.max(1), full_at: now }
    }

    fn available(&self, now: Instant) -> usize {
        let filled = SECOND.saturating_sub(self.full_at.saturating_duration_since(now));
        // In 128 bits: a second in nanoseconds times the rate can exceed 64.
        let tokens = filled.as_nanos() * u128::from(self.per_second) / SECOND.as_nanos();
        usize::try_from(tokens).unwrap_or(usize::MAX)
    }

    fn take(&mut self, count: u64, now: Instant) {
        if count > 0 {
            // Time for which the bucket was full is lost. A read may take more tokens than there
            // are: then `full_at` is more than a second away.
            self.full_at = self.full_at.max(now) + self.time_of(count);
        }
    }

    /// Returns when an empty bucket has some tokens again.
    fn ready_at(&self) -> Instant {
        let some = self.time_of((self.per_second / PAUSES_PER_SECOND).max(1));
        // It is full a second after it was empty, at the earliest.
        self.full_at + some - SECOND
    }

    /// Returns the time in which this many tokens come in.
    fn time_of(&self, count: u64) -> Duration {
        // Rounded up: otherwise more than the rate would pass in the long run.
        let nanos = (u128::from(count) * SECOND.as_nanos()).div_ceil(self.per_second.into());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(frames_per_second: u32, bytes_per_second: u64, now: Instant) -> Rates {
        Rates::new(&ControlBudgets { frames_per_second, bytes_per_second, ..ControlBudgets::default() }, now)
    }

    #[test]
    fn the_tokens_of_a_second_come_at_once_and_one_more_later() {
        let now = Instant::now();
        let mut rates = rates(1000, 1 << 20, now);
        assert_eq!((rates.frames(now), rates.bytes(now)), (1000, 1 << 20));
        rates.take(999, 0, 0, now);
        assert_eq!((rates.frames(now), rates.pause(now, true)), (1, None));
        rates.take(1, 0, 0, now);
        let hundredth = Duration::from_millis(10);
        assert_eq!((rates.frames(now), rates.pause(now, true)), (0, Some(now + hundredth)));
        assert_eq!((rates.frames(now + hundredth), rates.pause(now + hundredth, true)), (10, None));
        assert_eq!(rates.frames(now + SECOND / 2), 500);
        // A pause does not add up to more than a second.
        assert_eq!(rates.frames(now + 100 * SECOND), 1000);
        rates.take(0, 0, 1 << 20, now);
        assert_eq!((rates.bytes(now), rates.bytes(now + SECOND / 4)), (0, 1 << 18));
        let later = now + SECOND / 200;
        assert!(rates.frames(later) > 0 && rates.bytes(later) > 0);
        rates.take(0, 0, rates.bytes(later), later);
        assert_eq!(rates.pause(later, true), None, "what was read is delivered");
        assert!(rates.pause(later, false).is_some_and(|until| until > later));
        // Reads of which no frame comes have tokens of their own.
        let now = now + 2 * SECOND;
        assert_eq!((rates.frames(now), rates.reads(now)), (1000, 1000));
        rates.take(0, 1000, 0, now);
        assert_eq!((rates.frames(now), rates.pause(now, false)), (1000, Some(now + hundredth)));
        assert_eq!(rates.pause(now, true), None, "what was read is delivered");
    }

    /// Over a long time there are as many as the rate says, however they are taken.
    #[test]
    fn no_more_than_the_rate_pass_in_the_long_run() {
        for (per_second, at_once) in [(1, 1), (3, 2), (1000, 7), (200_000, 32), (64 << 20, 65_536)] {
            let (begin, mut taken) = (Instant::now(), 0);
            let (mut rates, mut now) = (rates(per_second, u64::MAX, begin), begin);
            while now < begin + 20 * SECOND {
                while rates.pause(now, true).is_none() {
                    let count = rates.frames(now).min(at_once);
                    rates.take(count, 0, 1, now);
                    taken += count as u64;
                }
                now = rates.pause(now, true).unwrap();
            }
            let most = 21 * u64::from(per_second);
            assert!(taken <= most && taken >= most * 9 / 10, "{taken} of {most}");
        }
    }

    #[test]
    fn no_rate_is_too_high_or_too_low() {
        let now = Instant::now();
        let mut rates = rates(u32::MAX, u64::MAX, now);
        rates.take(usize::MAX, usize::MAX, usize::MAX, now);
        assert!(rates.pause(now, true).is_some());
        let mut slow = self::rates(1, 1, now);
        slow.take(1, 1, 65_536, now);
        assert_eq!(slow.pause(now, false), Some(now + 65_536 * SECOND));
    }
}
