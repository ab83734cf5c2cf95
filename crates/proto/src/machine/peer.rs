//! What the machine knows of one peer.

use std::collections::VecDeque;

use super::Tuning;
use super::atomic::NewAtomic;
use super::id_map::IdMap;
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::transfer::TransferState;
use crate::counter::{CounterId, LinkId};
use crate::inflight::SlotId;
use crate::lost::LostReason;
use crate::outbox::{Outbox, Posted, TransferId};
use crate::rail::LinkKey;
use crate::rights::Rights;
use crate::sequence::Sequence;
use crate::wire::Hello;

/// What waits for room is tried with every step; refusals that are further apart are of different requests.
const REFUSALS_APART: u64 = 1_000_000_000;

#[derive(Debug)]
pub(super) struct Peer {
    /// Whether this side connected: it offers the links.
    pub(super) is_initiator: bool,
    pub(super) hello: Option<Hello>,
    /// Whether a rail was ever ready.
    pub(super) is_up: bool,
    pub(super) links: Vec<Link>,
    /// Links that others have followed here while the peer's end may still have something under way: it says so when it is lost.
    pub(super) past: Vec<PastLink>,
    pub(super) next_link: u64,
    pub(super) outbox: Outbox,
    pub(super) transfers: Sequence<TransferState>,
    /// What it has granted to us.
    pub(super) granted: IdMap<u64, Granted>,
    /// Its counters, and what they are called on which link.
    pub(super) counters: IdMap<CounterId, Vec<(LinkId, CounterId)>>,
    /// Our counters that count for it.
    pub(super) own_counters: Vec<CounterId>,
    /// How much we have granted to it.
    pub(super) own_grants: usize,
    /// How much of that is wanted back.
    pub(super) revoking: usize,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// Those that cards have.
    pub(super) atomics: Vec<SlotId>,
    /// Wait for a link, or for room.
    pub(super) atomics_waiting: VecDeque<NewAtomic>,
    /// Asked of links whose bytes may land yet.
    pub(super) settles: Vec<(LinkId, CounterId)>,
    /// How often it hears from us at least: as often as we or it want.
    pub(super) heartbeat: u64,
    pub(super) heard_at: u64,
    pub(super) spoke_at: u64,
    /// When it was last told to look at rails that cannot wake it.
    pub(super) told_to_look_at: Option<u64>,
    /// Whether it has messages to be posted.
    pub(super) is_pending_sender: bool,
    /// Whether a card that is dead may still reach its memory.
    pub(super) has_unstopped: bool,
    /// Whether nobody here has anything more to do with it.
    pub(super) is_left: bool,
    pub(super) lost: Option<Lost>,
}

/// How a peer was lost.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) at: u64,
    pub(super) reason: LostReason,
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
    /// Pages of requests that have failed: they go to another link when this one is lost.
    pub(super) failed: Vec<Posted>,
    /// That of its rail, when it was opened.
    pub(super) generation: u64,
    /// Whether the peer has said that its end is lost.
    pub(super) is_lost_there: bool,
    /// Whether it has said, too, that what it had under way may land yet.
    pub(super) may_land_late: bool,
    /// What the peer wants its messages marked with.
    pub(super) mark: u32,
    /// What we want ours marked with.
    pub(super) own_mark: u32,
    /// Whether all that was posted to it has landed, as far as it is done.
    pub(super) is_quiet: bool,
    /// When something of it was last done, or first posted.
    pub(super) moved_at: u64,
    /// Since when it takes nothing, though nothing of ours is in flight on it, and when it last did not: a connection that is never made looks so.
    pub(super) refusals: Option<(u64, u64)>,
    /// Why it fails, where that was found here.
    pub(super) why: String,
}

impl Link {
    /// Whether it is of no use any more.
    pub(super) fn is_failing(&self) -> bool {
        matches!(self.phase, Phase::Down { .. } | Phase::Draining { .. })
    }

    /// Something was posted to it.
    #[inline]
    pub(super) fn took_one(&mut self, now: u64) {
        if self.in_flight == 0 {
            self.moved_at = now;
        }
        self.in_flight += 1;
        self.refusals = None;
    }

    /// It has no room.
    pub(super) fn has_refused(&mut self, now: u64) {
        if self.in_flight == 0 {
            let since =
                self.refusals.filter(|(_, last)| now < last + REFUSALS_APART).map_or(now, |(since, _)| since);
            self.refusals = Some((since, now));
        }
    }

    /// Whether it hangs: nothing has moved on it for so long, or it has taken nothing.
    pub(super) fn hangs(&self, now: u64, stall: u64) -> bool {
        let is_long_ago = |since: u64| now >= since.saturating_add(stall);
        let refuses = |(since, last)| is_long_ago(since) && now < last + REFUSALS_APART;
        (self.in_flight > 0 && is_long_ago(self.moved_at)) || self.refusals.is_some_and(refuses)
    }
}

/// A link that there is no more on this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PastLink {
    pub(super) id: LinkId,
    pub(super) rail: usize,
    /// That of its rail, when it was opened.
    pub(super) generation: u64,
    /// Whether the peer has said that what it had under way may land yet.
    pub(super) may_land_late: bool,
}

/// The name of a link that was never offered: nobody can have posted to it.
pub(super) const NO_LINK: LinkId = LinkId(u64::MAX);

/// How far a link is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not there; the initiator tries again then.
    Down { retry_at: u64 },
    /// Our end is being made.
    Opening,
    /// Our end is told to the peer.
    Offered,
    /// Our end is being connected. The peer may have said already that its end is, and what it wants its messages marked with.
    Connecting { mark: Option<u32> },
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
    /// Transfers and atomics that use it.
    pub(super) users: u32,
}

impl Peer {
    pub(super) fn new(is_initiator: bool, tuning: &Tuning, now: u64) -> Self {
        Self {
            is_initiator,
            hello: None,
            is_up: false,
            links: Vec::new(),
            past: Vec::new(),
            next_link: 0,
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

    /// The rail of a link, also of one that others have followed, and the rail's generation when it was opened.
    pub(super) fn rail_of(&self, id: LinkId) -> Option<(usize, u64)> {
        let present = self.links.iter().find(|link| link.id == id).map(|link| (link.pair.0, link.generation));
        let past = || self.past.iter().find(|link| link.id == id).map(|link| (link.rail, link.generation));
        present.or_else(past)
    }

    /// The peer has said that what it had under way on a link may land yet.
    pub(super) fn expect_late(&mut self, id: LinkId) {
        self.links.iter_mut().filter(|link| link.id == id).for_each(|link| link.may_land_late = true);
        self.past.iter_mut().filter(|link| link.id == id).for_each(|link| link.may_land_late = true);
    }

    /// Whether something of it may land over a rail that was not begun anew since.
    pub(super) fn may_land_over(&self, rail: usize, generation: u64) -> bool {
        let is_it = |of: usize, opened: u64, is_late: bool| is_late && (of, opened) == (rail, generation);
        self.links.iter().any(|link| is_it(link.pair.0, link.generation, link.may_land_late))
            || self.past.iter().any(|link| is_it(link.rail, link.generation, link.may_land_late))
    }

    /// Whether the peer was never told an end of ours: it can have posted nothing.
    pub(super) fn was_never_linked(&self) -> bool {
        self.past.is_empty() && self.links.iter().all(|link| link.id == NO_LINK)
    }

    pub(super) fn link_named(&self, id: LinkId) -> Option<usize> {
        self.links.iter().position(|link| link.id == id && !matches!(link.phase, Phase::Down { .. }))
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }
}
