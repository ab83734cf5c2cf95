//! Counts the state that a machine keeps. The simulation uses this to find leaks.

use super::{Machine, PeerKey};

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
