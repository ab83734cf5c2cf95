//! The transfers with one peer: what is known of each, and the outbox that has their pages.

use super::transfer::Transfer;
use crate::counter::{CounterId, LinkId};
use crate::machine::{NewTransfer, OpId, TransferFault};
use crate::outbox::{LinkSettings, Outbox, Posted, TransferId};
use crate::sequence::Sequence;
use crate::wire::Frame;

/// Why a counter does not reach what was promised.
const GIVEN_UP: &str = "the transfer was given up";

/// See the [module](self).
///
/// Frames that a method gives are to be sent to the peer, in order.
#[derive(Debug)]
pub(crate) struct Transfers {
    outbox: Outbox,
    transfers: Sequence<Transfer>,
}

impl Default for Transfers {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Transfers {
    /// Over these links, none of which is ready.
    pub(crate) fn new(links: Vec<LinkSettings>) -> Self {
        let count = links.len();
        let mut outbox = Outbox::new(links);
        (0..count).for_each(|link| outbox.pause(link));
        Self { outbox, transfers: Sequence::new() }
    }

    /// Takes one that was checked.
    pub(crate) fn submit(&mut self, new: NewTransfer, links: usize, now: u64) -> TransferId {
        let transfer = Transfer::begin(new, links, now, |plan, counter| self.outbox.submit(plan, counter));
        let id = transfer.id();
        self.transfers.put(id.index(), transfer);
        id
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Transfer> {
        self.transfers.get_mut(id.index())
    }

    /// The transfer that was asked for by this number.
    pub(crate) fn find(&self, op: OpId) -> Option<TransferId> {
        self.transfers.iter().find(|(_, transfer)| transfer.op() == op).map(|(_, transfer)| transfer.id())
    }

    /// Those that use a grant of the peer's.
    pub(crate) fn using(&self, grant: u64) -> Vec<TransferId> {
        let users = self.transfers.iter().filter(|(_, transfer)| transfer.grant() == grant);
        users.map(|(_, transfer)| transfer.id()).collect()
    }

    /// The next request, over whichever link is ready.
    #[inline]
    pub(crate) fn next_post(&mut self) -> Option<Posted> {
        self.outbox.next_post()
    }

    /// It is not posted now.
    pub(crate) fn put_back(&mut self, posted: Posted) {
        self.outbox.refuse(posted);
    }

    /// No card has taken it.
    pub(crate) fn refused(&mut self, posted: Posted) {
        if let Some(transfer) = self.get_mut(posted.transfer()) {
            transfer.take_from_share(&posted);
        }
        self.outbox.refuse(posted);
    }

    /// A card is done with it.
    #[inline]
    pub(crate) fn complete(&mut self, posted: Posted) -> Vec<Frame> {
        self.outbox.complete(posted)
    }

    /// Gives one up. None where there is none of this name.
    pub(crate) fn abort(&mut self, id: TransferId, fault: TransferFault) -> Option<Vec<Frame>> {
        let transfer = self.transfers.get_mut(id.index())?;
        transfer.fail(fault);
        let mut frames = self.outbox.abort(id);
        // The receiver need not wait for what will not come.
        if self.outbox.is_incomplete(id)
            && let Some(counter) = transfer.take_counter()
        {
            frames.push(given_up(counter));
        }
        Some(frames)
    }

    /// Gives one up of whose memory a card has a part for good. None where there is none of this name.
    pub(crate) fn abandon(&mut self, id: TransferId, fault: TransferFault) -> Option<Vec<Frame>> {
        self.transfers.get_mut(id.index())?.keep_for_good(fault);
        Some(self.outbox.abort(id))
    }

    /// The next that has ended, whether all its pages were moved, and what the peer is to hear of it.
    pub(crate) fn take_finished(&mut self) -> Option<(Transfer, bool, Option<Frame>)> {
        loop {
            let finished = self.outbox.finished()?;
            let Some(mut transfer) = self.transfers.take(finished.transfer.index()) else { continue };
            let missed = transfer.take_counter().filter(|_| !finished.is_whole);
            return Some((transfer, finished.is_whole, missed.map(given_up)));
        }
    }

    /// A link takes nothing for now.
    pub(crate) fn pause(&mut self, link: usize) {
        self.outbox.pause(link);
    }

    /// A link is ready, under this name.
    pub(crate) fn restore(&mut self, link: usize, id: LinkId) {
        self.outbox.restore(link, id);
    }

    /// A link is lost: what it had goes to the others.
    pub(crate) fn lose(&mut self, link: usize, lost: Vec<Posted>) -> Vec<Frame> {
        self.outbox.lose(link, lost)
    }

    /// The peer says how many pages it has counted over a lost link.
    pub(crate) fn settled(&mut self, link: LinkId, counter: CounterId, pages: u64) -> Vec<Frame> {
        self.outbox.settled(link, counter, pages)
    }

    /// The peer has closed a counter.
    pub(crate) fn forget(&mut self, counter: CounterId) {
        self.outbox.forget(counter);
    }

    /// Takes all out that have not ended.
    pub(crate) fn drain(&mut self) -> Vec<Transfer> {
        self.transfers.drain()
    }

    /// Lets go of all pages.
    pub(crate) fn clear(&mut self) {
        self.outbox.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// How many there are, and requests of theirs in flight.
    pub(crate) fn count(&self) -> usize {
        self.transfers.iter().count() + self.outbox.in_flight()
    }

    /// Bytes that are held here.
    pub(crate) fn memory(&self) -> usize {
        self.outbox.memory() + self.transfers.capacity() * size_of::<Transfer>()
    }
}

fn given_up(counter: CounterId) -> Frame {
    Frame::Abort { counter, reason: GIVEN_UP.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Direction, Event, PeerKey};
    use crate::plan::{Limits, Pages, Plan};

    const COUNTER: u32 = 5 << 8;

    /// Over one link that is ready, and takes a page at a time.
    fn ready() -> Transfers {
        let limits = Limits { bytes: 64, pieces: 1, targets: 1, pages: 1, is_ordered: false };
        let mut transfers =
            Transfers::new(vec![LinkSettings { id: LinkId(0), limits, window: 8, weight: 1 }]);
        assert!(transfers.next_post().is_none());
        transfers.restore(0, LinkId(1));
        transfers
    }

    fn submit(transfers: &mut Transfers, op: u64, pages: u32) -> TransferId {
        let some = || Pages { indices: (0..pages).collect(), stride: 64, offset: 0 };
        let len = u64::from(pages) * 64;
        let new = NewTransfer {
            op: OpId(op),
            peer: PeerKey(0),
            direction: Direction::Write,
            plan: Plan::new(64, (some(), len), (some(), len)).unwrap(),
            grant: op,
            base: 0,
            len,
            counter: Some(CounterId::from_raw(COUNTER)),
        };
        transfers.submit(new, 1, 0)
    }

    fn end_of(
        finished: Option<(Transfer, bool, Option<Frame>)>,
    ) -> (OpId, Result<(), TransferFault>, bool, bool) {
        let (transfer, is_whole, frame) = finished.expect("one has ended");
        let Event::Transfer(op, end) = transfer.finish(is_whole, 9) else { panic!("another event") };
        (op, end.outcome, end.is_back, matches!(frame, Some(Frame::Abort { .. })))
    }

    #[test]
    fn one_ends_when_all_its_pages_are_moved() {
        let mut transfers = ready();
        let id = submit(&mut transfers, 7, 2);
        assert_eq!((transfers.find(OpId(7)), transfers.find(OpId(8))), (Some(id), None));
        assert_eq!(transfers.using(7), [id]);
        let [first, second] = [(); 2].map(|()| transfers.next_post().unwrap());
        assert!(transfers.next_post().is_none());
        transfers.complete(first);
        assert!(transfers.take_finished().is_none());
        transfers.complete(second);
        assert_eq!(end_of(transfers.take_finished()), (OpId(7), Ok(()), true, false));
        assert!(transfers.is_empty() && transfers.count() == 0);
    }

    #[test]
    fn one_that_is_aborted_tells_its_counter_once_and_ends_when_nothing_is_in_flight() {
        let mut transfers = ready();
        let id = submit(&mut transfers, 7, 2);
        let posted = transfers.next_post().unwrap();
        let frames = transfers.abort(id, TransferFault::Aborted).unwrap();
        assert!(frames.iter().any(|frame| matches!(frame, Frame::Abort { .. })), "{frames:?}");
        assert!(transfers.take_finished().is_none(), "a card has a part of it");
        let again = transfers.abort(id, TransferFault::Revoked).unwrap();
        assert!(!again.iter().any(|frame| matches!(frame, Frame::Abort { .. })), "{again:?}");
        transfers.complete(posted);
        assert_eq!(end_of(transfers.take_finished()), (OpId(7), Err(TransferFault::Aborted), true, false));
        assert!(transfers.abort(id, TransferFault::Aborted).is_none());
    }

    #[test]
    fn one_of_which_a_card_keeps_a_part_is_not_back() {
        let mut transfers = ready();
        let id = submit(&mut transfers, 7, 1);
        let posted = transfers.next_post().unwrap();
        transfers.abandon(id, TransferFault::NoSuchGrant).unwrap();
        transfers.lose(0, vec![posted]);
        let (op, outcome, is_back, _) = end_of(transfers.take_finished());
        assert_eq!((op, outcome, is_back), (OpId(7), Err(TransferFault::NoSuchGrant), false));
    }

    #[test]
    fn what_a_card_refuses_does_not_count_for_its_rail() {
        let mut transfers = ready();
        submit(&mut transfers, 7, 1);
        for _ in 0..3 {
            let posted = transfers.next_post().unwrap();
            transfers.get_mut(posted.transfer()).unwrap().add_to_share(&posted);
            transfers.refused(posted);
        }
        let posted = transfers.next_post().unwrap();
        transfers.get_mut(posted.transfer()).unwrap().add_to_share(&posted);
        transfers.complete(posted);
        let (transfer, is_whole, _) = transfers.take_finished().unwrap();
        let Event::Transfer(_, end) = transfer.finish(is_whole, 9) else { panic!("another event") };
        let explanation = end.explanation;
        assert_eq!(
            (explanation.refusals, explanation.rails[0].operations, explanation.rails[0].bytes),
            (3, 1, 64)
        );
    }
}
