//! The schedule of the machine's timers: each peer has a due time, and only peers that are due are
//! visited. Resets and revocations have one due time together.

use std::collections::BTreeSet;

use super::PeerKey;
use crate::time::Time;

/// The minimum interval between two runs of one timer, in nanoseconds.
pub(super) const INTERVAL: u64 = 1_000_000;

/// See the [module](self).
///
/// The due time of a peer is kept with the peer, and passed to the methods.
#[derive(Debug)]
pub(super) struct Timers {
    peers: BTreeSet<(Time, PeerKey)>,
    /// The due time of resets and revocations.
    common: Time,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self { peers: BTreeSet::new(), common: Time::NEVER }
    }

    /// Lets a peer be due at this time, unless it is due before.
    #[inline]
    pub(super) fn schedule(&mut self, key: PeerKey, due_at: &mut Time, at: Time) {
        if at < *due_at {
            self.peers.remove(&(*due_at, key));
            self.peers.insert((at, key));
            *due_at = at;
        }
    }

    /// Lets resets and revocations be due at this time, unless they are due before.
    pub(super) fn schedule_common(&mut self, at: Time) {
        self.common = self.common.min(at);
    }

    #[inline]
    pub(super) fn are_due(&self, now: Time) -> bool {
        now >= self.next()
    }

    /// Returns the first due time.
    #[inline]
    pub(super) fn next(&self) -> Time {
        self.peers.first().map_or(Time::NEVER, |(at, _)| *at).min(self.common)
    }

    /// Removes a peer that is due, and returns it.
    pub(super) fn take_due(&mut self, now: Time) -> Option<PeerKey> {
        let (at, key) = *self.peers.first()?;
        (at <= now).then(|| {
            self.peers.pop_first();
            key
        })
    }

    /// Returns `true` if resets and revocations are due, and schedules none.
    pub(super) fn take_common(&mut self, now: Time) -> bool {
        let is_due = self.common <= now;
        if is_due {
            self.common = Time::NEVER;
        }
        is_due
    }

    /// Returns `true` if a peer is due at this time.
    pub(super) fn has(&self, key: PeerKey, due_at: Time) -> bool {
        self.peers.contains(&(due_at, key))
    }

    /// Returns `true` if a run for resets and revocations is scheduled.
    pub(super) fn is_common_scheduled(&self) -> bool {
        self.common != Time::NEVER
    }

    /// Removes a peer that is gone.
    pub(super) fn remove(&mut self, key: PeerKey, due_at: Time) {
        self.peers.remove(&(due_at, key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerKey = PeerKey(1);
    const B: PeerKey = PeerKey(2);

    #[test]
    fn only_peers_that_are_due_are_visited_in_order() {
        let (mut timers, mut a, mut b) = (Timers::new(), Time::NEVER, Time::NEVER);
        timers.schedule(A, &mut a, Time(20));
        timers.schedule(B, &mut b, Time(30));
        timers.schedule(B, &mut b, Time(10));
        timers.schedule(B, &mut b, Time(40));
        assert_eq!((a, b, timers.next()), (Time(20), Time(10), Time(10)), "the earlier time stays");
        assert!(!timers.are_due(Time(9)) && timers.are_due(Time(10)));
        assert_eq!((timers.take_due(Time(10)), timers.take_due(Time(10))), (Some(B), None));
        assert_eq!(timers.take_due(Time(25)), Some(A));
        assert_eq!((timers.next(), timers.take_due(Time::NEVER)), (Time::NEVER, None));
    }

    #[test]
    fn one_that_is_gone_is_not_visited() {
        let (mut timers, mut a) = (Timers::new(), Time::NEVER);
        timers.schedule(A, &mut a, Time(20));
        timers.remove(A, a);
        assert_eq!(timers.take_due(Time(20)), None);
    }

    #[test]
    fn resets_and_revocations_are_due_together() {
        let mut timers = Timers::new();
        assert!(!timers.take_common(Time(u64::MAX - 1)));
        timers.schedule_common(Time(20));
        timers.schedule_common(Time(30));
        assert!(!timers.take_common(Time(19)) && timers.are_due(Time(20)) && timers.take_common(Time(20)));
        assert!(!timers.take_common(Time(20)), "once");
    }
}
