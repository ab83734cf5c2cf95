//! Counts the state that a machine keeps. The simulation uses this to find leaks.

use std::fmt;

use super::{Machine, PeerKey};
use crate::ids::PublicationId;
use crate::priority::Priority;

/// The numbers of things that a machine keeps.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Peers that are not forgotten.
    pub peers: usize,
    /// Grants of this side that were not given back.
    pub grants: usize,
    /// Publications of this side that were not given back, and requests to withdraw them.
    pub publications: usize,
    /// Counters of this side.
    pub counters: usize,
    /// Links on rails.
    pub links: usize,
    /// Marks of messages.
    pub marks: usize,
    /// Transfers, and their operations in flight.
    pub transfers: usize,
    /// Atomics in flight.
    pub atomics: usize,
    /// Messages that are not delivered.
    pub messages: usize,
    /// `Settle` frames that are not answered.
    pub settles: usize,
    /// Work requests in flight.
    pub in_flight: usize,
    /// Resets of rails.
    pub resets: u64,
}

impl Census {
    /// Returns `true` if anything is left that needs a peer.
    pub fn is_busy(&self) -> bool {
        let Self { counters, links, marks, transfers, atomics, messages, settles, in_flight, .. } = self;
        counters + links + marks + transfers + atomics + messages + settles + in_flight > 0
    }
}

impl Machine {
    /// Returns the whole state of a peer as text, for the replay of a failed history.
    pub fn portrait(&self, key: PeerKey) -> String {
        format!("{:#?}", self.peers.get(key))
    }

    /// Writes the whole state as text: equal texts are equal states, except for names that are not drawn
    /// yet. A simulation that tries all orders visits equal states once.
    #[doc(hidden)]
    pub fn write_state(&self, into: &mut dyn fmt::Write) -> fmt::Result {
        let Self { rails, peers, turns, counters, shared_counters, grants, publications, marks, .. } = self;
        write!(into, "{rails:?}{peers:?}{turns:?}{counters:?}{shared_counters:?}{grants:?}{publications:?}")?;
        let Self { in_flight, control, openings, settling, outputs, events, now, timers, deadlines, .. } =
            self;
        write!(
            into,
            "{marks:?}{in_flight:?}{control:?}{openings:?}{settling:?}{outputs:?}{events:?}{now:?}"
        )?;
        // `hello` and `tuning` never change.
        let Self {
            names: _, hello: _, tuning: _, urgent_until, looking, bound, confirmations, closing, ..
        } = self;
        write!(
            into,
            "{timers:?}{deadlines:?}{urgent_until:?}{looking:?}{bound:?}{confirmations:?}{closing:?}"
        )
    }

    /// Returns whether a peer has a publication open, also if its grant is being made or about to end.
    #[doc(hidden)]
    pub fn has_opened(&self, publication: PublicationId, peer: PeerKey) -> bool {
        self.publications.has_opened(publication, peer)
    }

    /// Returns whether a step would do something at this time, apart from what rails report.
    #[doc(hidden)]
    pub fn has_work(&self) -> bool {
        let is_late = self.deadlines.next_at().is_some_and(|at| at <= self.now);
        let may_post = !self.turns.are_over(Priority::Bulk);
        self.has_control() || may_post || is_late || !self.bound.is_empty() || self.timers.are_due(self.now)
    }

    /// Counts the state.
    pub fn census(&self) -> Census {
        let mut census = Census {
            peers: self.peers.iter().count(),
            grants: self.grants.len(),
            publications: self.publications.len(),
            counters: self.counters.len(),
            links: self.rails.iter().map(|rail| rail.link_count()).sum(),
            marks: self.marks.len(),
            in_flight: self.in_flight.len(),
            resets: self.rails.iter().map(|rail| rail.generation()).sum(),
            ..Census::default()
        };
        for peer in self.peers.iter() {
            census.transfers += peer.transfers.count();
            census.atomics += peer.atomics.in_flight();
            census.messages += peer.outgoing.len();
            census.settles += peer.settles.len();
        }
        census
    }

    /// Returns the number of peers, including lost ones that are not forgotten yet.
    pub fn peer_count(&self) -> usize {
        self.peers.iter().count()
    }

    /// Returns the number of grants and of counters that a peer has announced and not ended.
    pub fn announced_by(&self, key: PeerKey) -> Option<(usize, usize)> {
        self.peers.get(key).map(|peer| (peer.granted.len(), peer.counters.len()))
    }

    /// Returns the bytes of memory held for a peer.
    pub fn peer_memory(&self, key: PeerKey) -> Option<usize> {
        Some(self.peers.get(key)?.memory())
    }
}
