//! When the machine looks at the time.

use super::Tuning;

/// How often timers are looked at, at most.
const INTERVAL: u64 = 1_000_000;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Timers {
    /// When they are looked at again.
    due_at: u64,
    /// Whether nothing but keep-alives was found when they last were.
    is_idle: bool,
    /// Of ours and of what the peers that are there want to hear.
    heartbeat: u64,
}

impl Timers {
    pub(super) fn new(heartbeat: u64) -> Self {
        Self { due_at: 0, is_idle: false, heartbeat }
    }

    /// Something has begun that takes time: they are looked at soon.
    #[inline]
    pub(super) fn mark_dirty(&mut self, now: u64) {
        self.is_idle = false;
        self.due_at = self.due_at.min(now + INTERVAL);
    }

    #[inline]
    pub(super) fn are_due(&self, now: u64) -> bool {
        now >= self.due_at
    }

    /// They are looked at. What is found to be in flight [meanwhile](Self::note) makes the next look come sooner.
    pub(super) fn begin(&mut self, heartbeat: u64) {
        (self.is_idle, self.heartbeat) = (true, heartbeat);
    }

    /// Something was found that changes by time alone, or not.
    pub(super) fn note(&mut self, is_active: bool) {
        self.is_idle &= !is_active;
    }

    /// A peer wants to hear from us so often.
    pub(super) fn note_heartbeat(&mut self, heartbeat: u64) {
        self.heartbeat = self.heartbeat.min(heartbeat);
    }

    /// They were looked at.
    pub(super) fn end(&mut self, now: u64) {
        // With some thousand peers it takes a while; while they are all idle, keep-alives need no better clock.
        self.due_at = now + if self.is_idle { INTERVAL.max(self.heartbeat / 8) } else { INTERVAL };
    }

    /// When the next step is due, though nothing happens until then.
    pub(super) fn next_step(&self, tuning: &Tuning, now: u64) -> u64 {
        // Half of the shortest time of all, where anybody is there; timers are few and coarse.
        let shortest = self.heartbeat.min(tuning.drain).min(tuning.cool_down).max(INTERVAL);
        now + if self.is_idle { shortest / 2 } else { INTERVAL.max(shortest / 16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_looked_at_soon_when_something_has_begun() {
        let mut timers = Timers::new(80 * INTERVAL);
        assert!(timers.are_due(0));
        timers.begin(80 * INTERVAL);
        timers.end(0);
        assert!(
            !timers.are_due(10 * INTERVAL - 1) && timers.are_due(10 * INTERVAL),
            "an eighth of the heartbeat"
        );
        timers.mark_dirty(2 * INTERVAL);
        assert!(!timers.are_due(3 * INTERVAL - 1) && timers.are_due(3 * INTERVAL));
        timers.begin(80 * INTERVAL);
        timers.note(false);
        timers.note(true);
        timers.note(false);
        timers.end(3 * INTERVAL);
        assert!(timers.are_due(4 * INTERVAL), "something is in flight");
    }

    #[test]
    fn a_peer_that_wants_to_hear_more_often_makes_them_come_sooner() {
        let mut timers = Timers::new(80 * INTERVAL);
        timers.begin(80 * INTERVAL);
        timers.note_heartbeat(16 * INTERVAL);
        timers.note_heartbeat(40 * INTERVAL);
        timers.end(0);
        assert!(timers.are_due(2 * INTERVAL));
    }
}
