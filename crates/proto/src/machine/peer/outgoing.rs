//! Messages to one peer: numbered in order, and kept until the peer's engine holds them.
//!
//! A failed link does not tell which of its messages arrived, so all of them are posted again, and
//! the receiver drops duplicate numbers. That includes messages that the link had delivered: they
//! may have been in a queue of the receiver's card, and were lost with its end of the link.

use std::collections::VecDeque;

use crate::counter::LinkId;
use crate::machine::{OpId, PeerKey};

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Outgoing {
    next: u64,
    /// The number of further messages that the peer has room for.
    room: u32,
    /// Messages that wait for room.
    waiting: VecDeque<(Vec<u8>, OpId)>,
    /// Numbers of messages to post, for the first time or again, in order.
    to_post: VecDeque<u64>,
    /// The number of messages in flight, and its maximum.
    in_flight: u32,
    in_flight_max: u32,
    /// All messages that the peer's engine does not hold yet, in order.
    kept: VecDeque<Kept>,
    /// Flushes, each with the number before which all messages must be held.
    flushes: VecDeque<(u64, OpId)>,
}

/// A message with a number.
#[derive(Debug)]
struct Kept {
    sequence: u64,
    bytes: Vec<u8>,
    /// The link that has delivered it, if any.
    link: Option<LinkId>,
    op: OpId,
}

impl Outgoing {
    /// Creates an empty queue without room, with a maximum number of messages in flight.
    pub(crate) fn new(in_flight_max: u32) -> Self {
        Self {
            next: 0,
            room: 0,
            waiting: VecDeque::new(),
            to_post: VecDeque::new(),
            in_flight: 0,
            in_flight_max,
            kept: VecDeque::new(),
            flushes: VecDeque::new(),
        }
    }

    pub(crate) fn push(&mut self, op: OpId, bytes: Vec<u8>) {
        self.waiting.push_back((bytes, op));
    }

    /// Adds room at the peer.
    pub(crate) fn add_room(&mut self, count: u32) {
        // The peer chooses the number.
        self.room = self.room.saturating_add(count);
    }

    /// Numbers the messages that there is room for, so that they can be posted.
    pub(crate) fn number(&mut self) {
        // Without room there is no number: the receiver ends the connection over one too many.
        while self.room > 0
            && let Some((bytes, op)) = self.waiting.pop_front()
        {
            self.to_post.push_back(self.next);
            self.kept.push_back(Kept { sequence: self.next, bytes, link: None, op });
            self.next += 1;
            self.room -= 1;
        }
    }

    /// Returns `true` if a message can be numbered or posted.
    pub(crate) fn has_work(&self) -> bool {
        (self.room > 0 && !self.waiting.is_empty()) || !self.to_post.is_empty()
    }

    /// Returns the first message to post. Skips messages that the peer holds meanwhile.
    pub(crate) fn front(&mut self) -> Option<(u64, &[u8])> {
        let sequence = loop {
            let sequence = *self.to_post.front()?;
            if self.kept(sequence).is_some() {
                break sequence;
            }
            // The peer has confirmed it since it was queued again.
            self.to_post.pop_front();
        };
        self.kept(sequence).map(|kept| (sequence, kept.bytes.as_slice()))
    }

    /// Removes and returns the [first message](Self::front). Nothing follows before the peer holds
    /// it.
    pub(crate) fn take_front(&mut self) -> Option<(u64, Vec<u8>)> {
        // The message stays in `kept` until the peer confirms it.
        let (sequence, bytes) = self.front().map(|(sequence, bytes)| (sequence, bytes.to_vec()))?;
        self.to_post.pop_front();
        Some((sequence, bytes))
    }

    /// Begins to post the [first message](Self::front), and returns its number. Returns `None` if
    /// there is none, or too many are in flight.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        if self.in_flight == self.in_flight_max {
            return None;
        }
        // There may be only messages that the peer holds already, or has no room for.
        let (sequence, _) = self.front()?;
        self.in_flight += 1;
        self.to_post.pop_front();
        Some(sequence)
    }

    /// Returns the content of a message that was [begun](Self::begin) and is not posted yet.
    pub(crate) fn get(&self, sequence: u64) -> &[u8] {
        let first = self.next - self.kept.len() as u64;
        // It was there when it was begun, and no frame of the peer was handled since.
        &self.kept[(sequence - first) as usize].bytes
    }

    /// Takes back a message that was not posted: it is the first again.
    pub(crate) fn refuse(&mut self, sequence: u64) {
        self.in_flight -= 1;
        // Other numbers follow it, and the receiver would buffer them.
        self.to_post.push_front(sequence);
    }

    /// Ends a message in flight: it was delivered by this link, or must be posted again. The
    /// receiver drops a duplicate by its number.
    pub(crate) fn end(&mut self, sequence: u64, delivered_by: Option<LinkId>) {
        self.in_flight -= 1;
        match delivered_by {
            None => self.post_again(sequence),
            Some(link) => {
                // The peer's confirmation may come before the completion.
                if let Some(kept) = self.kept(sequence) {
                    kept.link = Some(link);
                }
            }
        }
    }

    /// Queues the messages of a lost link again: even delivered ones may not have been received.
    pub(crate) fn lose(&mut self, link: LinkId) {
        let lost = |kept: &mut Kept| kept.link.take_if(|by| *by == link).map(|_| kept.sequence);
        // Those that were in flight on it have come back before, and name no link.
        let again: Vec<u64> = self.kept.iter_mut().filter_map(lost).collect();
        again.into_iter().for_each(|sequence| self.post_again(sequence));
    }

    fn post_again(&mut self, sequence: u64) {
        // In the order of numbers, so that the receiver buffers as few early messages as possible.
        let place = self.to_post.partition_point(|other| *other < sequence);
        self.to_post.insert(place, sequence);
    }

    /// Removes all messages before this number, which the peer's engine holds. Returns the requests
    /// to answer.
    pub(crate) fn held(&mut self, next: u64) -> impl Iterator<Item = OpId> {
        // A peer may confirm more than was sent. Only what is kept is answered.
        let sent = self.kept.iter().take_while(|kept| kept.sequence < next).count();
        let flushed = self.flushes.iter().take_while(|(until, _)| *until <= next).count();
        // Messages before flushes: a flush answers for messages that its user was told of.
        let sent = self.kept.drain(..sent).map(|kept| kept.op);
        sent.chain(self.flushes.drain(..flushed).map(|(_, op)| op))
    }

    /// Adds a flush of everything until now. Returns `true` if all of it is held already.
    pub(crate) fn flush(&mut self, op: OpId) -> bool {
        if self.is_held() {
            return true;
        }
        // Waiting messages get the next numbers, in order.
        self.flushes.push_back((self.next + self.waiting.len() as u64, op));
        false
    }

    /// Returns `true` if the peer's engine holds all messages.
    pub(crate) fn is_held(&self) -> bool {
        self.waiting.is_empty() && self.kept.is_empty()
    }

    /// Returns `true` if no message is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Drops all messages. Returns the requests to answer. Messages in flight still come back.
    pub(crate) fn give_up(&mut self) -> Vec<OpId> {
        // `in_flight` stays: those completions still come.
        self.to_post.clear();
        let kept = self.kept.drain(..).map(|kept| kept.op);
        let waiting = self.waiting.drain(..).map(|(_, op)| op);
        kept.chain(waiting).chain(self.flushes.drain(..).map(|(_, op)| op)).collect()
    }

    fn kept(&mut self, sequence: u64) -> Option<&mut Kept> {
        // Smaller numbers are confirmed and gone.
        let place = sequence.checked_sub(self.kept.front()?.sequence)?;
        self.kept.get_mut(place as usize)
    }

    /// Checks that messages are numbered in turn, are posted in turn, and are in flight as often as slots
    /// say.
    pub(crate) fn check(&self, key: PeerKey, slots: u32) {
        assert_eq!(self.in_flight, slots, "slots: messages of {key:?}");
        assert!(self.in_flight <= self.in_flight_max, "messages: too many of {key:?} in flight");
        let first = self.next - self.kept.len() as u64;
        let are_in_turn = (first..).zip(&self.kept).all(|(sequence, kept)| kept.sequence == sequence);
        assert!(are_in_turn, "messages: the numbers of those to {key:?}");
        let is_sorted = self.to_post.iter().is_sorted_by(|left, right| left < right);
        assert!(is_sorted, "messages: the order of those to {key:?}: {:?}", self.to_post);
    }

    /// Returns the bytes of memory that are held.
    pub(crate) fn memory(&self) -> usize {
        let waiting = self.waiting.iter().map(|(bytes, _)| bytes.capacity() + size_of::<(Vec<u8>, OpId)>());
        let kept = self.kept.iter().map(|kept| kept.bytes.capacity() + size_of::<Kept>());
        waiting.chain(kept).sum::<usize>() + self.to_post.capacity() * size_of::<u64>()
    }

    /// Returns the number of messages that are not delivered.
    pub(crate) fn len(&self) -> usize {
        self.in_flight as usize + self.to_post.len() + self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(messages: u64, room: u32) -> Outgoing {
        let mut outgoing = Outgoing::new(8);
        (0..messages).for_each(|number| outgoing.push(OpId(number), vec![number as u8; 3]));
        outgoing.add_room(room);
        outgoing.number();
        outgoing
    }

    fn numbers(outgoing: &mut Outgoing) -> Vec<u64> {
        std::iter::from_fn(|| outgoing.take_front()).map(|(sequence, _)| sequence).collect()
    }

    #[test]
    fn those_without_room_wait() {
        let mut outgoing = with(3, 2);
        assert_eq!(numbers(&mut outgoing), [0, 1]);
        assert!(!outgoing.has_work() && !outgoing.is_held());
        outgoing.add_room(5);
        assert!(outgoing.has_work());
        outgoing.number();
        assert_eq!(outgoing.front(), Some((2, &[2; 3][..])));
    }

    #[test]
    fn one_that_was_not_delivered_is_posted_again_in_its_turn() {
        let mut outgoing = with(3, 3);
        let begun: Vec<u64> = (0..3).map(|_| outgoing.begin().unwrap()).collect();
        assert_eq!((&begun[..], outgoing.get(1)), (&[0, 1, 2][..], &[1; 3][..]));
        outgoing.end(2, None);
        outgoing.end(0, None);
        outgoing.end(1, Some(LinkId(7)));
        assert!(outgoing.is_idle());
        assert_eq!(numbers(&mut outgoing), [0, 2]);
    }

    #[test]
    fn what_a_lost_link_has_delivered_is_posted_again_unless_it_is_held() {
        let mut outgoing = with(4, 4);
        for link in [7, 7, 8, 7] {
            let sequence = outgoing.begin().unwrap();
            outgoing.end(sequence, Some(LinkId(link)));
        }
        assert_eq!(outgoing.held(1).collect::<Vec<_>>(), [OpId(0)]);
        outgoing.lose(LinkId(7));
        outgoing.lose(LinkId(7));
        assert_eq!(numbers(&mut outgoing), [1, 3], "each once, and not the one that is held");
    }

    #[test]
    fn one_that_is_held_meanwhile_is_not_posted_again() {
        let mut outgoing = with(2, 2);
        let [first, second] = [outgoing.begin().unwrap(), outgoing.begin().unwrap()];
        outgoing.end(first, None);
        outgoing.end(second, None);
        assert_eq!(outgoing.held(1).count(), 1);
        assert_eq!(numbers(&mut outgoing), [1]);
    }

    #[test]
    fn a_refused_one_stays_the_first() {
        let mut outgoing = with(2, 2);
        let sequence = outgoing.begin().unwrap();
        outgoing.refuse(sequence);
        assert_eq!(numbers(&mut outgoing), [0, 1]);
    }

    #[test]
    fn no_more_are_in_flight_than_may_be() {
        let mut outgoing = with(9, 9);
        assert_eq!((0..9).filter_map(|_| outgoing.begin()).count(), 8);
        outgoing.end(0, Some(LinkId(1)));
        assert_eq!((outgoing.begin(), outgoing.begin()), (Some(8), None));
    }

    #[test]
    fn a_flush_ends_with_the_last_that_was_pushed_before_it() {
        let mut outgoing = with(3, 2);
        assert!(!outgoing.flush(OpId(99)));
        assert_eq!(outgoing.held(2).collect::<Vec<_>>(), [OpId(0), OpId(1)]);
        outgoing.add_room(1);
        outgoing.number();
        assert_eq!(outgoing.held(3).collect::<Vec<_>>(), [OpId(2), OpId(99)]);
        assert!(outgoing.flush(OpId(100)), "nothing is to be waited for");
    }

    #[test]
    fn everybody_hears_that_it_was_given_up() {
        let mut outgoing = with(3, 1);
        outgoing.flush(OpId(99));
        let sequence = outgoing.begin().unwrap();
        assert_eq!(outgoing.give_up(), [OpId(0), OpId(1), OpId(2), OpId(99)]);
        outgoing.end(sequence, None);
        assert!(outgoing.front().is_none() && outgoing.is_idle() && outgoing.is_held());
    }
}
