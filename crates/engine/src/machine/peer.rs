//! What the machine knows of one peer.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use farreach_core::counter::{CounterId, LinkId};
use farreach_core::inflight::Slots;
use farreach_core::outbox::{Outbox, TransferId};
use farreach_core::wire::Hello;
use farreach_memory::Slice;

use super::sequence::Sequence;
use super::transfer::TransferState;
use super::watch::PeerCell;
use super::word::WordState;
use super::{Rights, Tuning};
use crate::SendError;
use crate::helm::Promise;
use crate::provider::LinkKey;

/// Atomic operations that one peer may have under way.
const WORDS_MAX: u32 = 64;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) cell: Arc<PeerCell>,
    /// Whether this side connected: it offers the links.
    pub(super) is_initiator: bool,
    pub(super) hello: Option<Hello>,
    pub(super) links: Vec<Link>,
    pub(super) next_link: u64,
    pub(super) outbox: Outbox,
    pub(super) transfers: Sequence<TransferState>,
    /// What it has granted to us.
    pub(super) granted: HashMap<u64, Granted>,
    /// Its counters, and what they are called on which link.
    pub(super) counters: HashMap<CounterId, Vec<(LinkId, CounterId)>>,
    /// Our counters that count for it.
    pub(super) own_counters: Vec<CounterId>,
    /// What we have granted to it.
    pub(super) own_grants: Vec<u64>,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
    pub(super) words: Slots<WordState>,
    /// Asked of links whose bytes may land yet.
    pub(super) settles: Vec<(LinkId, CounterId)>,
    pub(super) heard_at: u64,
    pub(super) spoke_at: u64,
    /// Whether it has messages to be posted.
    pub(super) is_talking: bool,
    /// Whether nobody here has anything more to do with it.
    pub(super) is_left: bool,
    pub(super) lost: Option<Lost>,
}

/// How a peer was lost.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) at: u64,
    /// Whether it said goodbye, and with that, that nothing of it is under way.
    pub(super) is_quiet: bool,
}

/// One link: this side's end, and how far it is.
#[derive(Debug)]
pub(super) struct Link {
    /// Which rail of ours, and which of the peer's.
    pub(super) pair: (usize, usize),
    pub(super) id: LinkId,
    pub(super) key: Option<LinkKey>,
    pub(super) phase: Phase,
    pub(super) in_flight: u32,
    /// That of its rail, when it was opened.
    pub(super) generation: u64,
    /// What the peer wants its messages marked with.
    pub(super) mark: u32,
    /// What we want ours marked with.
    pub(super) own_mark: u32,
    /// Whether all that was posted to it has landed, as far as it is done.
    pub(super) is_quiet: bool,
    /// When something of it was last done, or first posted.
    pub(super) moved_at: u64,
}

/// How far a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not there; the initiator tries again then.
    Down { retry_at: u64 },
    /// Our end is told to the peer.
    Offered,
    /// Our end is connected.
    Connected,
    /// Both are.
    Ready,
    /// It failed, and something of it is still in flight.
    Draining { since: u64 },
}

/// Memory that a peer has granted to us.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) len: u64,
    pub(super) rights: Rights,
    /// By the peer's rails.
    pub(super) keys: Vec<Option<(u64, u64)>>,
    /// The peer wants it back, and gets an answer when nothing of ours is under way.
    pub(super) is_revoked: bool,
    /// Transfers and words that use it.
    pub(super) users: u32,
}

/// Messages to a peer.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) next: u64,
    /// How many more the peer holds for its user.
    pub(super) room: u32,
    /// Wait for room, or for a buffer.
    pub(super) waiting: VecDeque<(Vec<u8>, Promise<Result<(), SendError>>)>,
    /// Written to a buffer, and not posted, or to be posted again.
    pub(super) written: VecDeque<Message>,
    /// In flight.
    pub(super) posted: Slots<Message>,
    /// All that the peer's user has not taken yet, in order: a link that is lost may have lost them on the other side, too, after they
    /// were delivered.
    pub(super) kept: VecDeque<Kept>,
    /// Numbers of those that are to be sent again.
    pub(super) again: VecDeque<u64>,
    /// How many the peer's user has taken.
    pub(super) taken: u64,
}

/// A message that was sent.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) sequence: u64,
    pub(super) bytes: Vec<u8>,
    /// The link that has delivered it, as far as is known here.
    pub(super) link: Option<LinkId>,
}

/// A message on its way out.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) sequence: u64,
    pub(super) len: usize,
    /// Which it is posted to.
    pub(super) link: usize,
    /// Here while it is not in flight.
    pub(super) buffer: Option<Slice>,
    /// What it leaves of the buffer, while it is.
    pub(super) rest: Option<Slice>,
}

/// Messages from a peer.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    pub(super) next: u64,
    /// Came before their turn.
    pub(super) early: BTreeMap<u64, Vec<u8>>,
}

impl Peer {
    pub(super) fn new(cell: Arc<PeerCell>, is_initiator: bool, tuning: &Tuning, now: u64) -> Self {
        Self {
            cell,
            is_initiator,
            hello: None,
            links: Vec::new(),
            next_link: 0,
            outbox: Outbox::new(Vec::new()),
            transfers: Sequence::new(),
            granted: HashMap::new(),
            counters: HashMap::new(),
            own_counters: Vec::new(),
            own_grants: Vec::new(),
            sending: Sending {
                next: 0,
                room: 0,
                waiting: VecDeque::new(),
                written: VecDeque::new(),
                posted: Slots::new(tuning.messages),
                kept: VecDeque::new(),
                again: VecDeque::new(),
                taken: 0,
            },
            receiving: Receiving::default(),
            words: Slots::new(WORDS_MAX),
            settles: Vec::new(),
            heard_at: now,
            spoke_at: now,
            is_talking: false,
            is_left: false,
            lost: None,
        }
    }

    /// The transfers that use a grant of the peer's.
    pub(super) fn transfers_of(&self, grant: u64) -> Vec<TransferId> {
        self.transfers
            .iter()
            .filter(|(_, state)| state.grant() == grant)
            .map(|(_, state)| state.id())
            .collect()
    }

    /// Requests of ours that are with cards, on all links.
    pub(super) fn in_flight(&self) -> u32 {
        self.links.iter().map(|link| link.in_flight).sum()
    }

    pub(super) fn link_named(&self, id: LinkId) -> Option<usize> {
        self.links.iter().position(|link| link.id == id && !matches!(link.phase, Phase::Down { .. }))
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }
}
