//! What a machine keeps: for the simulation, which looks whether anything is left behind.

use super::{Machine, PeerKey};

/// How many of each there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Peers that are not forgotten.
    pub peers: usize,
    /// Grants of ours that are not back.
    pub grants: usize,
    /// Counters of ours.
    pub counters: usize,
    /// Links that rails know.
    pub links: usize,
    /// Marks of messages.
    pub marks: usize,
    /// Transfers, and their requests in flight.
    pub transfers: usize,
    /// Atomics in flight.
    pub atomics: usize,
    /// Messages that are not delivered.
    pub messages: usize,
    /// Asked of links whose bytes may land yet.
    pub settles: usize,
    /// Requests that rails have.
    pub in_flight: usize,
    /// How often rails were begun anew.
    pub resets: u64,
}

impl Census {
    /// Whether anything of this is left though nobody is there.
    pub fn is_busy(&self) -> bool {
        let Self { counters, links, marks, transfers, atomics, messages, settles, in_flight, .. } = self;
        counters + links + marks + transfers + atomics + messages + settles + in_flight > 0
    }
}

impl Machine {
    /// Everything about a peer, for whoever replays a history that fails.
    pub fn portrait(&self, key: PeerKey) -> String {
        format!("{:#?}", self.peers.get(key))
    }

    /// Counts what it keeps.
    pub fn census(&self) -> Census {
        let mut census = Census {
            peers: self.peers.iter().count(),
            grants: self.grants.len(),
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

    /// How many peers there are, those that are gone and were not let go of yet too.
    pub fn peer_count(&self) -> usize {
        self.peers.iter().count()
    }

    /// Bytes that are held for a peer.
    pub fn peer_memory(&self, key: PeerKey) -> Option<usize> {
        Some(self.peers.get(key)?.memory())
    }
}
