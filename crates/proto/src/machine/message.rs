//! Messages: in order, each exactly once, over any ready link, or over the control connection if
//! none is ready.

use super::in_flight::{InFlight, Requested};
use super::peer::{Confirm, Link, TooMany};
use super::work::{Content, Post};
use super::{Event, Machine, MessageHeader, OpId, PeerChange, PeerKey};
use crate::counter::LinkId;
use crate::error::SendError;
use crate::inflight::SlotId;
use crate::lost::LostReason;
use crate::rail::{LinkKey, Refusal};
use crate::time::Time;
use crate::wire::Frame;

/// The answer for a peer that is lost or forgotten.
fn gone() -> SendError {
    SendError::PeerLost { reason: LostReason::Gone }
}

impl Machine {
    /// Queues a message. It is answered when the peer's engine holds it, in the order of all
    /// messages to this peer.
    pub fn send_message(&mut self, op: OpId, key: PeerKey, bytes: Vec<u8>, now: Time) {
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
        // In this step: a message of its own waits for those of the others, but for no timer.
        self.schedule_first(key);
        self.expect(key);
    }

    /// Accounts messages of a peer that the application has taken.
    pub fn taken(&mut self, key: PeerKey, count: u32, now: Time) {
        self.now = now;
        if let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) {
            peer.incoming.taken(count);
            self.send(key, Frame::Taken { count });
        }
    }

    /// Chooses the next message or atomic to post, from the peers in turn. A peer that cannot post
    /// now is tried again in the next step.
    pub(super) fn choose_from_senders(&mut self) -> Option<SlotId> {
        while let Some(key) = self.turns.sender() {
            // A message that waits for a link must not hold atomics back, which may have another one.
            let chosen = self.choose_message(key).or_else(|| self.choose_atomic(key));
            if chosen.is_some() {
                return chosen;
            }
            self.end_turn_of_sender();
        }
        None
    }

    /// Ends the turn of the current peer: it has nothing more to post now.
    pub(super) fn end_turn_of_sender(&mut self) {
        let key = self.turns.end_sender();
        // It may have been forgotten since it was queued.
        if let Some(peer) = self.peer(key) {
            peer.is_pending_sender = false;
            self.schedule_sending(key);
        }
    }

    /// Builds the work request.
    #[inline]
    pub(super) fn post_of_sender(&self, slot: SlotId) -> Post<'_> {
        let it = self.in_flight.get(slot);
        let peer = &self.peers[it.peer];
        let link = &peer.links[it.link()];
        let content = match &it.what {
            Requested::Message(sequence) => {
                let (sequence, held) = (*sequence, peer.incoming.next());
                let header = MessageHeader { mark: link.mark(), sequence, held };
                Content::Message { header, bytes: peer.outgoing.get(sequence) }
            }
            Requested::Atomic(new, target) => Content::Atomic { request: new.request.on(*target) },
            what => unreachable!("a message or an atomic was chosen: {what:?}"),
        };
        let end = link.key().expect("a link that is ready has its end");
        Post { rail: link.rail(), link: end, slot, content }
    }

    /// Queues a peer for posting, in this step or the next.
    pub(super) fn schedule_sending(&mut self, key: PeerKey) {
        if self.begin_sending(key) {
            self.turns.add_sender(key);
        }
    }

    /// Queues a peer first, to post in this step, unless it is queued already.
    pub(super) fn schedule_first(&mut self, key: PeerKey) {
        if self.begin_sending(key) {
            self.turns.add_first_sender(key);
        }
    }

    /// Returns `true` if a peer has something to post and was not queued until now.
    fn begin_sending(&mut self, key: PeerKey) -> bool {
        // Its turn, or its hello, may have ended with its loss.
        let Some(peer) = self.peer(key) else { return false };
        let has_some = peer.outgoing.has_work() || peer.atomics.are_waiting();
        let begins = has_some && !peer.is_pending_sender && !peer.is_lost();
        peer.is_pending_sender |= begins;
        begins
    }

    /// Handles room for more messages at the peer.
    pub(super) fn on_taken(&mut self, key: PeerKey, count: u32) {
        let peer = &mut self.peers[key];
        peer.outgoing.add_room(count);
        self.schedule_sending(key);
    }

    /// Handles the confirmation that the peer's engine holds all messages before this number. They
    /// reach its application even if links or this side are lost.
    pub(super) fn on_held(&mut self, key: PeerKey, next: u64) {
        let peer = &mut self.peers[key];
        self.events.extend(peer.outgoing.held(next).map(|op| Event::Sent(op, Ok(()))));
    }

    /// Confirms received messages whose confirmation is due: once for all messages of a step.
    pub(super) fn confirm_messages(&mut self) {
        while let Some(key) = self.confirmations.take_now() {
            self.confirm(key);
        }
        while let Some((at, key)) = self.confirmations.take_due(self.now) {
            if self.peer(key).is_some_and(|peer| peer.incoming.was_not_answered(at)) {
                self.confirm(key);
            }
        }
    }

    /// Confirms the messages of a peer by a frame, unless they are confirmed.
    pub(super) fn confirm(&mut self, key: PeerKey) {
        // The peer may be lost since its message was delivered.
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        if let Some(next) = peer.incoming.unconfirmed() {
            self.send(key, Frame::Held { next });
        }
    }

    /// Confirms all messages that were received, also if an answer could carry the confirmation: this
    /// side ends.
    pub fn confirm_all(&mut self) {
        for key in self.peers.keys() {
            self.confirm(key);
        }
    }

    /// Notes that a message was posted to a peer, with a confirmation in its header.
    pub(super) fn message_posted(&mut self, key: PeerKey) {
        let now = self.now;
        self.peers[key].incoming.was_confirmed(now);
        self.confirmations.was_carried(key);
    }

    /// Reports when the peer's engine holds everything sent until now.
    pub fn flush(&mut self, op: OpId, key: PeerKey, now: Time) {
        self.now = now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else {
            return self.report(Event::Sent(op, Err(gone())));
        };
        if peer.outgoing.flush(op) {
            self.report(Event::Sent(op, Ok(())));
        }
    }

    /// Queues the messages of a lost link again: even delivered ones may not have been received.
    /// That includes the confirmations in their headers.
    pub(super) fn send_messages_again(&mut self, key: PeerKey, link: LinkId) {
        let peer = &mut self.peers[key];
        peer.outgoing.lose(link);
        peer.incoming.confirm_again();
        self.confirm(key);
        self.schedule_sending(key);
    }

    /// Chooses the first message to post, if there is room for it. If no link is ready, sends all
    /// over the control connection.
    fn choose_message(&mut self, key: PeerKey) -> Option<SlotId> {
        let rails = &self.rails;
        // The peer may have been forgotten since it was queued.
        let peer = self.peers.get_mut(key)?;
        // Only messages that the peer has room for get a number.
        peer.outgoing.number();
        let is_ready = |link: &Link| rails[link.rail()].is_ready(link);
        if !peer.links.iter().any(is_ready) {
            // Bounded by the room that the peer has announced.
            while self.send_by_frame(key) {}
            return None;
        }
        let has_room = |link: &Link| is_ready(link) && rails[link.rail()].has_room(link);
        // A completion makes room. The peer is asked again in the next step.
        let index = peer.links.iter().position(has_room)?;
        if !self.turns.has_message_buffer() || !self.in_flight.has_room() {
            return None;
        }
        let what = Requested::Message(peer.outgoing.begin()?);
        self.turns.take_message_buffer();
        Some(self.in_flight.put(InFlight::new(key, index, what)))
    }

    /// Handles a message that no card accepted: it is tried again, over the control connection if it is
    /// longer than those that the peer takes over this link.
    pub(super) fn message_refused(&mut self, key: PeerKey, index: usize, sequence: u64, reason: Refusal) {
        self.peers[key].outgoing.refuse(sequence);
        match reason {
            // It is the first one again.
            Refusal::Full => {}
            Refusal::LinkDown(error) => self.fail_link(key, index, &error),
            Refusal::Never(error) => {
                self.report_peer(key, PeerChange::Note(error));
                self.send_by_frame(key);
            }
        }
        self.end_turn_of_sender();
    }

    /// Sends a message over the control connection. Returns `false` if there is none.
    fn send_by_frame(&mut self, key: PeerKey) -> bool {
        // A peer that is lost stays queued until its turn comes.
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return false };
        // While the first link is being connected, messages wait for it.
        if !peer.is_up && peer.links.iter().any(Link::is_coming) {
            return false;
        }
        // All that the peer has room for are sent.
        let Some((sequence, bytes)) = peer.outgoing.take_front() else { return false };
        self.send(key, Frame::Message { sequence, bytes });
        true
    }

    /// Handles the completion of a message.
    pub(super) fn message_done(&mut self, key: PeerKey, index: usize, sequence: u64, is_ok: bool) {
        let peer = &mut self.peers[key];
        // Nothing is sent again to a lost peer.
        let delivered_by = (is_ok || peer.is_lost()).then(|| peer.links[index].id());
        peer.outgoing.end(sequence, delivered_by);
        if delivered_by.is_none() {
            self.schedule_sending(key);
        }
    }

    /// Handles a message that came over a rail, and over this link if the rail reports it. The mark
    /// must be that of the link: a peer must not send in the name of another one.
    pub fn handle_message(&mut self, rail: usize, link: Option<LinkKey>, bytes: &[u8]) {
        // Only a peer that lies sends one without a header. Not every rail tells which one it is.
        let Some((header, bytes)) = MessageHeader::decode(bytes) else { return };
        // A message of a link that has ended is ignored.
        let Some(end) = self.marks.link(header.mark) else { return };
        // A peer that has learnt the mark of another one still sends over its own link.
        if end.rail != rail || link.is_some_and(|link| link != end.link) {
            return;
        }
        let peer = end.peer;
        self.on_held(peer, header.held);
        self.receive(peer, header.sequence, bytes);
    }

    /// Handles a message that came over the control connection. A link carries none that is longer
    /// than the buffers of its rail; here it has to be checked.
    pub(super) fn on_message(&mut self, key: PeerKey, sequence: u64, bytes: &[u8]) {
        let of_rails =
            self.rails.iter().map(|rail| rail.properties().message_max.saturating_sub(MessageHeader::LEN));
        if bytes.len() > of_rails.max().unwrap_or(0).max(self.tuning.message_max) {
            let why = LostReason::Violation("it sends a message that is longer than this side accepts");
            return self.lose_peer(key, why, false);
        }
        self.receive(key, sequence, bytes);
    }

    fn receive(&mut self, key: PeerKey, sequence: u64, bytes: &[u8]) {
        let (room, now) = (self.tuning.messages, self.now);
        let peer = &mut self.peers[key];
        debug_assert!(!peer.is_lost(), "the marks of {key:?} end with it, and its frames are ignored");
        let events = &mut self.events;
        let deliver = |bytes| events.push_back(Event::Message(key, bytes));
        match peer
            .incoming
            .receive(sequence, bytes, room, deliver)
            .map(|count| peer.incoming.when(count, now))
        {
            Ok(Some(Confirm::Now)) => self.confirmations.add_now(key),
            Ok(Some(Confirm::At(at))) => self.confirmations.add_at(at, key),
            // It waits for an earlier one, or was delivered before.
            Ok(None) => {}
            Err(TooMany) => {
                let why = LostReason::Violation("it sends more messages than there is room for");
                self.lose_peer(key, why, false);
            }
        }
    }
}
