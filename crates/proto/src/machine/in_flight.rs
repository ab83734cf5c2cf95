//! The table of operations in flight, for all peers. The slot is the number of the work request,
//! with which its completion comes back.

use super::{NewAtomic, PeerKey};
use crate::inflight::{SlotId, Slots};
use crate::outbox::Posted;
use crate::rail::RemoteSegment;

/// A work request that a card has, or is about to get.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) peer: PeerKey,
    /// The index among the peer's links. 32 bits keep the struct small enough to be moved without a
    /// call of `memcpy`.
    link: u32,
    pub(super) what: Requested,
}

impl InFlight {
    #[inline]
    pub(super) fn new(peer: PeerKey, link: usize, what: Requested) -> Self {
        Self { peer, link: link as u32, what }
    }

    /// Returns the index among the peer's links.
    #[inline]
    pub(super) fn link(&self) -> usize {
        self.link as usize
    }
}

// It is moved into the table and out of it for every page.
const _: () = assert!(size_of::<InFlight>() <= 128);

/// The request of an entry.
#[derive(Debug)]
pub(super) enum Requested {
    Pages(Posted),
    /// The message with this number.
    Message(u64),
    Atomic(NewAtomic, RemoteSegment),
    /// The request was answered before the completion.
    Answered,
}

/// More than all links together have room for.
const CAPACITY: u32 = 1 << 24;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct InFlightTable(Slots<InFlight>);

impl Default for InFlightTable {
    fn default() -> Self {
        Self(Slots::new(CAPACITY))
    }
}

impl InFlightTable {
    /// Returns `true` if one more can be put in.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// Puts an entry in, for which there must be [room](Self::has_room). Returns its slot.
    #[inline]
    pub(super) fn put(&mut self, it: InFlight) -> SlotId {
        let Ok(slot) = self.0.put(it) else { unreachable!("nothing is chosen if there is no room") };
        slot
    }

    pub(super) fn has(&self, slot: SlotId) -> bool {
        self.0.get(slot).is_some()
    }

    /// Returns an entry that was put in and is about to be posted.
    #[inline]
    pub(super) fn get(&self, slot: SlotId) -> &InFlight {
        self.0.get(slot).expect("an entry stays until the post is answered")
    }

    #[inline]
    pub(super) fn take(&mut self, slot: SlotId) -> Option<InFlight> {
        self.0.take(slot)
    }

    /// Marks an entry as answered. Its buffers still come back with the completion.
    pub(super) fn answer(&mut self, slot: SlotId) -> Requested {
        let it = self.0.get_mut(slot).expect("an atomic in flight has its entry");
        std::mem::replace(&mut it.what, Requested::Answered)
    }

    /// Removes all matching entries. Their completions will never come.
    pub(super) fn abandon(&mut self, is_so: impl Fn(&InFlight) -> bool) -> Vec<InFlight> {
        let slots: Vec<SlotId> = self.0.iter().filter(|(_, it)| is_so(it)).map(|(slot, _)| slot).collect();
        slots.into_iter().filter_map(|slot| self.0.take(slot)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &InFlight)> {
        self.0.iter()
    }
}
