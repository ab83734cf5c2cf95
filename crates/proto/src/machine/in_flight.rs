//! What is in flight: one table for all peers. The slot is the number of the work request, by which its completion comes back.

use super::{NewAtomic, PeerKey};
use crate::inflight::{SlotId, Slots};
use crate::outbox::Posted;
use crate::rail::RemoteSegment;

/// A request that a card has, or is about to get.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) peer: PeerKey,
    /// Which of the peer's links. With so few bits it is moved without a call.
    link: u32,
    pub(super) what: Requested,
}

impl InFlight {
    #[inline]
    pub(super) fn new(peer: PeerKey, link: usize, what: Requested) -> Self {
        Self { peer, link: link as u32, what }
    }

    /// Which of the peer's links.
    #[inline]
    pub(super) fn link(&self) -> usize {
        self.link as usize
    }
}

// Every page is moved in and out.
const _: () = assert!(size_of::<InFlight>() <= 128);

/// What was requested.
#[derive(Debug)]
pub(super) enum Requested {
    Pages(Posted),
    /// The message of this number.
    Message(u64),
    Atomic(NewAtomic, RemoteSegment),
    /// Whoever asked was answered without it.
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
    /// Whether one more can be put in.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// Gives it a slot, where there [is one](Self::has_room).
    #[inline]
    pub(super) fn put(&mut self, it: InFlight) -> Option<SlotId> {
        self.0.put(it).ok()
    }

    #[inline]
    pub(super) fn get(&self, slot: SlotId) -> Option<&InFlight> {
        self.0.get(slot)
    }

    #[inline]
    pub(super) fn take(&mut self, slot: SlotId) -> Option<InFlight> {
        self.0.take(slot)
    }

    /// Whoever asked for it has his answer. Its buffers come back all the same.
    pub(super) fn answer(&mut self, slot: SlotId) -> Option<Requested> {
        self.0.get_mut(slot).map(|it| std::mem::replace(&mut it.what, Requested::Answered))
    }

    /// Takes out all that are so: what they have will never come back.
    pub(super) fn abandon(&mut self, is_so: impl Fn(&InFlight) -> bool) -> Vec<InFlight> {
        let slots: Vec<SlotId> = self.0.iter().filter(|(_, it)| is_so(it)).map(|(slot, _)| slot).collect();
        slots.into_iter().filter_map(|slot| self.0.take(slot)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
