//! Whether a peer is alive: when it was last heard, and whether it owes an answer to a ping.

use super::Tuning;
use crate::time::Time;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Liveness {
    heard_at: Time,
    /// The time of the ping that the peer has not answered yet. Frames arrive in order and none is
    /// lost, so there is one at most.
    pinged_at: Option<Time>,
    /// The time until which something waits for the peer that only the driver knows.
    watched_until: Option<Time>,
}

impl Liveness {
    pub(super) fn new(now: Time) -> Self {
        Self { heard_at: now, pinged_at: None, watched_until: None }
    }

    /// Notes a frame of the peer. Returns `true` if it answers a ping: each frame is a sign of life.
    #[inline]
    pub(crate) fn hear(&mut self, now: Time) -> bool {
        // Any frame will do, so that a busy peer costs no pings.
        self.heard_at = now;
        self.pinged_at.take().is_some()
    }

    /// Returns the silence of a peer that has not answered in time.
    pub(crate) fn silence(&self, now: Time, tuning: &Tuning) -> Option<u64> {
        let is_late = self.pinged_at.is_some_and(|at| now >= at.saturating_add(answer_within(tuning)));
        is_late.then(|| now.saturating_since(self.heard_at))
    }

    /// Returns `true` if the peer is to be pinged now, and notes the ping. `is_initiator`: this side
    /// made the connection.
    pub(crate) fn ping(&mut self, is_awaited: bool, is_initiator: bool, now: Time, tuning: &Tuning) -> bool {
        // One at a time: a second ping would move the time at which the answer is late.
        let is_due = self.pinged_at.is_none() && now >= self.ping_at(is_awaited, is_initiator, tuning);
        if is_due {
            self.pinged_at = Some(now);
        }
        is_due
    }

    /// Begins or extends a watch.
    pub(crate) fn watch(&mut self, until: Time) {
        self.watched_until = Some(until);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched_until.is_some()
    }

    /// Returns `true` if a watch ends now.
    pub(crate) fn end_watch(&mut self, now: Time) -> bool {
        self.watched_until.take_if(|until| now >= *until).is_some()
    }

    /// Returns the time at which it is to be looked at, if nothing happens before.
    pub(crate) fn next_due(&self, is_awaited: bool, is_initiator: bool, tuning: &Tuning) -> Time {
        let next = match self.pinged_at {
            Some(at) => at.saturating_add(answer_within(tuning)),
            None => self.ping_at(is_awaited, is_initiator, tuning),
        };
        let next = next.min(self.watched_until.unwrap_or(Time::NEVER));
        // Peers are due together, so that a driver that sleeps is woken a few times for all of them.
        let interval = if is_awaited { tuning.heartbeat } else { tuning.idle_heartbeat };
        let together = (interval / 8).max(1);
        Time(next.0.div_ceil(together).saturating_mul(together))
    }

    fn ping_at(&self, is_awaited: bool, is_initiator: bool, tuning: &Tuning) -> Time {
        let interval = match (is_awaited, is_initiator) {
            (true, _) => tuning.heartbeat,
            (false, false) => tuning.idle_heartbeat,
            // One side pings, and the other hears that. The side with many peers is more often the one
            // that accepts, and pings many of them together.
            (false, true) => tuning.idle_heartbeat.saturating_add(tuning.idle_heartbeat / 2),
        };
        self.heard_at.saturating_add(interval)
    }
}

/// A peer that is awaited is pinged after a heartbeat interval of silence, and is lost when all of the
/// permitted silence is over.
fn answer_within(tuning: &Tuning) -> u64 {
    tuning.silence.saturating_sub(tuning.heartbeat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::tuning;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_peer_is_pinged_once_and_lost_when_the_permitted_silence_is_over() {
        let (tuning, mut peer) = (tuning(), Liveness::new(Time::ZERO));
        assert!(!peer.ping(true, true, Time(tuning.heartbeat - 1), &tuning));
        assert!(peer.ping(true, true, Time(tuning.heartbeat), &tuning));
        assert!(!peer.ping(true, true, Time(2 * tuning.heartbeat), &tuning), "it owes an answer");
        assert_eq!(peer.silence(Time(tuning.silence - 1), &tuning), None);
        assert_eq!(peer.silence(Time(tuning.silence), &tuning), Some(tuning.silence));
        assert!(peer.hear(Time(tuning.silence)) && !peer.hear(Time(tuning.silence)));
        assert_eq!(peer.silence(Time(tuning.silence), &tuning), None, "any frame is an answer");
        assert!(peer.ping(true, true, Time(tuning.silence + tuning.heartbeat), &tuning));
    }

    #[test]
    fn silence_is_no_fault_of_a_peer_that_was_not_pinged() {
        let (tuning, mut peer) = (tuning(), Liveness::new(Time::ZERO));
        let late = 10 * tuning.silence;
        assert_eq!(peer.silence(Time(late), &tuning), None);
        assert!(peer.ping(true, true, Time(late), &tuning), "a wait begins with a ping");
        assert_eq!(peer.silence(Time(late + tuning.silence - tuning.heartbeat - 1), &tuning), None);
        assert!(peer.silence(Time(late + tuning.silence - tuning.heartbeat), &tuning).is_some());
    }

    #[test]
    fn a_peer_that_nothing_waits_for_is_pinged_rarely_and_first_by_the_side_that_accepted() {
        let (tuning, mut peer) = (tuning(), Liveness::new(Time::ZERO));
        let idle = tuning.idle_heartbeat;
        assert!(
            !peer.ping(false, false, Time(idle - 1), &tuning) && !peer.ping(false, true, Time(idle), &tuning)
        );
        assert_eq!(peer.next_due(false, false, &tuning), Time(idle.next_multiple_of(idle / 8)));
        assert!(peer.ping(false, false, Time(idle), &tuning));
        assert!(peer.next_due(false, false, &tuning) >= Time(idle + tuning.silence - tuning.heartbeat));
        let mut peer = Liveness::new(Time::ZERO);
        assert!(!peer.ping(false, true, Time(idle * 3 / 2 - 1), &tuning));
        assert!(peer.ping(false, true, Time(idle * 3 / 2), &tuning));
    }

    #[test]
    fn a_watch_ends_once() {
        let (tuning, mut peer) = (tuning(), Liveness::new(Time::ZERO));
        assert!(!peer.end_watch(Time::NEVER));
        peer.watch(Time(2 * MS));
        assert!(peer.is_watched() && !peer.end_watch(Time(2 * MS - 1)));
        assert_eq!(
            peer.next_due(false, false, &tuning),
            Time(2500 * 1000),
            "it is looked at when the watch ends"
        );
        assert!(peer.end_watch(Time(2 * MS)) && !peer.is_watched() && !peer.end_watch(Time(2 * MS)));
    }
}
