//! Whose turn it is to post. Messages and atomics come first, each peer in turn; pages follow, by deficit round robin.
//!
//! What one step posts is a *round*. It ends when nobody has anything more, or no room, or the step has posted enough.

use std::collections::VecDeque;

use super::PeerKey;
use crate::credit::RoundRobin;

/// Bytes of pages that one peer may post before it is the next one's turn.
const TURN_BYTES: u32 = 1 << 20;

/// Requests with pages that one round posts at most.
const PAGES_PER_ROUND: usize = 64;

/// Peers without room that one round asks at most.
const FULL_MAX: u32 = 4;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Turns {
    /// Who has messages or atomics to be posted.
    senders: VecDeque<PeerKey>,
    /// How many of them are still asked in this round.
    senders_left: usize,
    /// How many more messages there are buffers for.
    message_buffers: usize,
    /// Who has pages to be posted.
    pages: RoundRobin,
    pages_left: usize,
    /// How many peers had no room for pages.
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
    /// A round begins. There are buffers for so many messages.
    pub(super) fn begin_round(&mut self, message_buffers: usize) {
        (self.message_buffers, self.pages_left, self.full) = (message_buffers, PAGES_PER_ROUND, 0);
    }

    /// All who have messages or atomics are asked in the next round.
    pub(super) fn ask_all_senders(&mut self) {
        self.senders_left = self.senders.len();
    }

    /// Whether somebody is still asked for messages or atomics.
    #[inline]
    pub(super) fn has_senders(&self) -> bool {
        self.senders_left > 0
    }

    /// Who is asked for messages or atomics now.
    pub(super) fn sender(&self) -> Option<PeerKey> {
        self.senders.front().copied().filter(|_| self.has_senders())
    }

    /// The one who is asked has nothing more that can be posted now, and is out of the line: who it is.
    pub(super) fn end_sender(&mut self) -> Option<PeerKey> {
        self.senders_left = self.senders_left.saturating_sub(1);
        self.senders.pop_front()
    }

    /// Has messages or atomics for the next round.
    pub(super) fn add_sender(&mut self, key: PeerKey) {
        self.senders.push_back(key);
    }

    /// Has messages or atomics, and is asked first, in this round.
    pub(super) fn add_first_sender(&mut self, key: PeerKey) {
        self.senders.push_front(key);
        self.senders_left += 1;
    }

    /// Whether there is a buffer for one more message.
    pub(super) fn has_message_buffer(&self) -> bool {
        self.message_buffers > 0
    }

    /// A message takes a buffer.
    pub(super) fn take_message_buffer(&mut self) {
        self.message_buffers -= 1;
    }

    /// Has pages to be posted, or room for them.
    #[inline]
    pub(super) fn wake(&mut self, key: PeerKey) {
        self.pages.wake(key.0);
    }

    /// Never has any again.
    pub(super) fn remove(&mut self, key: PeerKey) {
        self.pages.remove(key.0);
    }

    /// Who is asked for pages now; none when the round is over.
    #[inline]
    pub(super) fn page_sender(&self) -> Option<PeerKey> {
        if self.pages_left == 0 {
            return None;
        }
        self.pages.current().map(PeerKey)
    }

    /// The one who is asked has no pages.
    pub(super) fn rest(&mut self) {
        self.pages.rest();
    }

    /// The one who is asked has posted so many bytes of its turn.
    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) {
        self.pages.spend(bytes.max(1));
        self.pages_left = self.pages_left.saturating_sub(1);
    }

    /// The one who is asked has no room: it is the next one's turn.
    pub(super) fn yield_turn(&mut self) {
        self.pages.yield_turn();
        self.full += 1;
        // Everybody may have been asked once by now; completions make room, or nothing does.
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
