//! The links of a rail: a queue pair each.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use farreach_rail::{LinkKey, RailError};
use farreach_verbs::qp::QueuePair;
use farreach_verbs::qp::state::PeerAddress;

/// One end of a link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) qp: QueuePair,
    /// What the other end was told.
    pub(super) own: PeerAddress,
    /// The completion queue that it is on.
    pub(super) queue: usize,
    /// The longest message that both ends take.
    pub(super) message_max: usize,
    pub(super) state: LinkState,
}

#[derive(Debug)]
pub(super) enum LinkState {
    /// The other end is not known yet.
    Made,
    Connected,
    /// Of no use any more, because of this.
    Ended(RailError),
}

impl Link {
    /// Ends it, if it has not ended before: what is in flight comes back, flushed, and nothing more is taken. Whether this was news.
    pub(super) fn end(&mut self, reason: &RailError) -> bool {
        if matches!(self.state, LinkState::Ended(_)) {
            return false;
        }
        self.state = LinkState::Ended(reason.clone());
        // Where that fails the card has ended it already, or is gone; destroying it gives the buffers back in any case.
        let _ = self.qp.to_error();
        true
    }
}

/// All links, by their names and by the numbers of their queue pairs.
#[derive(Debug, Default)]
pub(super) struct Links {
    slots: Vec<Option<(LinkKey, Link)>>,
    free: Vec<usize>,
    /// Links that were made so far.
    made: u64,
    keys: HashMap<u32, LinkKey, BuildHasherDefault<NumberHasher>>,
}

/// A name is a place, and above these bits a number that no other link has.
const SLOT_BITS: u32 = 24;

impl Links {
    pub(super) fn insert(&mut self, link: Link) -> LinkKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.made += 1;
        // Queue pairs have numbers of 24 bits, so that no card has more of them than there are places.
        let key = LinkKey(self.made << SLOT_BITS | slot as u64);
        self.keys.insert(link.qp.qp_num(), key);
        self.slots[slot] = Some((key, link));
        key
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: LinkKey) -> Option<&mut Link> {
        let slot = (key.0 & ((1 << SLOT_BITS) - 1)) as usize;
        match self.slots.get_mut(slot) {
            Some(Some((found, link))) if *found == key => Some(link),
            _ => None,
        }
    }

    /// Takes a link out. What completes of its queue pair is still known as its own, until [`forget`](Self::forget).
    pub(super) fn remove(&mut self, key: LinkKey) -> Option<Link> {
        self.get_mut(key)?;
        let slot = (key.0 & ((1 << SLOT_BITS) - 1)) as usize;
        self.free.push(slot);
        self.slots[slot].take().map(|(_, link)| link)
    }

    /// Nothing more completes of this queue pair: its number may be another's soon.
    pub(super) fn forget(&mut self, qp_num: u32) {
        self.keys.remove(&qp_num);
    }

    #[inline]
    pub(super) fn key_of(&self, qp_num: u32) -> Option<LinkKey> {
        self.keys.get(&qp_num).copied()
    }

    pub(super) fn keys(&self) -> Vec<LinkKey> {
        self.slots.iter().flatten().map(|(key, _)| *key).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }
}

/// Numbers of queue pairs are given out by the kernel, not by a stranger: one multiplication spreads them well enough.
#[derive(Debug, Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        // The golden ratio's bits: neighbours land far apart, in the upper bits too.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
