//! What a machine keeps: for the simulation, which looks whether anything is left behind.

use super::{Machine, PeerKey};

/// How many of each there are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub(crate) peers: usize,
    pub(crate) grants: usize,
    /// Counters of ours.
    pub(crate) counters: usize,
    /// Links that a rail knows, and marks of messages.
    pub(crate) links: usize,
    pub(crate) marks: usize,
    pub(crate) transfers: usize,
    pub(crate) atomics: usize,
    /// Messages that are not delivered.
    pub(crate) messages: usize,
    /// Asked of links whose bytes may land yet.
    pub(crate) settles: usize,
    /// Requests that rails have.
    pub(crate) in_flight: usize,
    /// How often rails were begun anew.
    pub(crate) resets: u64,
}

impl Census {
    /// Whether anything of this is left though nobody is there.
    pub(crate) fn is_busy(&self) -> bool {
        let Self { counters, links, marks, transfers, atomics, messages, settles, in_flight, .. } = self;
        counters + links + marks + transfers + atomics + messages + settles + in_flight > 0
    }
}

impl Machine {
    /// Everything about a peer, for whoever replays a history that fails.
    pub(crate) fn portrait(&self, key: PeerKey) -> String {
        format!("{:#?}", self.peers.get(key.0 as usize))
    }

    pub(crate) fn census(&self) -> Census {
        let mut census = Census {
            peers: self.peers.iter().flatten().count(),
            grants: self.grants.len(),
            counters: self.counters.len(),
            links: self.rails.iter().map(|rail| rail.links.len()).sum(),
            marks: self.marks.len(),
            in_flight: self.in_flight.len(),
            resets: self.rails.iter().map(|rail| rail.generation).sum(),
            ..Census::default()
        };
        for peer in self.peers.iter().flatten() {
            census.transfers += peer.transfers.iter().count() + peer.outbox.in_flight();
            census.atomics += peer.atomics.len();
            census.messages += peer.outgoing.len();
            census.settles += peer.settles.len();
        }
        census
    }
}
