//! What the machine knows of one peer.

mod atomics;
mod granted;
mod incoming;
mod link;
mod links;
mod outgoing;
mod remote_counters;
mod transfer;
mod transfers;

use super::Tuning;
use crate::counter::{CounterId, LinkId};
use crate::lost::LostReason;
use crate::wire::Hello;

pub(crate) use incoming::TooMany;
pub(crate) use link::{Due, Link, LinkTimes, MadeEnd, NO_LINK, Phase, Remains};
pub(crate) use links::Links;
pub(crate) use transfers::Transfers;

use atomics::Atomics;
use granted::GrantedTable;
use incoming::Incoming;
use outgoing::Outgoing;
use remote_counters::RemoteCounters;

#[derive(Debug)]
pub(crate) struct Peer {
    /// Whether this side connected: it offers the links.
    pub(crate) is_initiator: bool,
    pub(crate) hello: Option<Hello>,
    /// Whether a rail was ever ready.
    pub(crate) is_up: bool,
    pub(crate) links: Links,
    pub(crate) transfers: Transfers,
    /// What it has granted to us.
    pub(crate) granted: GrantedTable,
    /// Its counters, and what they are called on which link.
    pub(crate) counters: RemoteCounters,
    /// Our counters that count for it.
    pub(crate) own_counters: Vec<CounterId>,
    /// How much we have granted to it.
    pub(crate) own_grants: usize,
    /// How much of that is wanted back.
    pub(crate) revoking: usize,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    pub(crate) atomics: Atomics,
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

impl Peer {
    pub(crate) fn new(is_initiator: bool, tuning: &Tuning, now: u64) -> Self {
        Self {
            is_initiator,
            hello: None,
            is_up: false,
            links: Links::default(),
            transfers: Transfers::default(),
            granted: GrantedTable::default(),
            counters: RemoteCounters::default(),
            own_counters: Vec::new(),
            own_grants: 0,
            revoking: 0,
            outgoing: Outgoing::new(tuning.messages),
            incoming: Incoming::default(),
            atomics: Atomics::default(),
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

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Whether something of it is under way, or about to change by time alone.
    pub(crate) fn is_active(&self) -> bool {
        self.is_lost() || self.is_left || self.links.iter().any(Link::is_active)
    }

    /// Whether nothing is asked of it.
    pub(crate) fn is_idle(&self) -> bool {
        self.transfers.is_empty() && self.atomics.is_empty() && self.outgoing.is_idle()
    }

    /// What it takes itself, and what its tables have room for.
    pub(crate) fn memory(&self) -> usize {
        let tables = self.links.memory()
            + self.transfers.memory()
            + self.granted.memory()
            + self.counters.memory()
            + self.atomics.memory();
        // Buffers of messages in flight are all peers' together.
        size_of::<Self>() + tables + self.outgoing.memory() + self.incoming.memory()
    }
}
