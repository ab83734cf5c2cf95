//! One transfer with a peer, from its request to its end.

use std::sync::Arc;

use crate::counter::CounterId;
use crate::machine::{Direction, Event, NewTransfer, OpId, Regions, TransferEnd, TransferFault};
use crate::outbox::{Posted, TransferId};
use crate::plan::Plan;
use crate::priority::Priority;
use crate::stats::TransferStats;
use crate::time::Time;

/// The state of a transfer, without its pages, which the outbox has.
#[derive(Debug)]
pub(crate) struct Transfer {
    id: TransferId,
    op: OpId,
    direction: Direction,
    regions: Regions,
    counter: Option<CounterId>,
    deadline: Option<Time>,
    fault: Option<TransferFault>,
    /// Whether a card has a part of its memory for good.
    is_kept: bool,
    stats: TransferStats,
}

impl Transfer {
    /// Begins a transfer over links of these rails. `submit` hands its pages to the outbox, and returns
    /// the id.
    pub(crate) fn begin(
        new: NewTransfer,
        rails: impl Iterator<Item = Arc<str>>,
        now: Time,
        submit: impl FnOnce(Plan, Option<CounterId>, Priority) -> TransferId,
    ) -> Self {
        let NewTransfer { op, direction, plan, regions, counter, priority, deadline, .. } = new;
        let stats = TransferStats::begin(plan.pages() as u64, rails, now);
        let id = submit(plan, counter, priority);
        Self { id, op, direction, regions, counter, deadline, fault: None, is_kept: false, stats }
    }

    pub(crate) fn id(&self) -> TransferId {
        self.id
    }

    #[inline]
    pub(crate) fn op(&self) -> OpId {
        self.op
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns the ranges of the peer's memory that it writes to or reads from.
    #[inline]
    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Returns `true` if a card has a part of its memory for good.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Sets the reason for its abort. The first reason is kept.
    pub(crate) fn fail(&mut self, fault: TransferFault) {
        // The first one is the cause; an end of a link or of a grant often follows it.
        self.fault.get_or_insert(fault);
    }

    /// Returns `true` if it was aborted.
    pub(crate) fn has_failed(&self) -> bool {
        self.fault.is_some()
    }

    /// Marks its memory as kept by a card for good.
    pub(crate) fn keep_for_good(&mut self, fault: TransferFault) {
        self.is_kept = true;
        self.fail(fault);
    }

    /// Returns the counter that will not be raised for all pages, once.
    pub(crate) fn take_counter(&mut self) -> Option<CounterId> {
        self.counter.take()
    }

    /// Adds an operation that is about to be posted to the share of its rail.
    #[inline]
    pub(crate) fn add_to_share(&mut self, posted: &Posted) {
        let share = &mut self.stats.links[posted.link()];
        share.operations += 1;
        share.bytes += posted.operation().bytes;
        share.immediates += u64::from(posted.immediate().is_some());
    }

    /// Removes a refused operation from the share of its rail.
    pub(crate) fn take_from_share(&mut self, posted: &Posted) {
        self.stats.refusals += 1;
        let share = &mut self.stats.links[posted.link()];
        share.operations -= 1;
        share.bytes -= posted.operation().bytes;
        share.immediates -= u64::from(posted.immediate().is_some());
    }

    /// Notes how many of its bytes are known to have arrived.
    pub(crate) fn note_delivered(&mut self, bytes: u64) {
        self.stats.delivered = bytes;
    }

    /// Sets the numbers of links in the statistics, by link.
    pub(crate) fn number_shares(&mut self, numbers: impl Iterator<Item = u64>) {
        for (number, share) in numbers.zip(self.stats.links.iter_mut()) {
            share.link = number;
        }
    }

    /// Ends it after all its pages were moved or dropped.
    pub(crate) fn finish(mut self, is_whole: bool, now: Time) -> Event {
        // An abort that came when all was in flight has no effect: the pages are there.
        let outcome = self.fault.take().filter(|_| !is_whole).map_or(Ok(()), Err);
        self.end(outcome, true, now)
    }

    /// Ends it. `is_back` is `false` if a card has a part of its memory that is not known to come
    /// back.
    pub(crate) fn end(mut self, outcome: Result<(), TransferFault>, is_back: bool, now: Time) -> Event {
        self.stats.end(now);
        // Memory is free for its user only if no card may read or write it any more.
        let is_back = is_back && !self.is_kept;
        Event::Transfer(self.op, TransferEnd { outcome, is_back, stats: self.stats })
    }
}
