//! The transfers with one peer, and the outbox with their pages.

use std::sync::Arc;

use super::transfer::Transfer;
use crate::counter::{CounterId, Immediate, LinkId};
use crate::ids::GrantId;
use crate::machine::{NewTransfer, OpId, PeerKey, TransferFault};
use crate::outbox::{LinkSettings, Outbox, Posted, TransferId};
use crate::priority::Priority;
use crate::rail::Scope;
use crate::sequence::Sequence;
use crate::time::Time;
use crate::wire::Frame;

/// The reason sent with `Abort`.
const GIVEN_UP: &str = "the transfer was aborted";

/// See the [module](self).
///
/// The caller must send the frames that a method returns to the peer, in order.
#[derive(Debug)]
pub(crate) struct Transfers {
    outbox: Outbox,
    transfers: Sequence<Transfer>,
    /// Those that wait for the key of their grant or the name of their counter on a link.
    parked: Vec<TransferId>,
    /// The time since which the peer has answered none of the questions about lost links.
    unanswered_since: Option<Time>,
}

impl Default for Transfers {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Transfers {
    /// Creates an empty table over these links, none of which is ready.
    pub(crate) fn new(links: Vec<LinkSettings>) -> Self {
        let count = links.len();
        let mut outbox = Outbox::new(links);
        // Links of an outbox are alive at first, and these are not connected yet.
        (0..count).for_each(|link| outbox.pause(link));
        Self { outbox, transfers: Sequence::new(), parked: Vec::new(), unanswered_since: None }
    }

    /// Begins a transfer that was checked, over links of this scope. `rails` are those of all links.
    pub(crate) fn submit(
        &mut self,
        new: NewTransfer,
        scope: Scope,
        rails: impl Iterator<Item = Arc<str>>,
        now: Time,
    ) -> TransferId {
        let submit = |plan, counter, priority| self.outbox.submit(plan, counter, scope, priority);
        let transfer = Transfer::begin(new, rails, now, submit);
        let id = transfer.id();
        self.transfers.put(id.index(), transfer);
        id
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: TransferId) -> Option<&mut Transfer> {
        self.transfers.get_mut(id.index())
    }

    /// Returns the transfer of this request.
    pub(crate) fn find(&self, op: OpId) -> Option<TransferId> {
        self.transfers.iter().find(|(_, transfer)| transfer.op() == op).map(|(_, transfer)| transfer.id())
    }

    /// Returns the transfers that use a grant of the peer.
    pub(crate) fn using(&self, grant: GrantId) -> Vec<TransferId> {
        let uses =
            |transfer: &Transfer| transfer.regions().as_slice().iter().any(|range| range.grant == grant);
        let users = self.transfers.iter().filter(|(_, transfer)| uses(transfer));
        users.map(|(_, transfer)| transfer.id()).collect()
    }

    /// Returns the next operation of this priority, for any ready link. There is less room if
    /// `is_urgent_lately`.
    #[inline]
    pub(crate) fn next_post(&mut self, priority: Priority, is_urgent_lately: bool) -> Option<Posted> {
        self.outbox.next_post_of(priority, is_urgent_lately)
    }

    /// Returns `true` if a transfer of this priority may have something to post.
    #[inline]
    pub(crate) fn may_post(&self, priority: Priority) -> bool {
        self.outbox.may_post(priority)
    }

    /// Returns the link for a short operation of this scope and priority, if there is no transfer before
    /// it.
    #[inline]
    pub(crate) fn pick_short(&self, bytes: u64, scope: Scope, priority: Priority) -> Option<usize> {
        // A short transfer must not overtake queued ones that come before it.
        if self.outbox.has_any_before(priority) { None } else { self.outbox.pick(bytes, scope) }
    }

    /// Accounts an operation that its rail has performed at once.
    #[inline]
    pub(crate) fn performed(&mut self, link: usize, bytes: u64, immediate: Option<Immediate>) {
        self.outbox.performed(link, bytes, immediate);
    }

    /// Takes back an operation that is not posted now.
    pub(crate) fn put_back(&mut self, posted: Posted) {
        // It was not added to the share yet, so unlike in `refused` nothing is taken from it.
        self.outbox.refuse(posted);
    }

    /// Takes back an operation, and lets its transfer wait until all parked ones are
    /// [resumed](Self::resume). Others go on meanwhile.
    pub(crate) fn park(&mut self, posted: Posted) {
        let id = posted.transfer();
        self.outbox.refuse(posted);
        // After `refuse`, which lists the transfer again.
        self.outbox.park(id);
        self.parked.push(id);
    }

    /// Lets all parked transfers go on: what they wait for may be there.
    pub(crate) fn resume(&mut self) {
        self.parked.drain(..).for_each(|id| self.outbox.resume(id));
    }

    /// Takes back an operation that no card accepted.
    pub(crate) fn refused(&mut self, posted: Posted) {
        let transfer = self.get_mut(posted.transfer()).expect("the outbox has the same transfers");
        transfer.take_from_share(&posted);
        self.outbox.refuse(posted);
    }

    /// Completes an operation.
    #[inline]
    pub(crate) fn complete(&mut self, posted: Posted) -> Vec<Frame> {
        self.outbox.complete(posted)
    }

    /// Aborts a transfer. Returns `None` if there is no such transfer.
    pub(crate) fn abort(&mut self, id: TransferId, fault: TransferFault) -> Option<Vec<Frame>> {
        let transfer = self.transfers.get_mut(id.index())?;
        transfer.fail(fault);
        let mut frames = self.outbox.abort(id);
        // The receiver need not wait for pages that will not come.
        if self.outbox.is_incomplete(id)
            && let Some(counter) = transfer.take_counter()
        {
            frames.push(given_up(counter));
        }
        Some(frames)
    }

    /// Aborts a transfer of which a card keeps a part of the memory for good. Returns `None` if
    /// there is no such transfer.
    pub(crate) fn abandon(&mut self, id: TransferId, fault: TransferFault) -> Option<Vec<Frame>> {
        self.transfers.get_mut(id.index())?.keep_for_good(fault);
        Some(self.outbox.abort(id))
    }

    /// Returns `true` if a transfer has finished that was not [taken](Self::take_finished).
    #[inline]
    pub(crate) fn has_finished(&self) -> bool {
        self.outbox.has_finished()
    }

    /// Returns the next finished transfer, whether all its pages were moved, and a frame for the
    /// peer.
    pub(crate) fn take_finished(&mut self) -> Option<(Transfer, bool, Option<Frame>)> {
        let finished = self.outbox.finished()?;
        let transfer = self.transfers.take(finished.transfer.index());
        let mut transfer = transfer.expect("the outbox has the same transfers");
        // The receiver is told at most once that pages will not come.
        let missed = transfer.take_counter().filter(|_| !finished.is_whole);
        transfer.note_delivered(finished.delivered);
        Some((transfer, finished.is_whole, missed.map(given_up)))
    }

    /// Stops posting to a link.
    pub(crate) fn pause(&mut self, link: usize) {
        self.outbox.pause(link);
    }

    /// Marks a link as ready, with this id.
    pub(crate) fn restore(&mut self, link: usize, id: LinkId) {
        self.outbox.restore(link, id);
    }

    /// Handles the loss of a link: its operations go to the others.
    pub(crate) fn lose(&mut self, link: usize, lost: Vec<Posted>, now: Time) -> Vec<Frame> {
        let frames = self.outbox.lose(link, lost);
        if self.outbox.unanswered() > 0 {
            // The clock of an earlier question goes on: an honest peer answers all of them soon.
            self.unanswered_since.get_or_insert(now);
        }
        frames
    }

    /// Has the peer tell when nothing lands any more over a link that is about to be [lost](Self::lose), also
    /// if no pages were in flight on it.
    pub(crate) fn ask_about(&mut self, link: usize) {
        self.outbox.ask_about(link);
    }

    /// Handles the number of pages that the peer has counted over a lost link.
    pub(crate) fn settled(&mut self, link: LinkId, counter: CounterId, pages: u64, now: Time) -> Vec<Frame> {
        let before = self.outbox.unanswered();
        let frames = self.outbox.settled(link, counter, pages);
        let left = self.outbox.unanswered();
        // Only an answer to a question counts.
        if left < before {
            self.unanswered_since = (left > 0).then_some(now);
        }
        frames
    }

    /// Returns the time since which the peer has answered none of the questions about lost links.
    pub(crate) fn unanswered_since(&self) -> Option<Time> {
        self.unanswered_since
    }

    /// Handles the close of a counter by the peer.
    pub(crate) fn forget(&mut self, counter: CounterId) {
        // Its transfers go on: their pages arrive, and nobody counts them.
        self.outbox.forget(counter);
    }

    /// Removes all unfinished transfers.
    pub(crate) fn drain(&mut self) -> Vec<Transfer> {
        let mut drained = self.transfers.drain();
        for transfer in &mut drained {
            transfer.note_delivered(self.outbox.delivered(transfer.id()));
        }
        drained
    }

    /// Drops all pages.
    pub(crate) fn clear(&mut self) {
        self.outbox.clear();
        self.parked.clear();
        self.unanswered_since = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.transfers.is_empty()
    }

    /// Returns the number of transfers and of their operations in flight.
    pub(crate) fn count(&self) -> usize {
        self.transfers.iter().count() + self.outbox.in_flight()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Transfer)> {
        self.transfers.iter()
    }

    /// Returns the id of a link if pages are posted to it.
    pub(crate) fn posts_over(&self, link: usize) -> Option<LinkId> {
        self.outbox.posts_over(link)
    }

    /// Returns `true` if a transfer of this priority has something to post, and nothing of this peer has
    /// to end first.
    pub(crate) fn could_post(&self, priority: Priority) -> bool {
        self.outbox.could_post(priority)
    }

    /// Checks that the outbox has the same transfers, and accounts these operations, which are in flight
    /// or have failed.
    pub(crate) fn check(&self, key: PeerKey, posted: &[&Posted]) {
        let ids = self.transfers.iter().map(|(id, _)| id);
        assert!(ids.eq(self.outbox.ids()), "transfers: those of {key:?} and of its outbox differ");
        assert!(!self.has_finished(), "transfers: one of {key:?} has finished, and nobody was told");
        let (is_asked, since) = (self.outbox.unanswered() > 0, self.unanswered_since);
        assert_eq!(is_asked, since.is_some(), "transfers: questions to {key:?}");
        self.outbox.check(&key, posted, |id| self.parked.contains(&id));
    }

    /// Returns the bytes of memory that are held.
    pub(crate) fn memory(&self) -> usize {
        self.outbox.memory()
            + self.transfers.capacity() * size_of::<Transfer>()
            + self.parked.capacity() * size_of::<TransferId>()
    }
}

/// Returns the frame that tells the owner of a counter that pages will not come.
pub(crate) fn given_up(counter: CounterId) -> Frame {
    Frame::Abort { counter, reason: GIVEN_UP.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Direction, Event, GrantRange, PeerKey};
    use crate::plan::{Limits, Pages, Plan};

    const COUNTER: u32 = 5 << 8;

    /// Returns a table with one ready link, which takes a page at a time.
    fn ready() -> Transfers {
        let limits = Limits { bytes: 64, pieces: 1, targets: 1, pages: 1, is_ordered: false };
        let link = LinkSettings { id: LinkId(0), limits, window: 8, weight: 1, scope: Scope::Network };
        let mut transfers = Transfers::new(vec![link]);
        assert!(transfers.next_post(Priority::Normal, false).is_none());
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
            regions: GrantRange { grant: GrantId(op), base: 0, len }.into(),
            counter: Some(CounterId::from_raw(COUNTER)),
            priority: Priority::Normal,
            deadline: None,
        };
        transfers.submit(new, Scope::Network, ["rail".into()].into_iter(), Time::ZERO)
    }

    fn end_of(
        finished: Option<(Transfer, bool, Option<Frame>)>,
    ) -> (OpId, Result<(), TransferFault>, bool, bool) {
        let (transfer, is_whole, frame) = finished.expect("one has ended");
        let Event::Transfer(op, end) = transfer.finish(is_whole, Time(9)) else { panic!("another event") };
        (op, end.outcome, end.is_back, matches!(frame, Some(Frame::Abort { .. })))
    }

    #[test]
    fn one_ends_when_all_its_pages_are_moved() {
        let mut transfers = ready();
        let id = submit(&mut transfers, 7, 2);
        assert_eq!((transfers.find(OpId(7)), transfers.find(OpId(8))), (Some(id), None));
        assert_eq!(transfers.using(GrantId(7)), [id]);
        let [first, second] = [(); 2].map(|()| transfers.next_post(Priority::Normal, false).unwrap());
        assert!(transfers.next_post(Priority::Normal, false).is_none());
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
        let posted = transfers.next_post(Priority::Normal, false).unwrap();
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
        let posted = transfers.next_post(Priority::Normal, false).unwrap();
        transfers.abandon(id, TransferFault::NoSuchGrant).unwrap();
        transfers.lose(0, vec![posted], Time::ZERO);
        let (op, outcome, is_back, _) = end_of(transfers.take_finished());
        assert_eq!((op, outcome, is_back), (OpId(7), Err(TransferFault::NoSuchGrant), false));
    }

    #[test]
    fn what_a_card_refuses_does_not_count_for_its_rail() {
        let mut transfers = ready();
        submit(&mut transfers, 7, 1);
        for _ in 0..3 {
            let posted = transfers.next_post(Priority::Normal, false).unwrap();
            transfers.get_mut(posted.transfer()).unwrap().add_to_share(&posted);
            transfers.refused(posted);
        }
        let posted = transfers.next_post(Priority::Normal, false).unwrap();
        transfers.get_mut(posted.transfer()).unwrap().add_to_share(&posted);
        transfers.complete(posted);
        let (transfer, is_whole, _) = transfers.take_finished().unwrap();
        let Event::Transfer(_, end) = transfer.finish(is_whole, Time(9)) else { panic!("another event") };
        let stats = end.stats;
        assert_eq!((stats.refusals, stats.links[0].operations, stats.links[0].bytes), (3, 1, 64));
    }
}
