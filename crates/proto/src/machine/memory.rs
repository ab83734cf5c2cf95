//! How much memory peers take.

use super::peer::Peer;
use super::{Machine, PeerKey};

impl Machine {
    /// How many peers there are, those that are gone and were not let go of yet too.
    pub fn peer_count(&self) -> usize {
        self.peers.iter().count()
    }

    /// Bytes that are held for a peer.
    pub fn peer_memory(&self, key: PeerKey) -> Option<usize> {
        Some(self.peers.get(key)?.memory())
    }
}

impl Peer {
    /// What it takes itself, and what its tables have room for.
    fn memory(&self) -> usize {
        let tables = self.links.memory()
            + self.transfers.memory()
            + self.granted.memory()
            + self.counters.memory()
            + self.atomics.memory();
        // Buffers of messages in flight are all peers' together.
        size_of::<Self>() + tables + self.outgoing.memory() + self.incoming.memory()
    }
}
