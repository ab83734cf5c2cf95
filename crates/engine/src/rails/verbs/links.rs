//! The links of a rail: one queue pair each.

use farreach_proto::machine::IdMap;
use farreach_rail::{LinkKey, RailError};
use farreach_verbs::qp::QueuePair;
use farreach_verbs::qp::state::PeerAddress;

use super::windows::Windows;

/// The local end of a link.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) qp: QueuePair,
    /// The address that the peer was sent.
    pub(super) own: PeerAddress,
    /// The index of its completion queue.
    pub(super) queue: usize,
    /// The longest message that both ends accept.
    pub(super) message_max: usize,
    pub(super) state: LinkState,
    /// The windows that are bound to its queue pair.
    pub(super) windows: Windows,
}

#[derive(Debug)]
pub(super) enum LinkState {
    /// The peer's end is not known yet.
    Made,
    Connected,
    /// Unusable, with the reason.
    Ended(RailError),
}

impl Link {
    /// Ends the link, if it has not ended before: requests in flight are flushed, and no more are
    /// accepted. Returns whether it had not ended before.
    pub(super) fn end(&mut self, reason: &RailError) -> bool {
        if matches!(self.state, LinkState::Ended(_)) {
            return false;
        }
        self.state = LinkState::Ended(reason.clone());
        // If this fails, the card has ended it already, or is gone. Destroying the queue pair
        // returns the buffers in any case.
        let _ = self.qp.to_error();
        true
    }
}

/// All links, by key and by queue pair number.
#[derive(Debug, Default)]
pub(super) struct Links {
    slots: Vec<Option<(LinkKey, Link)>>,
    free: Vec<usize>,
    /// The number of links created so far.
    made: u64,
    /// By queue pair number, which the kernel assigns.
    keys: IdMap<u32, LinkKey>,
}

/// The lower bits of a key are a slot; the bits above are a number that no other link has.
const SLOT_BITS: u32 = 24;

#[inline]
fn slot_of(key: LinkKey) -> usize {
    (key.0 & ((1 << SLOT_BITS) - 1)) as usize
}

impl Links {
    pub(super) fn insert(&mut self, link: Link) -> LinkKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.made += 1;
        // Queue pair numbers have 24 bits, so no card has more queue pairs than there are slots.
        let key = LinkKey(self.made << SLOT_BITS | slot as u64);
        self.keys.insert(link.qp.qp_num(), key);
        self.slots[slot] = Some((key, link));
        key
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: LinkKey) -> Option<&mut Link> {
        match self.slots.get_mut(slot_of(key)) {
            Some(Some((found, link))) if *found == key => Some(link),
            _ => None,
        }
    }

    pub(super) fn contains(&self, key: LinkKey) -> bool {
        matches!(self.slots.get(slot_of(key)), Some(Some((found, _))) if *found == key)
    }

    /// Removes a link. Completions of its queue pair are still attributed to it, until
    /// [`forget`](Self::forget).
    pub(super) fn remove(&mut self, key: LinkKey) -> Option<Link> {
        // A key of an earlier link of the slot removes nothing.
        self.get_mut(key)?;
        let slot = slot_of(key);
        self.free.push(slot);
        self.slots[slot].take().map(|(_, link)| link)
    }

    /// Forgets a queue pair number, after which no completion of it may follow: the card may assign
    /// it again.
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
