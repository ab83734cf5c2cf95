//! The order in which peers post. Messages and atomics come first, peer by peer; pages follow, by
//! deficit round robin.
//!
//! The posts of one step are a *round*. It ends when no peer has anything left or any room, or when
//! the step has posted enough.

use std::collections::VecDeque;

use super::PeerKey;
use crate::credit::RoundRobin;

/// The bytes of pages that one peer may post before the next one has its turn.
const TURN_BYTES: u32 = 1 << 20;

/// The maximum number of work requests with pages in one round.
const PAGES_PER_ROUND: usize = 64;

/// The maximum number of peers without room that one round visits.
const FULL_MAX: u32 = 4;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Turns {
    /// Peers that have messages or atomics to post.
    senders: VecDeque<PeerKey>,
    /// The number of them that are still to be visited in this round.
    senders_left: usize,
    /// The number of free buffers for messages.
    message_buffers: usize,
    /// Peers that have pages to post.
    pages: RoundRobin,
    pages_left: usize,
    /// The number of peers that had no room for pages in this round.
    full: u32,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            senders: VecDeque::new(),
            senders_left: 0,
            message_buffers: 0,
            pages: RoundRobin::new(TURN_BYTES),
            pages_left: 0,
            full: 0,
        }
    }
}

impl Turns {
    /// Begins a round, with so many free buffers for messages.
    pub(super) fn begin_round(&mut self, message_buffers: usize) {
        (self.message_buffers, self.pages_left, self.full) = (message_buffers, PAGES_PER_ROUND, 0);
    }

    /// Visits all peers with messages or atomics in the next round.
    pub(super) fn ask_all_senders(&mut self) {
        self.senders_left = self.senders.len();
    }

    /// Returns `true` if no peer has anything to post.
    #[inline]
    pub(super) fn are_over(&self) -> bool {
        self.senders.is_empty() && self.pages.current().is_none()
    }

    /// Returns `true` if peers with messages or atomics are left in this round.
    #[inline]
    pub(super) fn has_senders(&self) -> bool {
        self.senders_left > 0
    }

    /// Returns the peer that may post messages or atomics now.
    pub(super) fn sender(&self) -> Option<PeerKey> {
        self.senders.front().copied().filter(|_| self.has_senders())
    }

    /// Removes the current peer from the queue: it has nothing more to post now. Returns its key.
    pub(super) fn end_sender(&mut self) -> Option<PeerKey> {
        self.senders_left = self.senders_left.saturating_sub(1);
        self.senders.pop_front()
    }

    /// Adds a peer with messages or atomics, for the next round.
    pub(super) fn add_sender(&mut self, key: PeerKey) {
        self.senders.push_back(key);
    }

    /// Adds a peer with messages or atomics at the front, for this round.
    pub(super) fn add_first_sender(&mut self, key: PeerKey) {
        self.senders.push_front(key);
        self.senders_left += 1;
    }

    /// Returns `true` if a buffer for a message is free.
    pub(super) fn has_message_buffer(&self) -> bool {
        self.message_buffers > 0
    }

    /// Takes a buffer for a message.
    pub(super) fn take_message_buffer(&mut self) {
        self.message_buffers -= 1;
    }

    /// Adds a peer that has pages to post, or new room for them.
    #[inline]
    pub(super) fn wake(&mut self, key: PeerKey) {
        self.pages.wake(key.0);
    }

    /// Removes a peer for good.
    pub(super) fn remove(&mut self, key: PeerKey) {
        self.pages.remove(key.0);
    }

    /// Returns the peer that may post pages now, or `None` if the round is over.
    #[inline]
    pub(super) fn page_sender(&self) -> Option<PeerKey> {
        if self.pages_left == 0 {
            return None;
        }
        self.pages.current().map(PeerKey)
    }

    /// Removes the current peer: it has no pages.
    pub(super) fn rest(&mut self) {
        self.pages.rest();
    }

    /// Accounts posted bytes to the current peer.
    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) {
        // At least one byte, so that operations without bytes use up a turn, too.
        self.pages.spend(bytes.max(1));
        self.pages_left = self.pages_left.saturating_sub(1);
    }

    /// Passes the turn on: the current peer has no room.
    pub(super) fn yield_turn(&mut self) {
        self.pages.yield_turn();
        self.full += 1;
        // By now every peer may have been visited. Only completions make new room.
        if self.full >= FULL_MAX {
            self.pages_left = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerKey = PeerKey(1);
    const B: PeerKey = PeerKey(2);

    #[test]
    fn senders_are_asked_once_in_a_round() {
        let mut turns = Turns::default();
        turns.add_sender(A);
        assert_eq!(turns.sender(), None, "in the next round");
        turns.ask_all_senders();
        assert_eq!((turns.sender(), turns.end_sender()), (Some(A), Some(A)));
        turns.add_sender(A);
        assert_eq!(turns.sender(), None);
        turns.add_first_sender(B);
        assert_eq!((turns.sender(), turns.end_sender(), turns.sender()), (Some(B), Some(B), None));
    }

    #[test]
    fn a_round_posts_so_many_pages_and_no_more() {
        let mut turns = Turns::default();
        turns.wake(A);
        assert_eq!(turns.page_sender(), None, "no round has begun");
        turns.begin_round(0);
        for _ in 0..PAGES_PER_ROUND {
            assert_eq!(turns.page_sender(), Some(A));
            turns.spend(1);
        }
        assert_eq!(turns.page_sender(), None);
        turns.begin_round(0);
        assert_eq!(turns.page_sender(), Some(A));
        turns.rest();
        assert_eq!(turns.page_sender(), None);
    }

    #[test]
    fn a_round_ends_when_nobody_has_room() {
        let mut turns = Turns::default();
        [A, B].iter().for_each(|key| turns.wake(*key));
        turns.begin_round(0);
        let asked: Vec<PeerKey> = std::iter::from_fn(|| {
            let key = turns.page_sender()?;
            turns.yield_turn();
            Some(key)
        })
        .collect();
        assert_eq!(asked, [A, B, A, B]);
    }

    #[test]
    fn messages_have_as_many_buffers_as_there_are() {
        let mut turns = Turns::default();
        assert!(!turns.has_message_buffer());
        turns.begin_round(1);
        assert!(turns.has_message_buffer());
        turns.take_message_buffer();
        assert!(!turns.has_message_buffer());
    }
}
