//! The order in which peers post. Messages and atomics come first, peer by peer; pages follow, by
//! priority, and among those of one priority by deficit round robin.
//!
//! Pages of a lower priority are not starved: while they wait, they earn a part of what the others post,
//! and post it before them. So an urgent operation waits for one operation of the others at most.
//!
//! The posts of one step are a *round*. It ends when no peer has anything left or any room, or when
//! the step has posted enough.

use std::collections::VecDeque;

use super::PeerKey;
use crate::credit::RoundRobin;
use crate::priority::Priority;

/// The bytes of pages that one peer may post before the next one has its turn.
const TURN_BYTES: u32 = 1 << 20;

/// The maximum number of work requests with pages in one round.
const PAGES_PER_ROUND: usize = 64;

/// The maximum number of peers without room that one round visits, of each priority.
const FULL_MAX: u32 = 4;

/// The part that a lower priority earns of what higher ones post: one eighth.
const EARNED_SHIFT: u32 = 3;

/// What an operation counts for at least when a lower priority earns its part: short operations cost
/// time, too.
const OPERATION_MIN: u64 = 4 << 10;

/// A lower priority posts an operation when it has earned so many bytes, which is what most operations
/// have at most. It cannot earn more, so it posts one operation at a time.
const DUE_BYTES: i64 = 256 << 10;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Turns {
    /// Peers that have messages or atomics to post.
    senders: VecDeque<PeerKey>,
    /// The number of them that are still to be visited in this round.
    senders_left: usize,
    /// The number of free buffers for messages.
    message_buffers: usize,
    /// Peers that have pages to post, by priority.
    pages: [Pages; Priority::ALL.len()],
    /// The priority of the peer that has its turn.
    current: Priority,
    pages_left: usize,
}

/// Peers that have pages of one priority to post.
#[derive(Debug)]
struct Pages {
    peers: RoundRobin,
    /// The number of peers that had no room in this round.
    full: u32,
    /// The bytes that it has earned while others posted, and has not posted. Negative after an operation
    /// that was longer.
    earned: i64,
}

impl Pages {
    fn new() -> Self {
        Self { peers: RoundRobin::new(TURN_BYTES), full: 0, earned: 0 }
    }

    /// Returns the peer that has its turn, if one may have room.
    #[inline]
    fn sender(&self) -> Option<PeerKey> {
        // With so many, every peer may have been visited. Only completions make new room.
        if self.full >= FULL_MAX { None } else { self.peers.current().map(PeerKey) }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            senders: VecDeque::new(),
            senders_left: 0,
            message_buffers: 0,
            pages: Priority::ALL.map(|_| Pages::new()),
            current: Priority::Normal,
            pages_left: 0,
        }
    }
}

impl Turns {
    /// Begins a round, with so many free buffers for messages.
    pub(super) fn begin_round(&mut self, message_buffers: usize) {
        (self.message_buffers, self.pages_left) = (message_buffers, PAGES_PER_ROUND);
        self.pages.iter_mut().for_each(|pages| pages.full = 0);
    }

    /// Visits all peers with messages or atomics in the next round.
    pub(super) fn ask_all_senders(&mut self) {
        // Each is visited once in a round, or one without room would be asked without end.
        self.senders_left = self.senders.len();
    }

    /// Returns `true` if no peer has anything to post that a transfer of this priority must wait for.
    #[inline]
    pub(super) fn are_over(&self, priority: Priority) -> bool {
        // What goes after it may wait: it is posted before them in any case.
        let before = &self.pages[..=priority as usize];
        self.senders.is_empty() && before.iter().all(|pages| pages.peers.current().is_none())
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
    pub(super) fn end_sender(&mut self) -> PeerKey {
        self.senders_left = self.senders_left.saturating_sub(1);
        self.senders.pop_front().expect("the sender whose turn ends is the first one")
    }

    /// Adds a peer with messages or atomics, for the next round.
    pub(super) fn add_sender(&mut self, key: PeerKey) {
        self.senders.push_back(key);
    }

    /// Adds a peer with messages or atomics at the front, for this round.
    pub(super) fn add_first_sender(&mut self, key: PeerKey) {
        self.senders.push_front(key);
        // Its user waits for it now, and the round may be over.
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

    /// Adds a peer that has pages of some priorities to post, or new room for them.
    #[inline]
    pub(super) fn wake(&mut self, key: PeerKey, may_post: impl Fn(Priority) -> bool) {
        for priority in Priority::ALL {
            if may_post(priority) {
                self.pages[priority as usize].peers.wake(key.0);
            }
        }
    }

    /// Returns how often a peer is in the queue of those with messages or atomics.
    pub(super) fn times_queued(&self, key: PeerKey) -> usize {
        self.senders.iter().filter(|other| **other == key).count()
    }

    /// Returns `true` if a peer is in the round of those that have pages of this priority.
    pub(super) fn has_pages(&self, key: PeerKey, priority: Priority) -> bool {
        self.pages[priority as usize].peers.has(key.0)
    }

    /// Removes a peer for good.
    pub(super) fn remove(&mut self, key: PeerKey) {
        // `senders` may still name the peer: its turn there finds that it is lost or forgotten.
        self.pages.iter_mut().for_each(|pages| pages.peers.remove(key.0));
    }

    /// Returns the peer that may post pages now, and their priority, or `None` if the round is over.
    #[inline]
    pub(super) fn page_sender(&mut self) -> Option<(PeerKey, Priority)> {
        if self.pages_left == 0 {
            return None;
        }
        // A lower priority that has earned its part goes first, or the higher ones would starve it.
        let is_due = |priority: &Priority| self.pages[*priority as usize].earned >= DUE_BYTES;
        let lower = Priority::ALL.into_iter().skip(1).filter(is_due);
        let (key, priority) = lower
            .chain(Priority::ALL)
            .find_map(|priority| Some((self.pages[priority as usize].sender()?, priority)))?;
        self.current = priority;
        Some((key, priority))
    }

    /// Removes the current peer: it has no pages of the priority, or no room for them.
    pub(super) fn rest(&mut self) {
        self.pages[self.current as usize].peers.rest();
    }

    /// Accounts posted bytes to the current peer.
    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) {
        let (higher, lower) = self.pages.split_at_mut(self.current as usize + 1);
        if let Some(pages) = higher.last_mut() {
            // At least one byte, so that operations without bytes use up a turn, too.
            pages.peers.spend(bytes.max(1));
            // It was posted because it was due. In a turn of its own, when no higher priority
            // posts, it pays nothing.
            if pages.earned >= DUE_BYTES {
                pages.earned = pages.earned.saturating_sub_unsigned(bytes.max(OPERATION_MIN));
            }
        }
        // An idle priority must not save up turns.
        for pages in lower.iter_mut().filter(|pages| pages.peers.current().is_some()) {
            let earned = bytes.max(OPERATION_MIN) >> EARNED_SHIFT;
            pages.earned = pages.earned.saturating_add_unsigned(earned).min(DUE_BYTES);
        }
        self.pages_left = self.pages_left.saturating_sub(1);
    }

    /// Passes the turn on: the current peer has no room.
    pub(super) fn yield_turn(&mut self) {
        let pages = &mut self.pages[self.current as usize];
        pages.peers.yield_turn();
        // It stays in the round. Its next completion may come while others post.
        pages.full += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerKey = PeerKey(1);
    const B: PeerKey = PeerKey(2);
    const URGENT: Priority = Priority::Urgent;
    const NORMAL: Priority = Priority::Normal;
    const BULK: Priority = Priority::Bulk;

    fn is(priority: Priority) -> impl Fn(Priority) -> bool {
        move |of| of == priority
    }

    /// Posts operations of the length for each priority until the round is over, and returns the bytes of
    /// each.
    fn posted(turns: &mut Turns, lens: [u64; 3]) -> [u64; 3] {
        let mut bytes = [0; 3];
        turns.begin_round(0);
        while let Some((_, priority)) = turns.page_sender() {
            bytes[priority as usize] += lens[priority as usize];
            turns.spend(lens[priority as usize]);
        }
        bytes
    }

    #[test]
    fn urgent_peers_are_before_all_others_who_still_get_their_part() {
        let mut turns = Turns::default();
        turns.wake(A, is(BULK));
        turns.wake(B, is(NORMAL));
        turns.begin_round(0);
        assert_eq!(turns.page_sender(), Some((B, NORMAL)));
        turns.wake(A, is(URGENT));
        assert_eq!(turns.page_sender(), Some((A, URGENT)));
        turns.rest();
        turns.wake(A, is(URGENT));
        let mut total = [0; 3];
        for _ in 0..1000 {
            let bytes = posted(&mut turns, [64 << 10, 64 << 10, 1 << 20]);
            (0..3).for_each(|place| total[place] += bytes[place]);
        }
        let [urgent, normal, bulk] = total.map(|bytes| bytes as f64);
        assert!((0.11..0.14).contains(&(normal / urgent)), "{total:?}");
        assert!((0.11..0.16).contains(&(bulk / (urgent + normal))), "{total:?}");
    }

    #[test]
    fn short_operations_do_not_starve_others_either() {
        let mut turns = Turns::default();
        turns.wake(A, is(URGENT));
        turns.wake(B, is(BULK));
        let bulk: u64 = (0..100).map(|_| posted(&mut turns, [0, 0, 1])[2]).sum();
        assert!(bulk >= 10, "{bulk} of 6400");
    }

    #[test]
    fn what_was_earned_without_room_is_posted_first_when_there_is_room() {
        let mut turns = Turns::default();
        turns.wake(A, is(URGENT));
        turns.wake(B, is(BULK));
        turns.begin_round(0);
        for _ in 0..40 {
            assert_eq!(turns.page_sender(), Some((A, URGENT)));
            turns.spend(64 << 10);
            if turns.pages[BULK as usize].earned >= DUE_BYTES {
                break;
            }
        }
        assert_eq!(turns.page_sender(), Some((B, BULK)));
        turns.rest();
        assert_eq!(turns.page_sender(), Some((A, URGENT)));
        turns.wake(B, is(BULK));
        assert_eq!(turns.page_sender(), Some((B, BULK)));
        turns.spend(1 << 20);
        assert_eq!(turns.page_sender(), Some((A, URGENT)), "once");
    }

    #[test]
    fn one_priority_without_room_does_not_end_the_round_of_another() {
        let mut turns = Turns::default();
        turns.wake(A, is(URGENT));
        turns.wake(B, is(NORMAL));
        turns.begin_round(0);
        for _ in 0..FULL_MAX {
            assert_eq!(turns.page_sender(), Some((A, URGENT)));
            turns.yield_turn();
        }
        assert_eq!(turns.page_sender(), Some((B, NORMAL)));
    }

    #[test]
    fn a_transfer_waits_for_those_of_its_priority_and_before() {
        let mut turns = Turns::default();
        turns.wake(A, is(NORMAL));
        assert!(turns.are_over(URGENT) && !turns.are_over(NORMAL) && !turns.are_over(BULK));
        turns.remove(A);
        assert!(turns.are_over(BULK));
        turns.add_sender(A);
        assert!(!turns.are_over(URGENT));
    }

    #[test]
    fn senders_are_asked_once_in_a_round() {
        let mut turns = Turns::default();
        turns.add_sender(A);
        assert_eq!(turns.sender(), None, "in the next round");
        turns.ask_all_senders();
        assert_eq!((turns.sender(), turns.end_sender()), (Some(A), A));
        turns.add_sender(A);
        assert_eq!(turns.sender(), None);
        turns.add_first_sender(B);
        assert_eq!((turns.sender(), turns.end_sender(), turns.sender()), (Some(B), B, None));
    }

    #[test]
    fn a_round_posts_so_many_pages_and_no_more() {
        let mut turns = Turns::default();
        turns.wake(A, is(NORMAL));
        assert_eq!(turns.page_sender(), None, "no round has begun");
        turns.begin_round(0);
        for _ in 0..PAGES_PER_ROUND {
            assert_eq!(turns.page_sender(), Some((A, NORMAL)));
            turns.spend(1);
        }
        assert_eq!(turns.page_sender(), None);
        turns.begin_round(0);
        assert_eq!(turns.page_sender(), Some((A, NORMAL)));
        turns.rest();
        assert_eq!(turns.page_sender(), None);
    }

    #[test]
    fn a_round_ends_when_nobody_has_room() {
        let mut turns = Turns::default();
        [A, B].iter().for_each(|key| turns.wake(*key, is(NORMAL)));
        turns.begin_round(0);
        let asked: Vec<PeerKey> = std::iter::from_fn(|| {
            let (key, _) = turns.page_sender()?;
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
