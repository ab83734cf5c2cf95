//! Atomics of one peer: those in flight, and those that wait for a link or for room.

use std::collections::{BTreeSet, VecDeque};

use crate::inflight::SlotId;
use crate::machine::NewAtomic;

/// The maximum number of atomics of one peer in flight.
const IN_FLIGHT_MAX: usize = 64;

/// The maximum number of waiting atomics of one peer.
const WAITING_MAX: usize = 1024;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Atomics {
    in_flight: Vec<SlotId>,
    waiting: VecDeque<NewAtomic>,
}

impl Atomics {
    /// Queues an atomic. Returns `false` if there is no room.
    #[must_use]
    pub(crate) fn push(&mut self, new: NewAtomic) -> bool {
        // A program that does not wait for its answers would fill the memory of this side.
        let has_room = self.waiting.len() < WAITING_MAX;
        if has_room {
            self.waiting.push_back(new);
        }
        has_room
    }

    /// Returns the first waiting atomic.
    pub(crate) fn front(&self) -> Option<NewAtomic> {
        self.waiting.front().copied()
    }

    /// Removes the first waiting atomic.
    pub(crate) fn pop_front(&mut self) {
        self.waiting.pop_front();
    }

    /// Puts back an atomic that no card accepted: it is the first again.
    pub(crate) fn push_front(&mut self, new: NewAtomic) {
        // Atomics of one peer keep their order, on which a program may rely.
        self.waiting.push_front(new);
    }

    /// Returns `true` if one more may be in flight.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX
    }

    /// Adds an atomic that a card has accepted.
    pub(crate) fn posted(&mut self, slot: SlotId) {
        self.in_flight.push(slot);
    }

    /// Removes a completed atomic.
    pub(crate) fn done(&mut self, slot: SlotId) {
        self.in_flight.retain(|other| *other != slot);
    }

    /// Keeps the atomics in flight that `is_known` accepts.
    pub(crate) fn retain(&mut self, is_known: impl Fn(SlotId) -> bool) {
        self.in_flight.retain(|slot| is_known(*slot));
    }

    /// Removes all atomics: those in flight, and those that wait.
    pub(crate) fn drain(&mut self) -> (Vec<SlotId>, VecDeque<NewAtomic>) {
        (std::mem::take(&mut self.in_flight), std::mem::take(&mut self.waiting))
    }

    /// Returns `true` if atomics are waiting.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty() && self.waiting.is_empty()
    }

    /// Returns the numbers of the work requests in flight.
    pub(crate) fn slots(&self) -> BTreeSet<u64> {
        self.in_flight.iter().map(|slot| slot.to_raw()).collect()
    }

    /// Returns the number of atomics in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the bytes of memory that are held.
    pub(crate) fn memory(&self) -> usize {
        self.in_flight.capacity() * size_of::<SlotId>() + self.waiting.capacity() * size_of::<NewAtomic>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::GrantId;
    use crate::machine::{AtomicOperation, OpId, PeerKey};

    fn new(op: u64) -> NewAtomic {
        let request = AtomicOperation::FetchAdd { add: 1 };
        NewAtomic { op: OpId(op), peer: PeerKey(0), grant: GrantId(1), offset: 0, request }
    }

    #[test]
    fn they_wait_in_turn_and_not_without_bound() {
        let mut atomics = Atomics::default();
        assert_eq!((0..2000).filter(|op| atomics.push(new(*op))).count(), WAITING_MAX);
        atomics.pop_front();
        atomics.push_front(new(9));
        assert_eq!(atomics.front().map(|new| new.op), Some(OpId(9)));
        let (in_flight, waiting) = atomics.drain();
        assert_eq!((in_flight.len(), waiting.len()), (0, WAITING_MAX));
        assert!(atomics.is_empty() && !atomics.are_waiting());
    }

    #[test]
    fn no_more_are_in_flight_than_may_be() {
        let mut atomics = Atomics::default();
        for slot in 0..IN_FLIGHT_MAX as u64 {
            assert!(atomics.has_room());
            atomics.posted(SlotId::from_raw(slot));
        }
        assert!(!atomics.has_room() && !atomics.is_empty());
        atomics.done(SlotId::from_raw(3));
        assert!(atomics.has_room());
        atomics.retain(|slot| slot == SlotId::from_raw(4));
        assert_eq!(atomics.in_flight(), 1);
    }
}
