//! Atomics: operations on eight bytes of a peer's memory.

use super::in_flight::{InFlight, Requested};
use super::peer::Link;
use super::{Event, Machine, NewAtomic, PeerKey};
use crate::error::AtomicError;
use crate::ids::GrantId;
use crate::inflight::SlotId;
use crate::lost::LostReason;
use crate::rail::{Refusal, RemoteSegment, RequestError};
use crate::rights::Rights;
use crate::time::Time;

/// Returns the error of an atomic that a rail has failed.
#[cold]
fn error_of(error: &RequestError) -> AtomicError {
    match error {
        RequestError::Revoked(_) => AtomicError::NotGranted,
        error => AtomicError::Rail(error.error().clone()),
    }
}

impl Machine {
    /// Begins an atomic. The answer is the previous value.
    pub fn change_atomic(&mut self, new: NewAtomic, now: Time) {
        self.now = now;
        match self.place_of(new.peer, new.grant, new.offset) {
            // These are temporary: a link may become ready, or get room.
            Ok(_) | Err(AtomicError::NoLink | AtomicError::Full) => {}
            Err(error) => return self.report(Event::Atomic(new.op, Err(error))),
        }
        if !self.peers[new.peer].atomics.push(new) {
            return self.report(Event::Atomic(new.op, Err(AtomicError::Full)));
        }
        self.schedule_first(new.peer);
        self.expect(new.peer);
    }

    /// Chooses the first waiting atomic, if a link has room for it.
    pub(super) fn choose_atomic(&mut self, key: PeerKey) -> Option<SlotId> {
        loop {
            // The peer may have been forgotten since it was queued.
            let new = self.peer(key)?.atomics.front()?;
            match self.place_of(key, new.grant, new.offset) {
                Err(AtomicError::NoLink | AtomicError::Full) => return None,
                Err(error) => {
                    self.peers[key].atomics.pop_front();
                    self.report(Event::Atomic(new.op, Err(error)));
                }
                Ok((index, target)) => {
                    if !self.peers[key].atomics.has_room() || !self.in_flight.has_room() {
                        return None;
                    }
                    let what = Requested::Atomic(new, target);
                    let slot = self.in_flight.put(InFlight::new(key, index, what));
                    self.peers[key].atomics.pop_front();
                    return Some(slot);
                }
            }
        }
    }

    /// Returns the link and the target of an atomic.
    fn place_of(
        &mut self,
        key: PeerKey,
        grant: GrantId,
        offset: u64,
    ) -> Result<(usize, RemoteSegment), AtomicError> {
        let rails = &self.rails;
        let Some(peer) = self.peers.get(key) else {
            return Err(AtomicError::PeerLost { reason: LostReason::Gone });
        };
        if let Some(lost) = &peer.lost {
            return Err(AtomicError::PeerLost { reason: lost.reason.clone() });
        }
        let granted = peer.granted.get(grant).filter(|granted| !granted.is_revoked());
        let granted = granted.ok_or(AtomicError::NotGranted)?;
        if let Some(error) = granted.key_refusal(&peer.links, self.now) {
            return Err(error_of(error));
        }
        if !granted.rights().contains(Rights::ATOMIC) {
            return Err(AtomicError::NotGranted);
        }
        let len = size_of::<u64>() as u64;
        if !offset.is_multiple_of(len) || offset.checked_add(len).is_none_or(|end| end > granted.len()) {
            return Err(AtomicError::NotEightAlignedBytes { offset, len: granted.len() });
        }
        let has_atomics =
            |rail: usize| rails[rail].properties().has_atomics && rails[rail].scope() == granted.scope();
        let usable = peer.links.iter().enumerate().filter(|(_, link)| has_atomics(link.rail()));
        if usable.clone().next().is_none() {
            return Err(AtomicError::Unsupported);
        }
        // The frame with the key of such a link follows.
        let is_unbound =
            |index: usize, link: &Link| link.binds_keys() && granted.key_over(index, link).is_none();
        let is_ready =
            |index: usize, link: &Link| rails[link.rail()].is_ready(link) && !is_unbound(index, link);
        let mut ready = usable.filter(|(index, link)| is_ready(*index, link)).peekable();
        if ready.peek().is_none() {
            return Err(AtomicError::NoLink);
        }
        let (index, link) =
            ready.find(|(_, link)| rails[link.rail()].has_room(link)).ok_or(AtomicError::Full)?;
        // A rail of the right scope may have no key: the owner could not make one there.
        let (address, key) = granted.key_over(index, link).ok_or(AtomicError::NotGranted)?;
        // The end of the grant was checked when the peer announced it.
        let address = address.checked_add(offset).ok_or(AtomicError::NotGranted)?;
        // The memory of the grant may begin at any address.
        if !address.is_multiple_of(len) {
            return Err(AtomicError::NotEightAlignedBytes { offset, len: granted.len() });
        }
        Ok((index, RemoteSegment { address, key, len }))
    }

    /// Accounts an atomic that a card has accepted.
    pub(super) fn atomic_posted(&mut self, key: PeerKey, grant: GrantId, slot: SlotId) {
        let peer = &mut self.peers[key];
        peer.atomics.posted(slot);
        // From now on the peer must not be told that nothing uses the grant.
        peer.granted.begin_use(grant);
    }

    /// Handles an atomic that no card accepted. It is tried again, unless no card ever accepts it.
    pub(super) fn atomic_refused(&mut self, new: NewAtomic, index: usize, reason: Refusal) {
        let is_waiting = !matches!(reason, Refusal::Never(_));
        // Back to the front, so that atomics stay in order.
        if is_waiting {
            self.peers[new.peer].atomics.push_front(new);
        }
        match reason {
            Refusal::Never(error) => self.report(Event::Atomic(new.op, Err(AtomicError::Rail(error)))),
            Refusal::LinkDown(error) => self.fail_link(new.peer, index, &error),
            // It is the first one again.
            Refusal::Full => {}
        }
        if is_waiting {
            self.end_turn_of_sender();
        }
    }

    /// Handles an atomic that had no effect, although its link goes on.
    pub(super) fn atomic_failed(&mut self, new: NewAtomic, index: usize, slot: SlotId, error: RequestError) {
        // Transfers with the same key would fail as well, one by one.
        if let RequestError::Key(_) | RequestError::Revoked(_) = &error {
            self.refuse_key(new.peer, index, new.grant, &error);
        }
        self.peers[new.peer].atomics.done(slot);
        self.report(Event::Atomic(new.op, Err(error_of(&error))));
        self.release(new.peer, new.grant);
        self.schedule_sending(new.peer);
    }

    /// Handles the completion of an atomic. `value` is the previous value, if it is known.
    pub(super) fn atomic_done(&mut self, new: NewAtomic, slot: SlotId, value: Option<u64>) {
        self.peers[new.peer].atomics.done(slot);
        // It may have taken effect. A retry could apply it twice.
        let answer = value.ok_or(AtomicError::Unknown);
        self.report(Event::Atomic(new.op, answer));
        self.release(new.peer, new.grant);
    }

    /// Answers all atomics of a lost peer.
    pub(super) fn lose_atomics(&mut self, key: PeerKey, reason: &LostReason) {
        let peer = &mut self.peers[key];
        let (posted, waiting) = peer.atomics.drain();
        let waiting = waiting.into_iter().map(|new| new.op);
        // Cards still have their buffers: the entries stay until the completions, marked as
        // answered.
        let posted = posted.into_iter().map(|slot| match self.in_flight.answer(slot) {
            Requested::Atomic(new, _) => new.op,
            other => unreachable!("{slot:?} was posted as an atomic and is {other:?}"),
        });
        let lost = |op| Event::Atomic(op, Err(AtomicError::PeerLost { reason: reason.clone() }));
        self.events.extend(posted.chain(waiting).map(lost));
    }
}
