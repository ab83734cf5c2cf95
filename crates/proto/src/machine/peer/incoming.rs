//! Messages from one peer: each number once, in order, and never more than the peer has room for.

use std::collections::BTreeMap;

use crate::machine::PeerKey;
use crate::machine::confirmations::WAIT;
use crate::time::Time;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    next: u64,
    /// The number that was last confirmed to the peer.
    confirmed: u64,
    /// When the confirmation is due, if it waits for a message that carries it.
    due_at: Option<Time>,
    answers: Answers,
    /// The number of delivered messages that the application has not taken.
    untaken: u64,
    /// Messages that arrived before their turn.
    early: BTreeMap<u64, Vec<u8>>,
}

/// When messages are to be confirmed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Confirm {
    /// In this step.
    Now,
    /// At this time, if no message to the peer carries the confirmation before.
    At(Time),
}

/// Learns whether this side answers each message by a message.
#[derive(Debug, Default)]
struct Answers {
    /// When the last message was received.
    received_at: Time,
    /// Messages received since this side has last sent one.
    unanswered: u64,
    /// The number of messages that were answered one by one, up to [`IN_A_ROW`](Self::IN_A_ROW).
    in_a_row: u8,
}

impl Answers {
    /// After this many, the next message is expected to be answered as well.
    const IN_A_ROW: u8 = 2;

    /// Notes received messages. Returns `true` if an answer is expected.
    fn received(&mut self, count: u64, now: Time) -> bool {
        self.unanswered += count;
        self.received_at = now;
        // A peer that sends two without an answer between them streams, and waits for no answer.
        if self.unanswered > 1 {
            self.in_a_row = 0;
        }
        self.in_a_row == Self::IN_A_ROW
    }

    /// Notes a message that this side sends.
    fn sent(&mut self, now: Time) {
        match std::mem::take(&mut self.unanswered) {
            0 => {}
            1 if now <= self.received_at + WAIT => self.in_a_row = (self.in_a_row + 1).min(Self::IN_A_ROW),
            _ => self.in_a_row = 0,
        }
    }
}

/// The peer has sent more messages than there is room for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Incoming {
    /// Receives a message. Delivers it in its turn, with all later ones that waited for it. Returns
    /// how many were delivered.
    pub(crate) fn receive(
        &mut self,
        sequence: u64,
        bytes: &[u8],
        room: u32,
        mut deliver: impl FnMut(Vec<u8>),
    ) -> Result<u64, TooMany> {
        // A duplicate of a message that was received already.
        let Some(ahead) = sequence.checked_sub(self.next) else { return Ok(0) };
        // Bounds the memory of one peer, even if it violates the protocol.
        if ahead >= u64::from(room).saturating_sub(self.untaken) {
            return Err(TooMany);
        }
        if ahead > 0 {
            // Links of one peer overtake each other.
            self.early.insert(sequence, bytes.to_vec());
            return Ok(0);
        }
        let (first, mut next) = (self.next, Some(bytes.to_vec()));
        while let Some(bytes) = next {
            self.next += 1;
            self.untaken += 1;
            deliver(bytes);
            next = self.early.remove(&self.next);
        }
        Ok(self.next - first)
    }

    /// Accounts messages that the application has taken.
    pub(crate) fn taken(&mut self, count: u32) {
        self.untaken = self.untaken.saturating_sub(count.into());
    }

    /// Returns the number before which all messages are held.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Returns when to confirm messages that have just been delivered; `None` if there are none, or
    /// if that was decided for earlier ones.
    pub(crate) fn when(&mut self, delivered: u64, now: Time) -> Option<Confirm> {
        if delivered == 0 {
            return None;
        }
        if self.answers.received(delivered, now) {
            let at = now + WAIT;
            self.due_at = Some(at);
            return Some(Confirm::At(at));
        }
        // No answer is expected any more, so what waited for one is confirmed as well.
        self.due_at = None;
        Some(Confirm::Now)
    }

    /// Returns `true` if a confirmation that was due at this time still waits for an answer. No answer
    /// is expected to the next messages then.
    pub(crate) fn was_not_answered(&mut self, due_at: Time) -> bool {
        let is_late = self.due_at == Some(due_at);
        if is_late {
            // The next ones are confirmed at once until two are answered again.
            self.answers.in_a_row = 0;
        }
        is_late
    }

    /// Returns the number before which all messages are held, if it was not confirmed yet. The caller
    /// confirms it.
    pub(crate) fn unconfirmed(&mut self) -> Option<u64> {
        self.due_at = None;
        (std::mem::replace(&mut self.confirmed, self.next) != self.next).then_some(self.next)
    }

    /// Notes that a message to the peer carries the confirmation.
    #[inline]
    pub(crate) fn was_confirmed(&mut self, now: Time) {
        (self.confirmed, self.due_at) = (self.next, None);
        self.answers.sent(now);
    }

    /// Notes that confirmations may have been lost.
    pub(crate) fn confirm_again(&mut self) {
        // The header of a message that was lost may have had one.
        self.confirmed = 0;
    }

    /// Checks that what it holds is within the room of the peer, and ahead of its turn.
    pub(crate) fn check(&self, key: PeerKey, room: u32) {
        let Self { next, confirmed, untaken, .. } = self;
        assert!(confirmed <= next, "messages: {confirmed} of {key:?} are confirmed, and {next} received");
        let is_ahead = self.early.keys().all(|sequence| sequence > next);
        let held = untaken + self.early.len() as u64;
        assert!(is_ahead && held <= room.into(), "messages: {held} of {key:?}, and room for {room}");
    }

    /// Returns the bytes of memory that are held.
    pub(crate) fn memory(&self) -> usize {
        self.early.values().map(|bytes| bytes.capacity() + size_of::<(u64, Vec<u8>)>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives messages of these numbers, with room for four. Returns the delivered ones.
    fn receive(incoming: &mut Incoming, numbers: &[u64]) -> Result<Vec<u8>, TooMany> {
        let mut delivered = Vec::new();
        for number in numbers {
            incoming.receive(*number, &[*number as u8], 4, |bytes| delivered.extend(bytes))?;
        }
        Ok(delivered)
    }

    #[test]
    fn each_comes_once_and_in_its_turn() {
        let mut incoming = Incoming::default();
        assert_eq!(receive(&mut incoming, &[2, 1, 2]), Ok(vec![]));
        assert_eq!(incoming.unconfirmed(), None);
        assert_eq!(receive(&mut incoming, &[0, 1, 0, 2]), Ok(vec![0, 1, 2]));
        assert_eq!((incoming.unconfirmed(), incoming.unconfirmed()), (Some(3), None));
        assert_eq!(incoming.memory(), 0);
    }

    /// Receives the next message. Returns when it is confirmed.
    fn receive_next(incoming: &mut Incoming, now: Time) -> Option<Confirm> {
        let count = incoming.receive(incoming.next, b"", u32::MAX, |_| ()).unwrap();
        incoming.when(count, now)
    }

    #[test]
    fn a_confirmation_waits_for_an_answer_where_each_message_has_had_one() {
        let mut incoming = Incoming::default();
        for now in [0, 10] {
            assert_eq!(receive_next(&mut incoming, Time(now)), Some(Confirm::Now));
            incoming.was_confirmed(Time(now + 5));
        }
        assert_eq!(receive_next(&mut incoming, Time(20)), Some(Confirm::At(Time(20 + WAIT))));
        incoming.was_confirmed(Time(30));
        assert!(!incoming.was_not_answered(Time(20 + WAIT)), "the answer has carried it");
        assert_eq!(incoming.unconfirmed(), None);
        assert_eq!(receive_next(&mut incoming, Time(40)), Some(Confirm::At(Time(40 + WAIT))));
        assert_eq!(
            receive_next(&mut incoming, Time(50)),
            Some(Confirm::Now),
            "a second one without an answer"
        );
        assert_eq!(incoming.unconfirmed(), Some(5), "both");
        assert!(!incoming.was_not_answered(Time(40 + WAIT)));
    }

    #[test]
    fn a_confirmation_waits_no_longer_than_it_may() {
        let mut incoming = Incoming::default();
        let answered = |incoming: &mut Incoming, after: u64| {
            for now in [0, WAIT] {
                receive_next(incoming, Time(now));
                incoming.was_confirmed(Time(now + after));
            }
            receive_next(incoming, Time(3 * WAIT))
        };
        assert_eq!(answered(&mut incoming, WAIT + 1), Some(Confirm::Now), "answers come too late");
        incoming.was_confirmed(Time(3 * WAIT));
        assert_eq!(answered(&mut incoming, WAIT), Some(Confirm::At(Time(4 * WAIT))));
        assert!(incoming.was_not_answered(Time(4 * WAIT)));
        assert!(incoming.unconfirmed().is_some());
        incoming.was_confirmed(Time(4 * WAIT));
        assert_eq!(receive_next(&mut incoming, Time(4 * WAIT)), Some(Confirm::Now), "the last one was late");
    }

    #[test]
    fn a_lost_confirmation_is_made_again() {
        let mut incoming = Incoming::default();
        incoming.confirm_again();
        assert_eq!(incoming.unconfirmed(), None, "there is nothing to confirm");
        receive_next(&mut incoming, Time::ZERO);
        incoming.was_confirmed(Time::ZERO);
        incoming.confirm_again();
        assert_eq!((incoming.unconfirmed(), incoming.unconfirmed()), (Some(1), None));
    }

    #[test]
    fn nobody_sends_more_than_there_is_room_for() {
        assert_eq!(receive(&mut Incoming::default(), &[4]), Err(TooMany), "ahead");
        let mut incoming = Incoming::default();
        assert_eq!(receive(&mut incoming, &[0, 1, 2, 3, 4]), Err(TooMany), "untaken");
        incoming.taken(2);
        assert_eq!(receive(&mut incoming, &[4, 5]), Ok(vec![4, 5]));
        assert_eq!(receive(&mut incoming, &[6]), Err(TooMany));
        assert_eq!(receive(&mut incoming, &[5]), Ok(vec![]), "one that came before does no harm");
    }
}
