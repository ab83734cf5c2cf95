//! The schedule of the machine's timers.

use super::Tuning;

/// The minimum interval between two runs of the timers, in nanoseconds.
const INTERVAL: u64 = 1_000_000;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Timers {
    /// The time of the next run.
    due_at: u64,
    /// Whether the last run found nothing but keep-alives.
    is_idle: bool,
    /// The shortest heartbeat of this side and its peers.
    heartbeat: u64,
}

impl Timers {
    pub(super) fn new(heartbeat: u64) -> Self {
        Self { due_at: 0, is_idle: false, heartbeat }
    }

    /// Schedules a run soon, because something has begun that takes time.
    #[inline]
    pub(super) fn mark_dirty(&mut self, now: u64) {
        self.is_idle = false;
        self.due_at = self.due_at.min(now + INTERVAL);
    }

    #[inline]
    pub(super) fn are_due(&self, now: u64) -> bool {
        now >= self.due_at
    }

    /// Begins a run. Activity that is [noted](Self::note) meanwhile makes the next run come sooner.
    pub(super) fn begin(&mut self, heartbeat: u64) {
        (self.is_idle, self.heartbeat) = (true, heartbeat);
    }

    /// Notes whether something was found that changes with time alone.
    pub(super) fn note(&mut self, is_active: bool) {
        self.is_idle &= !is_active;
    }

    /// Notes the heartbeat that a peer asks for.
    pub(super) fn note_heartbeat(&mut self, heartbeat: u64) {
        self.heartbeat = self.heartbeat.min(heartbeat);
    }

    /// Ends a run, and schedules the next one.
    pub(super) fn end(&mut self, now: u64) {
        // A run takes a while with thousands of peers. While all are idle, keep-alives need no
        // finer clock.
        self.due_at = now + if self.is_idle { INTERVAL.max(self.heartbeat / 8) } else { INTERVAL };
    }

    /// Returns the time at which the next step is due even if nothing happens before.
    pub(super) fn next_step(&self, tuning: &Tuning, now: u64) -> u64 {
        // Half of the shortest interval is sufficient while idle: timers are few and coarse.
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
