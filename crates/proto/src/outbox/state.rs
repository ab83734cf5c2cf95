//! The state of an outbox's transfers and operations.

use std::collections::VecDeque;

use super::TransferId;
use crate::counter::{CounterId, Immediate, LinkId};
use crate::plan::{Operation, Plan};

/// A posted operation. The caller holds it until the card is done with it, and then hands it back
/// to the outbox.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the outbox waits until it is handed back"]
pub struct Posted {
    pub(super) link: usize,
    pub(super) transfer: TransferId,
    pub(super) operation: Operation,
    pub(super) immediate: Option<Immediate>,
    /// The entry of `Outbox::owed` for which it is resent.
    pub(super) owed: Option<(LinkId, CounterId)>,
    /// The number of pages that are incomplete without it.
    pub(super) pages: u32,
}

impl Posted {
    /// Returns the index of its link.
    pub fn link(&self) -> usize {
        self.link
    }

    /// Returns the transfer of its pages.
    pub fn transfer(&self) -> TransferId {
        self.transfer
    }

    /// Returns the immediate that it carries.
    pub fn immediate(&self) -> Option<Immediate> {
        self.immediate
    }

    /// Returns the bytes to move. An operation without bytes carries only its immediate.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }
}

/// An operation that was in flight on a lost link.
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
    /// The link on which a page was begun. The rest must follow there: on another link it could
    /// overtake the beginning.
    pub(super) begun_on: Option<usize>,
    /// For each link, the number of posted pages that no immediate has reported yet.
    pub(super) unreported: Vec<u32>,
    /// Operations that their link had no room for.
    pub(super) refused: VecDeque<(usize, Operation)>,
    /// Operations that were in flight on a lost link.
    pub(super) resends: VecDeque<Resend>,
    /// The number of entries of `Outbox::owed` that must be reconciled before the transfer is done.
    pub(super) owed: usize,
    /// Nothing more is posted than what is in flight.
    pub(super) is_aborted: bool,
    /// A part was not posted, or not resent, because of the abort.
    pub(super) is_incomplete: bool,
}

/// Pages that the receiver may not have counted after the loss of a link.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Pages reported by immediates over the lost link.
    pub(super) reported: u64,
    /// Pages that were never reported.
    pub(super) unreported: u64,
    /// The number of reported pages that the receiver has counted.
    pub(super) settled: Option<u64>,
    /// The number of resent operations that are not delivered yet.
    pub(super) resends: usize,
    /// Pages that are not resent, because their transfer was aborted. Pages that had arrived
    /// nevertheless are included, so the receiver may count fewer pages than have arrived, but
    /// never more.
    pub(super) aborted: u64,
    pub(super) transfers: Vec<TransferId>,
}

impl Transfer {
    /// Drops everything that is not posted.
    pub(super) fn abort_rest(&mut self) {
        self.plan.abort();
        (self.is_incomplete, self.begun_on) = (true, None);
        self.refused.clear();
        self.unreported.fill(0);
    }
}
