//! Ends of links to create. Creating one may cost milliseconds of a library's time, during which no
//! other peer is served. So they are created one after the other, with steps and time between: peers
//! that connect again and again get a part of the time at most.

use std::collections::VecDeque;

use super::{Machine, Opening, PeerKey};
use crate::counter::LinkId;
use crate::time::Time;

/// One end of a link is created in this many steps.
const STEPS_PER_OPENING: u32 = 8;

/// After an end of a link was created, none is created for this many times as long.
const REST: u64 = 5;

/// As [`REST`], if there was nothing else to do meanwhile.
const IDLE_REST: u64 = 2;

/// The longest time that counts for one. A process that was stopped meanwhile would rest for long.
const TOOK_MAX: u64 = 100_000_000;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Openings {
    queue: VecDeque<Opening>,
    /// The number of steps until the next one.
    steps: u32,
    /// The earliest time of the next one, and the earliest if there is nothing else to do.
    not_before: Time,
    not_before_idle: Time,
    /// The time at which the last one was begun, if its end is not known.
    begun_at: Option<Time>,
}

impl Openings {
    pub(super) fn push(&mut self, opening: Opening) {
        self.queue.push_back(opening);
    }

    pub(super) fn begin_step(&mut self) {
        self.steps = self.steps.saturating_sub(1);
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns `true` if the end of a link with this id is to be created.
    pub(super) fn has(&self, peer: PeerKey, index: usize, id: LinkId) -> bool {
        self.queue.iter().any(|opening| (opening.peer, opening.index, opening.id) == (peer, index, id))
    }

    /// Returns the time at which the next one is due, if there is one and nothing else to do.
    pub(super) fn next_at(&self) -> Option<Time> {
        (!self.queue.is_empty()).then_some(self.not_before_idle.min(self.not_before))
    }

    /// Returns the next one that is wanted, if it is due.
    pub(super) fn take(&mut self, now: Time, is_wanted: impl Fn(&Opening) -> bool) -> Option<Opening> {
        // Peers that have their links are served first.
        if self.steps > 0 || now < self.not_before {
            return None;
        }
        let opening = std::iter::from_fn(|| self.queue.pop_front()).find(is_wanted)?;
        (self.steps, self.begun_at) = (STEPS_PER_OPENING, Some(now));
        Some(opening)
    }
}

impl Machine {
    /// Returns `true` if an end of a link was created, and the driver has not called
    /// [`end_opening`](Self::end_opening) since.
    #[inline]
    pub fn is_opening(&self) -> bool {
        self.openings.begun_at.is_some()
    }

    /// Tells the time after an end of a link was created: the next one has to wait for a multiple of
    /// what it took. Time that is not told counts as none.
    pub fn end_opening(&mut self, now: Time) {
        if let Some(begun_at) = self.openings.begun_at.take() {
            let took = now.saturating_since(begun_at).min(TOOK_MAX);
            self.openings.not_before = now.saturating_add(took.saturating_mul(REST));
            self.openings.not_before_idle = now.saturating_add(took.saturating_mul(IDLE_REST));
        }
    }

    /// Tells that a step has found nothing to do.
    #[inline]
    pub fn note_idle(&mut self) {
        if self.now >= self.openings.not_before_idle {
            self.openings.not_before = Time::ZERO;
        }
    }
}
