//! What an outbox keeps of what it was asked for.

use std::collections::VecDeque;

use super::TransferId;
use crate::counter::{CounterId, Immediate, LinkId};
use crate::plan::{Operation, Plan};

/// An operation that is posted. Whoever posts it has it until its card is done with it, and hands it back then.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the outbox waits until it is handed back"]
pub struct Posted {
    pub(super) link: usize,
    pub(super) transfer: TransferId,
    pub(super) operation: Operation,
    pub(super) immediate: Option<Immediate>,
    /// What it is sent again for.
    pub(super) owed: Option<(LinkId, CounterId)>,
    /// Pages that are not whole without it.
    pub(super) pages: u32,
}

impl Posted {
    /// Which link it is for.
    pub fn link(&self) -> usize {
        self.link
    }

    /// Whose pages it has.
    pub fn transfer(&self) -> TransferId {
        self.transfer
    }

    /// What it tells the receiver.
    pub fn immediate(&self) -> Option<Immediate> {
        self.immediate
    }

    /// What is to be done. Without any bytes, it only carries its immediate.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }
}

/// An operation that was in flight on a link that was lost.
#[derive(Debug)]
pub(super) struct Resend {
    pub(super) operation: Operation,
    pub(super) owed: Option<(LinkId, CounterId)>,
    pub(super) pages: u32,
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) plan: Plan,
    pub(super) counter: Option<CounterId>,
    pub(super) in_flight: usize,
    /// Where a page was begun whose rest is to follow: on no other link it would be behind its beginning.
    pub(super) begun_on: Option<usize>,
    /// By link: pages that were posted and that no immediate has told of yet.
    pub(super) unreported: Vec<u32>,
    /// Refused by their link for want of room.
    pub(super) refused: VecDeque<(usize, Operation)>,
    /// In flight on a link that was lost.
    pub(super) resends: VecDeque<Resend>,
    /// How many entries of `Outbox::owed` must be reconciled before it is done.
    pub(super) owed: usize,
    /// Nothing more of it is posted than what is in flight.
    pub(super) is_aborted: bool,
    /// Something of it was not posted for that reason, or not again.
    pub(super) is_incomplete: bool,
}

/// Pages that the receiver may not have counted, since a link was lost.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Reported by immediates over the lost link.
    pub(super) reported: u64,
    /// Never reported.
    pub(super) unreported: u64,
    /// What the receiver has counted of the reported ones.
    pub(super) settled: Option<u64>,
    /// Operations that are sent again and not delivered yet.
    pub(super) resends: usize,
    /// Pages that are not sent again, since their transfer was aborted. Those that had come all the same are counted among them, so that
    /// the receiver may be told of fewer pages than are there, but never of more.
    pub(super) aborted: u64,
    pub(super) transfers: Vec<TransferId>,
}

impl Transfer {
    /// What was not posted will not be.
    pub(super) fn abort_rest(&mut self) {
        self.plan.abort();
        (self.is_incomplete, self.begun_on) = (true, None);
        self.refused.clear();
        self.unreported.fill(0);
    }
}
