//! What the machine knows of one peer.

mod incoming;
mod link;
mod links;
mod outgoing;

use std::collections::VecDeque;

use super::Tuning;
use super::atomic::NewAtomic;
use super::id_map::IdMap;
use super::transfer::TransferState;
use crate::counter::{CounterId, LinkId};
use crate::inflight::SlotId;
use crate::lost::LostReason;
use crate::outbox::{Outbox, TransferId};
use crate::rights::Rights;
use crate::sequence::Sequence;
use crate::wire::Hello;

pub(crate) use incoming::TooMany;
pub(crate) use link::{Due, Link, LinkTimes, MadeEnd, NO_LINK, Phase, Remains};
pub(crate) use links::Links;

use incoming::Incoming;
use outgoing::Outgoing;

#[derive(Debug)]
pub(crate) struct Peer {
    /// Whether this side connected: it offers the links.
    pub(crate) is_initiator: bool,
    pub(crate) hello: Option<Hello>,
    /// Whether a rail was ever ready.
    pub(crate) is_up: bool,
    pub(crate) links: Links,
    pub(crate) outbox: Outbox,
    pub(crate) transfers: Sequence<TransferState>,
    /// What it has granted to us.
    pub(crate) granted: IdMap<u64, Granted>,
    /// Its counters, and what they are called on which link.
    pub(crate) counters: IdMap<CounterId, Vec<(LinkId, CounterId)>>,
    /// Our counters that count for it.
    pub(crate) own_counters: Vec<CounterId>,
    /// How much we have granted to it.
    pub(crate) own_grants: usize,
    /// How much of that is wanted back.
    pub(crate) revoking: usize,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    /// Those that cards have.
    pub(crate) atomics: Vec<SlotId>,
    /// Wait for a link, or for room.
    pub(crate) atomics_waiting: VecDeque<NewAtomic>,
    /// Asked of links whose bytes may land yet.
    pub(crate) settles: Vec<(LinkId, CounterId)>,
    /// How often it hears from us at least: as often as we or it want.
    pub(crate) heartbeat: u64,
    pub(crate) heard_at: u64,
    pub(crate) spoke_at: u64,
    /// When it was last told to look at rails that cannot wake it.
    pub(crate) told_to_look_at: Option<u64>,
    /// Whether it has messages to be posted.
    pub(crate) is_pending_sender: bool,
    /// Whether a card that is dead may still reach its memory.
    pub(crate) has_unstopped: bool,
    /// Whether nobody here has anything more to do with it.
    pub(crate) is_left: bool,
    pub(crate) lost: Option<Lost>,
}

/// How a peer was lost.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) at: u64,
    pub(crate) reason: LostReason,
    /// Whether it said goodbye, and with that, that nothing of it is under way.
    pub(crate) is_quiet: bool,
}

/// Memory that a peer has granted to us.
#[derive(Debug)]
pub(crate) struct Granted {
    pub(crate) len: u64,
    pub(crate) rights: Rights,
    /// By the peer's rails.
    pub(crate) keys: Vec<Option<(u64, u64)>>,
    /// The peer wants it back, and gets an answer when nothing of ours is under way.
    pub(crate) is_revoked: bool,
    /// Transfers and atomics that use it.
    pub(crate) users: u32,
}

impl Peer {
    pub(crate) fn new(is_initiator: bool, tuning: &Tuning, now: u64) -> Self {
        Self {
            is_initiator,
            hello: None,
            is_up: false,
            links: Links::default(),
            outbox: Outbox::new(Vec::new()),
            transfers: Sequence::new(),
            granted: IdMap::default(),
            counters: IdMap::default(),
            own_counters: Vec::new(),
            own_grants: 0,
            revoking: 0,
            outgoing: Outgoing::new(tuning.messages),
            incoming: Incoming::default(),
            atomics: Vec::new(),
            atomics_waiting: VecDeque::new(),
            settles: Vec::new(),
            heartbeat: tuning.heartbeat,
            heard_at: now,
            spoke_at: now,
            told_to_look_at: None,
            is_pending_sender: false,
            has_unstopped: false,
            is_left: false,
            lost: None,
        }
    }

    /// The transfers that use a grant of the peer's.
    pub(crate) fn transfers_of(&self, grant: u64) -> Vec<TransferId> {
        self.transfers
            .iter()
            .filter(|(_, state)| state.grant() == grant)
            .map(|(_, state)| state.id())
            .collect()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }
}
