//! Rails that cannot wake anybody: one has to look.
//!
//! Nobody looks for ever. A side that has something in flight on such a rail, or has heard of something there, looks for a while, and
//! then sleeps as if the rail were not there. Whoever posts to it tells the other side so by a frame, which wakes it: when it begins,
//! and again and again while something is in flight.

use std::time::Duration;

/// How long a side looks after it has heard of something. It is longer than [`TELL_EVERY`] by more than a busy machine delays a thread;
/// what comes later all the same is found at the next heartbeat.
const LOOK_FOR: u64 = 60_000_000;

/// How often the other side is told.
const TELL_EVERY: u64 = 20_000_000;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// When something last came or went on such a rail.
    moved_at: u64,
    until: u64,
}

impl Looking {
    /// Something has come over such a rail, or the peer says that it will.
    pub(super) fn expect(&mut self, now: u64) {
        (self.moved_at, self.until) = (now, now + LOOK_FOR);
    }

    /// Something was posted to such a rail.
    #[inline]
    pub(super) fn posted(&mut self, now: u64) {
        self.moved_at = now;
    }

    /// For how long nothing has come or gone on such rails; none where nothing is expected there, so that one may sleep.
    pub(super) fn quiet_for(&self, now: u64, is_any_busy: bool) -> Option<Duration> {
        let is_expecting = now < self.until || is_any_busy;
        is_expecting.then(|| Duration::from_nanos(now.saturating_sub(self.moved_at)))
    }

    /// Whether a peer that was last told then is to be told now that it is to look.
    pub(super) fn is_to_be_told(told_at: Option<u64>, now: u64) -> bool {
        told_at.is_none_or(|told| now >= told + TELL_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_looks_for_a_while_after_the_last_thing_and_while_something_is_in_flight() {
        let mut looking = Looking::default();
        assert_eq!(looking.quiet_for(5, false), None);
        looking.expect(10);
        assert_eq!(looking.quiet_for(15, false), Some(Duration::from_nanos(5)));
        assert_eq!(looking.quiet_for(10 + LOOK_FOR, false), None);
        looking.posted(20);
        assert_eq!(looking.quiet_for(20 + LOOK_FOR, true), Some(Duration::from_nanos(LOOK_FOR)));
    }

    #[test]
    fn a_peer_is_told_now_and_then() {
        assert!(Looking::is_to_be_told(None, 0));
        assert!(!Looking::is_to_be_told(Some(10), 9 + TELL_EVERY));
        assert!(Looking::is_to_be_told(Some(10), 10 + TELL_EVERY));
    }
}
