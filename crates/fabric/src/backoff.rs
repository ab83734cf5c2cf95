//! Pauses of increasing length, up to a limit.

use std::thread;
use std::time::Duration;

/// The number of yields before the first sleep.
const YIELDS: u32 = 64;
/// The first sleep.
const SLEEP_MIN: Duration = Duration::from_micros(2);
/// The longest sleep: the latency that a provider without a descriptor may add to a wait.
const SLEEP_MAX: Duration = Duration::from_micros(500);

/// Pauses between attempts: short at first, then longer, up to a limit.
#[derive(Debug)]
pub(crate) struct Backoff {
    attempts: u32,
    sleep: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { attempts: 0, sleep: SLEEP_MIN }
    }

    /// Returns `true` if the next pause is a yield, not a sleep.
    pub(crate) fn is_spinning(&self) -> bool {
        self.attempts < YIELDS
    }

    /// Pauses, at most for `left`.
    pub(crate) fn pause(&mut self, left: Duration) {
        if self.is_spinning() {
            self.attempts += 1;
            thread::yield_now();
            return;
        }
        thread::sleep(self.sleep.min(left));
        self.sleep = (self.sleep * 2).min(SLEEP_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut backoff = Backoff::new();
        for _ in 0..YIELDS {
            assert!(backoff.is_spinning());
            backoff.pause(Duration::ZERO);
        }
        for _ in 0..20 {
            assert!(!backoff.is_spinning());
            backoff.pause(Duration::ZERO);
        }
        assert_eq!(backoff.sleep, SLEEP_MAX);
    }
}
