//! The state of one peer.

mod atomics;
mod granted;
mod incoming;
mod link;
mod links;
mod liveness;
mod outgoing;
mod remote_counters;
mod transfer;
mod transfers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::names::Names;
use super::{OpId, Tuning};
use crate::counter::{CounterId, LinkId};
use crate::ids::{GrantId, PublicationId, SharedCounterId};
use crate::lost::LostReason;
use crate::time::Time;
use crate::wire::Hello;

pub(crate) use granted::{Granted, KeyRefusal};
pub(crate) use incoming::{Confirm, TooMany};
pub(crate) use link::{Due, Expected, Link, LinkTimes, MadeEnd, NO_LINK, Phase, Remains};
pub(crate) use links::Links;
use liveness::Liveness;
pub(crate) use transfers::{Transfers, given_up};

use atomics::Atomics;
use granted::GrantedTable;
use incoming::Incoming;
use outgoing::Outgoing;
use remote_counters::RemoteCounters;

#[derive(Debug)]
pub(crate) struct Peer {
    /// Whether this side made the connection: it offers the links.
    pub(crate) is_initiator: bool,
    pub(crate) hello: Option<Hello>,
    /// Whether a link was ever ready.
    pub(crate) is_up: bool,
    pub(crate) links: Links,
    pub(crate) transfers: Transfers,
    /// Grants of the peer to this side.
    pub(crate) granted: GrantedTable,
    /// Counters of the peer, and their names on links.
    pub(crate) counters: RemoteCounters,
    /// Counters of this side that the peer raises.
    pub(crate) own_counters: Vec<CounterId>,
    /// The grants of this side to the peer.
    pub(crate) own_grants: BTreeSet<GrantId>,
    /// The number of those grants that are being revoked.
    pub(crate) revoking: usize,
    /// The names of its certificate, which were verified.
    pub(crate) certificate_names: Vec<String>,
    /// Requests of this side to open publications of the peer. The first one was sent; the others wait for
    /// its answer.
    pub(crate) openings: BTreeMap<PublicationId, Vec<OpId>>,
    /// As `openings`, for shared counters of the peer.
    pub(crate) counter_openings: BTreeMap<SharedCounterId, Vec<OpId>>,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    pub(crate) atomics: Atomics,
    /// `Settle` frames of the peer about links whose bytes may still land. They are answered later.
    pub(crate) settles: Vec<(LinkId, CounterId)>,
    /// The times of the rail resets that the peer has caused within the last minute.
    pub(crate) resets: VecDeque<Time>,
    pub(crate) liveness: Liveness,
    /// The time at which its timers are due.
    pub(crate) due_at: Time,
    /// The time at which the peer was last told to poll rails that cannot wake it.
    pub(crate) told_to_look_at: Option<Time>,
    /// Whether it is queued for posting messages or atomics.
    pub(crate) is_pending_sender: bool,
    /// Whether the reason was reported for which memory is not granted within the host.
    pub(crate) has_told_scope: bool,
    /// Keys of grants of this side that could not be bound to a link: its index and the grant. They are
    /// tried again at this time.
    pub(crate) unbound: Vec<(usize, GrantId)>,
    pub(crate) bind_at: Time,
    /// Whether the reason for one of them was reported.
    pub(crate) has_told_unbound: bool,
    /// Whether a dead rail may still access the peer's memory.
    pub(crate) has_unstopped: bool,
    /// The time at which this side has closed the peer.
    pub(crate) left_at: Option<Time>,
    pub(crate) lost: Option<Lost>,
}

/// The loss of a peer.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) at: Time,
    pub(crate) reason: LostReason,
    /// `true` if the peer confirmed with a goodbye that none of its operations is in flight.
    pub(crate) is_quiet: bool,
}

impl Peer {
    pub(crate) fn new(is_initiator: bool, tuning: &Tuning, names: &mut Names, now: Time) -> Self {
        Self {
            is_initiator,
            hello: None,
            is_up: false,
            links: Links::default(),
            transfers: Transfers::default(),
            granted: GrantedTable::new(names.hash_keys()),
            counters: RemoteCounters::new(names.hash_keys()),
            own_counters: Vec::new(),
            own_grants: BTreeSet::new(),
            revoking: 0,
            certificate_names: Vec::new(),
            openings: BTreeMap::new(),
            counter_openings: BTreeMap::new(),
            outgoing: Outgoing::new(tuning.messages),
            incoming: Incoming::default(),
            atomics: Atomics::default(),
            settles: Vec::new(),
            resets: VecDeque::new(),
            liveness: Liveness::new(now),
            due_at: Time::NEVER,
            told_to_look_at: None,
            is_pending_sender: false,
            has_told_scope: false,
            unbound: Vec::new(),
            bind_at: Time::ZERO,
            has_told_unbound: false,
            has_unstopped: false,
            left_at: None,
            lost: None,
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Returns the time at which its timers are due, if nothing happens before.
    pub(crate) fn next_due(
        &self,
        now: Time,
        tuning: &Tuning,
        times: &LinkTimes,
        must_be_polled: impl Fn(usize) -> bool,
    ) -> Time {
        if self.is_lost() {
            // Its grants are revoked later: that touches it.
            let is_over = self.links.in_flight() == 0 && self.transfers.is_empty() && self.atomics.is_empty();
            return if is_over && self.links.iter().all(Link::is_down) { Time::NEVER } else { now };
        }
        // A goodbye waits for several things, none of which has a time of its own.
        if self.is_left() || self.transfers.unanswered_since().is_some() {
            return now;
        }
        let due = |link: &Link| link.next_due(now, self.is_initiator, must_be_polled(link.rail()), times);
        let bindings = if self.unbound.is_empty() { Time::NEVER } else { self.bind_at };
        let links = self.links.iter().map(due).chain([bindings]);
        links.fold(self.liveness.next_due(self.is_awaited(), self.is_initiator, tuning), Time::min)
    }

    /// Returns `true` if this side has closed it.
    pub(crate) fn is_left(&self) -> bool {
        self.left_at.is_some()
    }

    /// Returns `true` if this side has closed it, and no link was ready since, and for so long: what waits for a
    /// link would wait for ever if its rails are dead.
    pub(crate) fn is_stranded(&self, now: Time, silence: u64) -> bool {
        let is_over = |since: Time| now >= since.saturating_add(silence);
        self.left_at.is_some_and(is_over)
            && self.links.iter().all(|link| link.ready_until().is_some_and(is_over))
    }

    /// Returns `true` if something of this side may still land over a lost link: the peer has not answered
    /// that the link has stopped, or was not asked yet.
    pub(crate) fn may_land(&self) -> bool {
        self.transfers.unanswered_since().is_some() || self.links.iter().any(Link::has_unknown_atomic)
    }

    /// Returns `true` if something waits for it: it is pinged more often.
    pub(crate) fn is_awaited(&self) -> bool {
        let is_asked = !self.openings.is_empty() || !self.counter_openings.is_empty();
        // A wait for any of these would not end if the peer were lost in silence.
        let has_requests = !self.is_idle() || !self.outgoing.is_held() || self.revoking > 0 || is_asked;
        // A peer that has no link yet may never get one.
        has_requests || !self.is_up || self.is_left() || self.liveness.is_watched()
    }

    /// Returns `true` if no request for it is open.
    pub(crate) fn is_idle(&self) -> bool {
        self.transfers.is_empty() && self.atomics.is_empty() && self.outgoing.is_idle()
    }

    /// Returns the bytes of memory that it takes, with the capacity of its tables.
    pub(crate) fn memory(&self) -> usize {
        let tables = self.links.memory()
            + self.transfers.memory()
            + self.granted.memory()
            + self.counters.memory()
            + self.atomics.memory()
            + self.unbound.capacity() * size_of::<(usize, u64)>()
            // A node of the set is at least half full.
            + 2 * self.own_grants.len() * size_of::<u64>()
            + self.certificate_names.iter().map(|name| size_of::<String>() + name.capacity()).sum::<usize>();
        // Buffers of messages in flight are shared by all peers.
        size_of::<Self>() + tables + self.outgoing.memory() + self.incoming.memory()
    }
}
