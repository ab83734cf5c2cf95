//! One transfer of a peer's, from its request to its end.

use crate::counter::CounterId;
use crate::explain::Explanation;
use crate::machine::{Direction, Event, NewTransfer, OpId, TransferEnd, TransferFault};
use crate::outbox::{Posted, TransferId};
use crate::plan::Plan;

/// What is known of a transfer beside its pages, which the outbox has.
#[derive(Debug)]
pub(crate) struct Transfer {
    id: TransferId,
    op: OpId,
    direction: Direction,
    grant: u64,
    base: u64,
    counter: Option<CounterId>,
    fault: Option<TransferFault>,
    /// A card has a part of its memory that will never be proven to be back.
    is_kept: bool,
    explanation: Explanation,
}

impl Transfer {
    /// Begins now, over so many links. `submit` hands its pages to the outbox, which names it.
    pub(crate) fn begin(
        new: NewTransfer,
        links: usize,
        now: u64,
        submit: impl FnOnce(Plan, Option<CounterId>) -> TransferId,
    ) -> Self {
        let NewTransfer { op, direction, plan, grant, base, counter, .. } = new;
        let explanation = Explanation::begin(plan.pages() as u64, links, now);
        let id = submit(plan, counter);
        Self { id, op, direction, grant, base, counter, fault: None, is_kept: false, explanation }
    }

    pub(crate) fn id(&self) -> TransferId {
        self.id
    }

    #[inline]
    pub(crate) fn op(&self) -> OpId {
        self.op
    }

    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// The peer's grant that it goes to, or comes from.
    #[inline]
    pub(crate) fn grant(&self) -> u64 {
        self.grant
    }

    /// Where its range of the grant begins.
    #[inline]
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Whether a card has a part of its memory for good.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Why it is given up. The first reason stands.
    pub(crate) fn fail(&mut self, fault: TransferFault) {
        self.fault.get_or_insert(fault);
    }

    /// A card has a part of it for good.
    pub(crate) fn keep_for_good(&mut self, fault: TransferFault) {
        self.is_kept = true;
        self.fail(fault);
    }

    /// The counter that will not be told of all pages: once.
    pub(crate) fn take_counter(&mut self) -> Option<CounterId> {
        self.counter.take()
    }

    /// What is about to be posted counts for its rail.
    #[inline]
    pub(crate) fn add_to_share(&mut self, posted: &Posted) {
        let share = &mut self.explanation.rails[posted.link()];
        share.operations += 1;
        share.bytes += posted.operation().bytes;
        share.immediates += u64::from(posted.immediate().is_some());
    }

    /// What a card has refused does not.
    pub(crate) fn take_from_share(&mut self, posted: &Posted) {
        self.explanation.refusals += 1;
        let share = &mut self.explanation.rails[posted.link()];
        share.operations -= 1;
        share.bytes -= posted.operation().bytes;
        share.immediates -= u64::from(posted.immediate().is_some());
    }

    /// The names of the rails and links that it went over, by link.
    pub(crate) fn name_shares<'a>(&mut self, names: impl Iterator<Item = (&'a String, u64)>) {
        for ((rail, link), share) in names.zip(&mut self.explanation.rails) {
            share.rail.clone_from(rail);
            share.link = link;
        }
    }

    /// All its pages were moved, or given up.
    pub(crate) fn finish(mut self, is_whole: bool, now: u64) -> Event {
        let outcome = self.fault.take().filter(|_| !is_whole).map_or(Ok(()), Err);
        self.end(outcome, true, now)
    }

    /// How it has ended, and whether no card has anything of its memory that is known to come back.
    pub(crate) fn end(mut self, outcome: Result<(), TransferFault>, is_back: bool, now: u64) -> Event {
        self.explanation.end(now);
        let is_back = is_back && !self.is_kept;
        Event::Transfer(self.op, TransferEnd { outcome, is_back, explanation: self.explanation })
    }
}
