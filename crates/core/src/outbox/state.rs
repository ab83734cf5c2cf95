//! What an outbox keeps of what it was asked for.

use std::collections::VecDeque;

use super::TransferId;
use crate::counter::{CounterId, LinkId, Tick};
use crate::plan::{Operation, Plan};

#[derive(Debug)]
pub(super) struct Posted {
    pub(super) rail: usize,
    pub(super) transfer: TransferId,
    pub(super) operation: Operation,
    pub(super) tick: Option<Tick>,
    /// What it is sent again for.
    pub(super) debt: Option<(LinkId, CounterId)>,
    /// Pages that are not whole without it.
    pub(super) stake: u32,
}

/// An operation that was under way on a rail that was lost.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) operation: Operation,
    pub(super) debt: Option<(LinkId, CounterId)>,
    pub(super) stake: u32,
}

#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) plan: Plan,
    pub(super) counter: Option<CounterId>,
    pub(super) under_way: usize,
    /// Where a page was begun whose rest is to follow: on no other rail it would be behind its beginning.
    pub(super) begun_on: Option<usize>,
    /// By rail: pages that were posted and that no tick has told of yet.
    pub(super) untold: Vec<u32>,
    /// Refused by their rail for want of room.
    pub(super) refused: VecDeque<(usize, Operation)>,
    /// Under way on a rail that was lost.
    pub(super) again: VecDeque<Again>,
    /// Debts that must be paid before it is done.
    pub(super) debts: usize,
    /// Nothing more of it is posted than what is under way.
    pub(super) is_given_up: bool,
    /// Something of it was not posted for that reason, or not again.
    pub(super) is_short: bool,
}

/// Pages that the receiver may not have counted, since a rail was lost.
#[derive(Debug, Default)]
pub(super) struct Debt {
    /// Told of by ticks over the lost rail.
    pub(super) claimed: u64,
    /// Never told of.
    pub(super) untold: u64,
    /// What the receiver has counted of the claimed ones.
    pub(super) settled: Option<u64>,
    /// Operations that are sent again and not delivered yet.
    pub(super) again: usize,
    /// Pages that are not sent again, since their transfer was given up. Those that had come all the same are counted among them, so that
    /// the receiver may be told of fewer pages than are there, but never of more.
    pub(super) forgone: u64,
    pub(super) creditors: Vec<TransferId>,
}

impl Transfer {
    /// What was not posted will not be.
    pub(super) fn cut_short(&mut self) {
        self.plan.give_up();
        (self.is_short, self.begun_on) = (true, None);
        self.refused.clear();
        self.untold.fill(0);
    }
}
