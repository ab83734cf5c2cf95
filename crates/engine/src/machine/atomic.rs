//! Atomics: eight bytes of a peer's memory, changed in one piece.

use farreach_core::inflight::SlotId;

use super::carrier::Class;
use super::peer::Peer;
use super::transfer::tag;
use super::{Event, Machine, OpId, PeerKey};
use crate::rail::{Refusal, RemoteSegment, WorkRequest};
use crate::{AtomicError, LostReason, Rights};

/// What is to be done with an atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicOperation {
    FetchAdd { add: u64 },
    CompareSwap { expected: u64, desired: u64 },
}

impl AtomicOperation {
    fn on(self, target: RemoteSegment) -> WorkRequest<'static> {
        match self {
            Self::FetchAdd { add } => WorkRequest::FetchAdd { target, add },
            Self::CompareSwap { expected, desired } => WorkRequest::CompareSwap { target, expected, desired },
        }
    }
}

/// Atomics of one peer that may wait for a link, or for room.
const ATOMICS_WAITING_MAX: usize = 1024;

/// An atomic, and what is to be done with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewAtomic {
    pub(crate) op: OpId,
    pub(crate) peer: PeerKey,
    pub(crate) grant: u64,
    pub(crate) offset: u64,
    pub(crate) request: AtomicOperation,
}

#[derive(Debug)]
pub(super) struct AtomicState {
    pub(super) grant: u64,
    /// Which it is posted to.
    pub(super) link: usize,
    pub(super) op: OpId,
}

impl Machine {
    /// Changes an atomic: the answer is what was there.
    pub(crate) fn change_atomic(&mut self, new: NewAtomic, now: u64) {
        self.now = now;
        match self.place_of(new.peer, new.grant, new.offset) {
            // A link is to come, or one that is full to get room.
            Err(AtomicError::NoLink | AtomicError::Full) => self.atomic_waits(new),
            Err(error) => self.report(Event::Atomic(new.op, Err(error))),
            Ok((index, target)) => self.post_atomic(new, index, target),
        }
    }

    /// It is tried again with the next step.
    fn atomic_waits(&mut self, new: NewAtomic) {
        let key = new.peer;
        let Some(peer) = self.peer(key) else { return };
        if peer.atomics_waiting.len() >= ATOMICS_WAITING_MAX {
            self.report(Event::Atomic(new.op, Err(AtomicError::Full)));
            return;
        }
        peer.atomics_waiting.push_back(new);
        self.schedule_sending(key);
    }

    /// Posts what has waited for a link, or for room.
    pub(super) fn post_atomics_of(&mut self, key: PeerKey) {
        let now = self.now;
        let Some(peer) = self.peer(key) else { return };
        for _ in 0..peer.atomics_waiting.len() {
            let Some(new) = self.peer(key).and_then(|peer| peer.atomics_waiting.pop_front()) else { return };
            self.change_atomic(new, now);
        }
    }

    /// The link and the place of an atomic.
    fn place_of(
        &mut self,
        key: PeerKey,
        grant: u64,
        offset: u64,
    ) -> Result<(usize, RemoteSegment), AtomicError> {
        let rails = &self.rails;
        let Some(peer) = self.peers.get(key.0 as usize).and_then(Option::as_deref) else {
            return Err(AtomicError::PeerLost { reason: LostReason::Gone });
        };
        if let Some(lost) = &peer.lost {
            return Err(AtomicError::PeerLost { reason: lost.reason.clone() });
        }
        let granted = peer.granted.get(&grant).filter(|granted| !granted.is_revoked);
        let granted = granted.ok_or(AtomicError::NotGranted)?;
        if !granted.rights.contains(Rights::ATOMIC) {
            return Err(AtomicError::NotGranted);
        }
        let len = size_of::<u64>() as u64;
        if !offset.is_multiple_of(len) || offset.checked_add(len).is_none_or(|end| end > granted.len) {
            return Err(AtomicError::NotEightAlignedBytes { offset, len: granted.len });
        }
        let has_atomics = |rail: usize| rails[rail].properties().has_atomics;
        let usable = peer.links.iter().enumerate().filter(|(_, link)| has_atomics(link.pair.0));
        if usable.clone().next().is_none() {
            return Err(AtomicError::Unsupported);
        }
        let mut ready = usable.filter(|(_, link)| rails[link.pair.0].is_ready(link)).peekable();
        if ready.peek().is_none() {
            return Err(AtomicError::NoLink);
        }
        let (index, link) =
            ready.find(|(_, link)| rails[link.pair.0].has_room(link)).ok_or(AtomicError::Full)?;
        let key = granted.keys.get(link.pair.1).copied().flatten();
        let (address, key) = key.ok_or(AtomicError::NotGranted)?;
        Ok((index, RemoteSegment { address: address + offset, key, len }))
    }

    fn post_atomic(&mut self, new: NewAtomic, index: usize, target: RemoteSegment) {
        let (now, NewAtomic { op, peer: key, grant, request: asked, .. }) = (self.now, new);
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else { return };
        let link = &mut peer.links[index];
        let Some(link_key) = link.key else { return self.atomic_waits(new) };
        let Ok(slot) = peer.atomics.put(AtomicState { grant, link: index, op }) else {
            return self.atomic_waits(new);
        };
        match self.carrier.post_atomic((link.pair.0, link_key, tag(Class::Atomic, slot)), asked.on(target)) {
            Ok(()) => {
                link.took_one(now);
                if let Some(granted) = peer.granted.get_mut(&grant) {
                    granted.users += 1;
                }
                let rail = link.pair.0;
                self.posted_to(key, rail);
            }
            Err(reason) => {
                if let Some(peer) = self.peer(key) {
                    peer.atomics.take(slot);
                }
                match reason {
                    Refusal::Never(error) => {
                        return self.report(Event::Atomic(op, Err(AtomicError::Rail(error))));
                    }
                    Refusal::LinkDown(error) => self.fail_link(key, index, &error),
                    Refusal::Full => {}
                }
                self.atomic_waits(new);
            }
        }
    }

    /// An atomic is done with: what was there, if that is known.
    pub(super) fn atomic_done(&mut self, key: PeerKey, slot: SlotId, value: Option<u64>) {
        let Some(state) = self.peer(key).and_then(|peer| peer.atomics.take(slot)) else { return };
        // It may have been done, or not: doing it again would do it twice.
        let answer = value.ok_or(AtomicError::Unknown);
        self.report(Event::Atomic(state.op, answer));
        self.release(key, state.grant);
    }
}

impl Peer {
    /// All atomics that are asked for.
    pub(super) fn drain_atomics(&mut self) -> Vec<OpId> {
        let slots: Vec<SlotId> = self.atomics.iter().map(|(slot, _)| slot).collect();
        let posted = slots.into_iter().filter_map(|slot| Some(self.atomics.take(slot)?.op));
        let posted: Vec<_> = posted.collect();
        posted.into_iter().chain(self.atomics_waiting.drain(..).map(|new| new.op)).collect()
    }
}
