//! How much memory peers take.

use super::atomic::NewAtomic;
use super::peer::{Granted, Peer};
use super::transfer::TransferState;
use super::{Machine, PeerKey};
use crate::inflight::SlotId;

/// A table's places cost their content, and what finds it.
const PLACE: usize = 16;

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
            + self.outbox.memory()
            + self.transfers.capacity() * size_of::<TransferState>()
            + self.granted.capacity() * (size_of::<Granted>() + PLACE)
            + self
                .granted
                .values()
                .map(|granted| granted.keys.capacity() * size_of::<Option<(u64, u64)>>())
                .sum::<usize>()
            + self.counters.capacity() * (size_of::<(u64, u64)>() + PLACE)
            + self.atomics.capacity() * size_of::<SlotId>()
            + self.atomics_waiting.capacity() * size_of::<NewAtomic>();
        // Buffers of messages in flight are all peers' together.
        size_of::<Self>() + tables + self.outgoing.memory() + self.incoming.memory()
    }
}
