//! What a scenario consists of.
//!
//! The first host owns memory and counters; each of the others is connected to it, and writes.

use farreach_rail::EndedKeys;

use super::user::{PAGE, PAGES};
use crate::SimCard;

pub(super) const MS: u64 = 1_000_000;

/// The time without progress after which a link is lost.
pub(super) const STALL: u64 = 3_000 * MS;

/// A few events, of which all orders are tried.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) name: String,
    /// The cards of each host. The first one is the owner.
    pub(super) hosts: Vec<Vec<SimCard>>,
    /// What users have done before anything else happens, each by a host.
    pub(super) before: Vec<(usize, Call)>,
    /// Calls after that, whose bytes have left and not arrived when the scenario begins.
    pub(super) sent: Vec<(usize, Call)>,
    /// Users, each of a host. One makes its calls in their order.
    pub(super) users: Vec<(usize, Vec<Call>)>,
    pub(super) losses: Vec<Loss>,
    /// Whether all losses are the first that happens.
    pub(super) is_lost_first: bool,
    /// Whether everything but the landing of bytes has happened that follows from the losses at once.
    pub(super) is_late: bool,
    /// Moments. Time advances to the next one at any point.
    pub(super) moments: Vec<u64>,
    /// The number of parts in which bytes move.
    pub(super) parts: u8,
    /// Whether peers cannot map memory within the host.
    pub(super) maps_nothing: bool,
    /// The length of the owner's memory.
    pub(super) len: usize,
}

/// A call of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// The owner publishes memory.
    Publish,
    /// A writer opens it.
    Open,
    /// The owner gets a reference to an atomic in it. It waits while pages are exchanged.
    Atomic,
    /// The owner withdraws it from a writer, within this time.
    WithdrawFrom(usize, u64),
    /// The owner withdraws it from all.
    Withdraw(u64),
    /// The owner grants memory to a writer.
    Grant(usize),
    /// The owner revokes it.
    Revoke(usize, u64),
    /// The owner opens a counter of a writer.
    Count(usize),
    /// The owner closes it.
    CloseCounter(usize),
    /// The owner shares a counter.
    Share,
    /// A writer opens it.
    Join,
    /// The owner closes it.
    CloseShared,
    /// A writer writes a page.
    Write(Writing),
    /// A writer says that 2^64 - 1 pages were on a link that is lost.
    Lie,
    /// A writer aborts its first write that has not ended.
    Abort,
}

/// How a page is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Writing {
    pub(super) is_counted: bool,
    pub(super) deadline: Option<u64>,
    /// Whether the card is asked to perform it within the call.
    pub(super) is_short: bool,
}

impl Call {
    /// A page that nothing counts.
    pub(super) const WRITE: Self =
        Self::Write(Writing { is_counted: false, deadline: None, is_short: false });
    /// A page that the owner's counter counts.
    pub(super) const COUNTED: Self =
        Self::Write(Writing { is_counted: true, deadline: None, is_short: false });
    /// As [`COUNTED`](Self::COUNTED), performed within the call if the card can.
    pub(super) const SHORT: Self = Self::Write(Writing { is_counted: true, deadline: None, is_short: true });
}

/// Something that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The link of a writer over its card with this number.
    Link(usize, usize),
    /// The control connection of a writer.
    Peer(usize),
    /// A writer, whose process is stopped: the owner loses it, and its cards end nothing that they have begun.
    Stopped(usize),
}

impl Scenario {
    /// A scenario in which nothing happens, between an owner and so many writers.
    pub(super) fn new(name: &str, card: &SimCard, writers: usize) -> Self {
        Self {
            name: format!("{}: {name}", card.properties.native),
            hosts: vec![vec![card.clone()]; writers + 1],
            before: Vec::new(),
            sent: Vec::new(),
            users: Vec::new(),
            losses: Vec::new(),
            is_lost_first: false,
            is_late: false,
            moments: Vec::new(),
            // On memory that two processes map, a writer may be in the middle of a copy.
            parts: if card.properties.ended_keys == EndedKeys::Reported { 2 } else { 1 },
            maps_nothing: false,
            len: writers * PAGES * PAGE,
        }
    }

    pub(super) fn before(mut self, calls: &[(usize, Call)]) -> Self {
        self.before.extend(calls);
        self
    }

    pub(super) fn sent(mut self, calls: &[(usize, Call)]) -> Self {
        self.sent.extend(calls);
        self
    }

    pub(super) fn user(mut self, host: usize, calls: &[Call]) -> Self {
        self.users.push((host, calls.to_vec()));
        self
    }

    pub(super) fn loss(mut self, loss: Loss) -> Self {
        self.losses.push(loss);
        self
    }

    pub(super) fn moments(mut self, moments: &[u64]) -> Self {
        self.moments.extend(moments);
        self
    }
}
