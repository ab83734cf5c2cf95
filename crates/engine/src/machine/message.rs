//! Messages: in order, each once, over whichever link is ready, and over the control channel where none is.

use farreach_core::counter::LinkId;
use farreach_core::inflight::SlotId;
use farreach_core::wire::Frame;

use super::carrier::{Class, HEADER};
use super::incoming::TooMany;
use super::peer::{Link, Phase};
use super::transfer::tag;
use super::{Event, Machine, OpId, PeerKey};
use crate::rail::Refusal;
use crate::{LostReason, SendError};

/// What is answered for a peer that is lost, or forgotten.
fn gone() -> SendError {
    SendError::PeerLost { reason: LostReason::Gone }
}

impl Machine {
    /// Takes a message. It is answered when the peer's engine holds it, in the order of all messages to this peer.
    pub(crate) fn send_message(&mut self, op: OpId, key: PeerKey, bytes: Vec<u8>, now: u64) {
        self.now = now;
        let max = self.tuning.message_max;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else {
            return self.report(Event::Sent(op, Err(gone())));
        };
        if bytes.len() > max {
            let too_long = SendError::TooLong { len: bytes.len(), max };
            return self.report(Event::Sent(op, Err(too_long)));
        }
        peer.outgoing.push(op, bytes);
        self.post_messages_of(key);
    }

    /// The user has taken so many messages of a peer's.
    pub(crate) fn taken(&mut self, key: PeerKey, count: u32, now: u64) {
        self.now = now;
        if let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) {
            peer.incoming.taken(count);
            self.send(key, Frame::Taken { count });
        }
    }

    /// Posts what has waited for room, for a buffer or for a link.
    pub(super) fn post_messages(&mut self) -> bool {
        let mut happened = false;
        for _ in 0..self.pending_senders.len() {
            let Some(key) = self.pending_senders.pop_front() else { break };
            if let Some(peer) = self.peer(key) {
                peer.is_pending_sender = false;
                happened |= self.post_messages_of(key);
                self.post_atomics_of(key);
            }
        }
        happened
    }

    fn post_messages_of(&mut self, key: PeerKey) -> bool {
        let Some(peer) = self.peer(key) else { return false };
        peer.outgoing.number();
        let mut happened = false;
        while self.post_message(key) {
            happened = true;
        }
        self.schedule_sending(key);
        happened
    }

    /// What could not be posted is tried again with the next step.
    pub(super) fn schedule_sending(&mut self, key: PeerKey) {
        let Some(peer) = self.peer(key) else { return };
        let has_some = peer.outgoing.has_work() || !peer.atomics_waiting.is_empty();
        if has_some && !peer.is_pending_sender && !peer.is_lost() {
            peer.is_pending_sender = true;
            self.pending_senders.push_back(key);
        }
    }

    /// The peer's user has taken so many.
    pub(super) fn on_taken(&mut self, key: PeerKey, count: u32) {
        let Some(peer) = self.peer(key) else { return };
        peer.outgoing.add_room(count);
        self.schedule_sending(key);
    }

    /// The peer's engine holds all messages before this number: they arrive, whatever becomes of the links and of this side.
    pub(super) fn on_held(&mut self, key: PeerKey, next: u64) {
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else { return };
        self.events.extend(peer.outgoing.held(next).map(|op| Event::Sent(op, Ok(()))));
    }

    /// Tells those whose messages came that they are held: once for all that came in one step.
    pub(super) fn tell_held(&mut self) {
        while let Some(key) = self.heard_from.pop() {
            let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { continue };
            if let Some(next) = peer.incoming.untold() {
                self.send(key, Frame::Held { next });
            }
        }
    }

    /// Tells when all that was sent until now is held by the peer's engine.
    pub(crate) fn flush(&mut self, op: OpId, key: PeerKey, now: u64) {
        self.now = now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else {
            return self.report(Event::Sent(op, Err(gone())));
        };
        if peer.outgoing.flush(op) {
            self.report(Event::Sent(op, Ok(())));
        }
    }

    /// A link is lost: what it has delivered may not have come.
    pub(super) fn send_messages_again(&mut self, key: PeerKey, link: LinkId) {
        let Some(peer) = self.peer(key) else { return };
        peer.outgoing.lose(link);
        self.schedule_sending(key);
    }

    /// Posts the first one that is to be posted; whether there was one, and room.
    fn post_message(&mut self, key: PeerKey) -> bool {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else {
            return false;
        };
        let rails = &self.rails;
        let is_ready = |link: &Link| rails[link.pair.0].is_ready(link);
        if !peer.links.iter().any(is_ready) {
            return self.send_by_frame(key);
        }
        let has_room = |link: &Link| is_ready(link) && rails[link.pair.0].has_room(link);
        let Some(index) = peer.links.iter().position(has_room) else { return false };
        let (link, outgoing) = (&mut peer.links[index], &mut peer.outgoing);
        let (Some(link_key), true) = (link.key, self.carrier.has_message_buffer()) else { return false };
        let Some(slot) = outgoing.begin(index) else { return false };
        let Some((sequence, bytes)) = outgoing.get(slot) else { return false };
        let (rail, mark) = (link.pair.0, link.mark);
        match self.carrier.post_message((rail, link_key, tag(Class::Message, slot)), mark, sequence, bytes) {
            Ok(()) => {
                link.took_one(now);
                self.posted_to(key, rail);
                true
            }
            Err(reason) => {
                link.has_refused(now);
                outgoing.refuse(slot);
                if let Refusal::LinkDown(error) | Refusal::Never(error) = reason {
                    self.fail_link(key, index, &error);
                }
                false
            }
        }
    }

    /// Where no link is ready, the control channel carries it.
    fn send_by_frame(&mut self, key: PeerKey) -> bool {
        let Some(peer) = self.peer(key) else { return false };
        // One that is being made is waited for.
        let is_coming = |link: &Link| matches!(link.phase, Phase::Offered | Phase::Connected);
        if !peer.is_up && peer.links.iter().any(is_coming) {
            return false;
        }
        let Some((sequence, bytes)) = peer.outgoing.take_front() else { return false };
        self.send(key, Frame::Message { sequence, bytes });
        true
    }

    /// A message of ours is done with.
    pub(super) fn message_done(&mut self, key: PeerKey, index: usize, slot: SlotId, is_ok: bool) {
        let Some(peer) = self.peer(key) else { return };
        // To a peer that is lost nothing is sent again.
        let delivered_by = (is_ok || peer.is_lost()).then(|| peer.links[index].id);
        peer.outgoing.end(slot, delivered_by);
        if delivered_by.is_none() {
            self.schedule_sending(key);
        }
    }

    /// A message has come over a rail.
    pub(super) fn on_message(&mut self, bytes: &[u8]) {
        let Some((header, bytes)) = bytes.split_at_checked(HEADER) else { return };
        let (mark, number) = (header[..4].try_into(), header[8..].try_into());
        let (Ok(mark), Ok(number)) = (mark, number) else { return };
        let Some(&(key, _)) = self.marks.get(&u32::from_le_bytes(mark)) else { return };
        self.receive(key, u64::from_le_bytes(number), bytes);
    }

    pub(super) fn receive(&mut self, key: PeerKey, sequence: u64, bytes: &[u8]) {
        let room = self.tuning.messages;
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else { return };
        if peer.is_lost() {
            return;
        }
        let events = &mut self.events;
        let deliver = |bytes| events.push_back(Event::Message(key, bytes));
        match peer.incoming.receive(sequence, bytes, room, deliver) {
            Ok(true) => self.heard_from.push(key),
            Ok(false) => {}
            Err(TooMany) => {
                let why = LostReason::Violation("it sends more messages than it was given room for");
                self.lose_peer(key, why, false);
            }
        }
    }
}
