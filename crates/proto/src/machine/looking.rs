//! Polling of rails that cannot wake a sleeping driver.
//!
//! No side polls forever. A side polls for a while after it posted to such a rail or heard of
//! operations there, and then sleeps as if the rail did not exist. A side that posts to such a rail
//! sends the other one a `Look` frame, which wakes it: at the beginning, and repeatedly while
//! something is in flight or has no room.

use crate::time::Time;
use std::time::Duration;

/// The time in nanoseconds for which a side polls after it has heard of something. It exceeds
/// [`TELL_EVERY`] by more than a busy machine delays a thread. An operation that arrives even later
/// is found at the next heartbeat.
const LOOK_FOR: u64 = 60_000_000;

/// The interval of `Look` frames in nanoseconds.
const TELL_EVERY: u64 = 20_000_000;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// The time of the last arrival or post on such a rail.
    moved_at: Time,
    until: Time,
}

impl Looking {
    /// Notes that something arrived over such a rail, or that the peer announced it.
    pub(super) fn expect(&mut self, now: Time) {
        (self.moved_at, self.until) = (now, now + LOOK_FOR);
    }

    /// Notes that such a rail had no room. It may still be connecting, and does so only while both sides
    /// poll.
    pub(super) fn refused(&mut self, now: Time) {
        // Refusals come in every step. They must not keep a driver awake that sees nothing move.
        if now >= self.until {
            self.moved_at = now;
        }
        self.until = now + LOOK_FOR;
    }

    /// Notes that something was posted to such a rail.
    #[inline]
    pub(super) fn posted(&mut self, now: Time) {
        // `until` stays: a rail with operations in flight is polled in any case.
        self.moved_at = now;
    }

    /// Returns for how long nothing has happened on such rails. Returns `None` if nothing is
    /// expected there, so that the driver may sleep.
    pub(super) fn quiet_for(&self, now: Time, is_any_busy: bool) -> Option<Duration> {
        let is_expecting = now < self.until || is_any_busy;
        is_expecting.then(|| Duration::from_nanos(now.saturating_since(self.moved_at)))
    }

    /// Returns `true` if a `Look` frame is due for a peer that got the last one at `told_at`.
    pub(super) fn is_to_be_told(told_at: Option<Time>, now: Time) -> bool {
        told_at.is_none_or(|told| now >= told + TELL_EVERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_looks_for_a_while_after_the_last_thing_and_while_something_is_in_flight() {
        let mut looking = Looking::default();
        assert_eq!(looking.quiet_for(Time(5), false), None);
        looking.expect(Time(10));
        assert_eq!(looking.quiet_for(Time(15), false), Some(Duration::from_nanos(5)));
        assert_eq!(looking.quiet_for(Time(10 + LOOK_FOR), false), None);
        looking.posted(Time(20));
        assert_eq!(looking.quiet_for(Time(20 + LOOK_FOR), true), Some(Duration::from_nanos(LOOK_FOR)));
    }

    #[test]
    fn one_looks_while_a_rail_has_no_room_and_soon_less_often() {
        let mut looking = Looking::default();
        looking.refused(Time(10));
        looking.refused(Time(30));
        assert_eq!(looking.quiet_for(Time(40), false), Some(Duration::from_nanos(30)));
        assert_eq!(looking.quiet_for(Time(30 + LOOK_FOR), false), None);
        looking.refused(Time(30 + LOOK_FOR));
        assert_eq!(looking.quiet_for(Time(35 + LOOK_FOR), false), Some(Duration::from_nanos(5)));
    }

    #[test]
    fn a_peer_is_told_now_and_then() {
        assert!(Looking::is_to_be_told(None, Time::ZERO));
        assert!(!Looking::is_to_be_told(Some(Time(10)), Time(9 + TELL_EVERY)));
        assert!(Looking::is_to_be_told(Some(Time(10)), Time(10 + TELL_EVERY)));
    }
}
