//! Messages: in order, each once, over whichever link is ready, and over the control channel where none is.
//!
//! A message has its number in front. A link that fails does not say what became of the messages on it, so they are sent again, and
//! the receiver takes each number once. Also those that it had delivered: they may have been with the receiver's card, and are gone with
//! its end of the link.

use std::collections::VecDeque;

use farreach_core::counter::LinkId;
use farreach_core::inflight::SlotId;
use farreach_core::wire::Frame;
use farreach_memory::{Buffers, Memory, Slice};

use super::peer::{Kept, Message, Peer, Phase, Sending, WhenSent};
use super::rail::Rail;
use super::transfer::{MESSAGE, tag};
use super::{Machine, PeerKey, Tuning};
use crate::SendError;
use crate::helm::Promise;
use crate::provider::{ProviderError, Refusal, Refused, Request};

/// What the engine puts before a message: whose it is, and its number.
pub(crate) const HEADER: usize = 16;
/// Messages that may be in flight, to all peers together.
const BUFFERS: usize = 256;
/// Words that may be in flight, to all peers together.
const WORDS: usize = 256;
/// Each in a cache line of its own.
const WORD_STRIDE: usize = 64;

/// Registered memory of the engine's own.
#[derive(Debug)]
pub(super) struct Pool {
    messages: Vec<Slice>,
    words: Vec<Slice>,
}

impl Pool {
    pub(super) fn new(rails: &mut [Rail], tuning: &Tuning) -> Result<Self, ProviderError> {
        let stride = (tuning.message_max + HEADER).next_multiple_of(64);
        let messages = cut(rails, stride, BUFFERS)?;
        let mut words = cut(rails, WORD_STRIDE, WORDS)?;
        for word in &mut words {
            drop(word.split_off(size_of::<u64>()));
        }
        Ok(Self { messages, words })
    }

    pub(super) fn give(&mut self, messages: Vec<Slice>) {
        self.messages.extend(messages);
    }

    /// How many buffers are out.
    #[cfg(test)]
    pub(super) fn out(&self) -> usize {
        BUFFERS + WORDS - self.messages.len() - self.words.len()
    }

    pub(super) fn take_word(&mut self) -> Option<Slice> {
        self.words.pop()
    }

    pub(super) fn give_word(&mut self, word: Slice) {
        self.words.push(word);
    }
}

/// The first one, if it is so.
fn pop_front_if<T>(queue: &mut VecDeque<T>, is_so: impl FnOnce(&T) -> bool) -> Option<T> {
    queue.front().is_some_and(is_so).then(|| queue.pop_front()).flatten()
}

fn cut(rails: &mut [Rail], stride: usize, count: usize) -> Result<Vec<Slice>, ProviderError> {
    let memory = Memory::allocate(stride * count)
        .map_err(|error| ProviderError::new("allocate message buffers", error.to_string(), error.fix()))?;
    for rail in rails {
        rail.provider().register(memory.memory())?;
    }
    let mut rest = memory;
    let mut slices = Vec::with_capacity(count);
    for _ in 1..count {
        slices.push(rest.split_to(stride));
    }
    slices.push(rest);
    Ok(slices)
}

impl Machine {
    /// Takes a message. It is answered when the peer's engine holds it, in the order of all messages to this peer.
    pub(crate) fn send_message(
        &mut self,
        key: PeerKey,
        bytes: Vec<u8>,
        promise: Promise<Result<(), SendError>>,
        now: u64,
    ) {
        self.now = now;
        let max = self.tuning.message_max;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else {
            promise.keep(Err(SendError::PeerLost { reason: "it is gone".to_owned() }));
            return;
        };
        if bytes.len() > max {
            promise.keep(Err(SendError::TooLong { len: bytes.len(), max }));
            return;
        }
        peer.sending.waiting.push_back((bytes, promise));
        self.post_messages_of(key);
    }

    /// The user has taken so many messages of a peer's.
    pub(crate) fn taken(&mut self, key: PeerKey, count: u32, now: u64) {
        self.now = now;
        if self.peer(key).is_some_and(|peer| !peer.is_lost()) {
            self.send(key, Frame::Taken { count });
        }
    }

    /// Posts what has waited for room, for a buffer or for a link.
    pub(super) fn post_messages(&mut self) -> bool {
        let mut happened = false;
        for _ in 0..self.talkers.len() {
            let Some(key) = self.talkers.pop_front() else { break };
            if let Some(peer) = self.peer(key) {
                peer.is_talking = false;
                happened |= self.post_messages_of(key);
                self.post_words_of(key);
            }
        }
        happened
    }

    fn post_messages_of(&mut self, key: PeerKey) -> bool {
        self.write_messages(key);
        let mut happened = false;
        while self.post_message(key) {
            happened = true;
        }
        self.keep_talking(key);
        happened
    }

    /// What could not be posted is tried again with the next step.
    pub(super) fn keep_talking(&mut self, key: PeerKey) {
        let Some(peer) = self.peer(key) else { return };
        let sending = &peer.sending;
        let can_write = sending.room > 0 && !sending.waiting.is_empty();
        let has_messages = can_write || !sending.written.is_empty() || !sending.again.is_empty();
        let has_some = has_messages || !peer.words_waiting.is_empty();
        if has_some && !peer.is_talking && !peer.is_lost() {
            peer.is_talking = true;
            self.talkers.push_back(key);
        }
    }

    /// Numbers those that there is room for.
    fn write_messages(&mut self, key: PeerKey) {
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else { return };
        let sending = &mut peer.sending;
        while let Some(sequence) = sending.again.front().copied() {
            // One that was taken meanwhile is not missed.
            if let Some(kept) = sending.kept(sequence) {
                let Some(buffer) = self.pool.messages.pop() else { return };
                let message = Message::written(sequence, &kept.bytes, buffer);
                sending.put_written(message);
            }
            sending.again.pop_front();
        }
        while sending.room > 0 && !sending.waiting.is_empty() {
            let Some(buffer) = self.pool.messages.pop() else { return };
            let Some((bytes, promise)) = sending.waiting.pop_front() else { return };
            let sequence = sending.next;
            sending.written.push_back(Message::written(sequence, &bytes, buffer));
            sending.kept.push_back(Kept { sequence, bytes, link: None, promise });
            sending.next += 1;
            sending.room -= 1;
        }
    }

    /// The peer's user has taken so many.
    pub(super) fn on_taken(&mut self, key: PeerKey, count: u32) {
        let Some(peer) = self.peer(key) else { return };
        let sending = &mut peer.sending;
        sending.room = sending.room.saturating_add(count);
        self.keep_talking(key);
    }

    /// The peer's engine holds all messages before this number: they arrive, whatever becomes of the links and of this side.
    pub(super) fn on_held(&mut self, key: PeerKey, next: u64) {
        let Some(peer) = self.peer(key) else { return };
        let sending = &mut peer.sending;
        while let Some(kept) = pop_front_if(&mut sending.kept, |kept| kept.sequence < next) {
            kept.promise.keep(Ok(()));
        }
        while let Some((_, promise)) = pop_front_if(&mut sending.flushes, |(until, _)| *until <= next) {
            promise.keep(Ok(()));
        }
    }

    /// Tells those whose messages came that they are held: once for all that came in one step.
    pub(super) fn tell_held(&mut self) {
        while let Some(key) = self.heard_from.pop() {
            let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { continue };
            let next = peer.receiving.next;
            if std::mem::replace(&mut peer.receiving.told, next) != next {
                self.send(key, Frame::Held { next });
            }
        }
    }

    /// Tells when all that was sent until now is held by the peer's engine.
    pub(crate) fn flush(&mut self, key: PeerKey, promise: Promise<Result<(), SendError>>, now: u64) {
        self.now = now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else {
            promise.keep(Err(SendError::PeerLost { reason: "it is gone".to_owned() }));
            return;
        };
        let sending = &mut peer.sending;
        if sending.waiting.is_empty() && sending.kept.is_empty() {
            promise.keep(Ok(()));
        } else {
            sending.flushes.push_back((sending.next + sending.waiting.len() as u64, promise));
        }
    }

    /// A link is lost: what it has delivered may not have come.
    pub(super) fn send_messages_again(&mut self, key: PeerKey, link: LinkId) {
        let Some(peer) = self.peer(key) else { return };
        let Sending { kept, again, .. } = &mut peer.sending;
        for kept in kept.iter_mut() {
            if kept.link.take_if(|by| *by == link).is_some() {
                again.push_back(kept.sequence);
            }
        }
        self.keep_talking(key);
    }

    /// Posts the first one that is not in flight; whether there was one, and room.
    fn post_message(&mut self, key: PeerKey) -> bool {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else {
            return false;
        };
        let rails = &mut self.rails;
        let is_ready = |link: &super::peer::Link| rails[link.pair.0].is_ready(link);
        if !peer.links.iter().any(is_ready) {
            return self.send_by_frame(key);
        }
        let has_room = |link: &super::peer::Link| is_ready(link) && rails[link.pair.0].has_room(link);
        let Some(index) = peer.links.iter().position(has_room) else { return false };
        let Some(mut message) = peer.sending.written.pop_front() else { return false };
        let link = &mut peer.links[index];
        let (Some(link_key), Some(mut buffer)) = (link.key, message.buffer.take()) else { return false };
        buffer[..4].copy_from_slice(&link.mark.to_le_bytes());
        (message.rest, message.link) = (Some(buffer.split_off(message.len)), index);
        let slot = match peer.sending.posted.put(message) {
            Ok(slot) => slot,
            Err(message) => {
                peer.sending.written.push_front(message.with(buffer));
                return false;
            }
        };
        let request = Request::Send { pieces: buffer.into() };
        match rails[link.pair.0].provider().post(link_key, tag(MESSAGE, slot), request) {
            Ok(()) => {
                link.took_one(now);
                let rail = link.pair.0;
                self.posted_to(key, rail);
                true
            }
            Err(Refused { reason, request }) => {
                link.has_refused(now);
                let Request::Send { pieces } = request else { return false };
                self.put_back(key, slot, pieces);
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
        let is_coming = |link: &super::peer::Link| matches!(link.phase, Phase::Offered | Phase::Connected);
        if !peer.cell.is_up() && peer.links.iter().any(is_coming) {
            return false;
        }
        let Some(Message { sequence, len, buffer: Some(buffer), .. }) = peer.sending.written.pop_front()
        else {
            return false;
        };
        let bytes = buffer[HEADER..len].to_vec();
        self.pool.messages.push(buffer);
        self.send(key, Frame::Message { sequence, bytes });
        true
    }

    /// A message was not posted: it is the first again.
    fn put_back(&mut self, key: PeerKey, slot: SlotId, pieces: Buffers) {
        let Some(peer) = self.peer(key) else { return };
        let Some(message) = peer.sending.posted.take(slot) else { return };
        if let Ok(buffer) = pieces.into_slice() {
            peer.sending.written.push_front(message.with(buffer));
        }
    }

    /// A message of ours is done with.
    pub(super) fn message_done(
        &mut self,
        key: PeerKey,
        index: usize,
        slot: SlotId,
        buffers: Buffers,
        is_ok: bool,
    ) {
        let Some(peer) = self.peer(key) else { return };
        let Some(message) = peer.sending.posted.take(slot) else { return };
        let Ok(buffer) = buffers.into_slice() else { return };
        let message = message.with(buffer);
        if is_ok || peer.is_lost() {
            let link = peer.links[index].id;
            if let Some(kept) = peer.sending.kept(message.sequence) {
                kept.link = Some(link);
            }
            self.pool.messages.extend(message.buffer);
        } else {
            // Whether it has arrived, the receiver knows by its number.
            peer.sending.put_written(message);
            self.keep_talking(key);
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
        let messages = u64::from(self.tuning.messages);
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        let receiving = &mut peer.receiving;
        // One that was taken already.
        if sequence < receiving.next {
            return;
        }
        // Memory for one peer has a bound, also where it does not keep to it.
        if sequence - receiving.next >= messages.saturating_sub(peer.cell.untaken()) {
            self.lose_peer(key, "it sends more messages than it was given room for", false);
            return;
        }
        if sequence > receiving.next {
            receiving.early.insert(sequence, bytes.to_vec());
            return;
        }
        receiving.next += 1;
        peer.cell.put_message(bytes.to_vec());
        while let Some(bytes) = receiving.early.remove(&receiving.next) {
            receiving.next += 1;
            peer.cell.put_message(bytes);
        }
        self.heard_from.push(key);
    }
}

impl Peer {
    /// Everything of the peer's is back: its buffers.
    pub(super) fn reclaim_messages(&mut self) -> Vec<Slice> {
        self.sending.written.drain(..).filter_map(|message| message.buffer).collect()
    }
}

impl Sending {
    /// Nobody will hold what is left: who is to be told so.
    pub(super) fn give_up(&mut self) -> Vec<WhenSent> {
        let kept = self.kept.drain(..).map(|kept| kept.promise);
        let waiting = self.waiting.drain(..).map(|(_, promise)| promise);
        kept.chain(waiting).chain(self.flushes.drain(..).map(|(_, promise)| promise)).collect()
    }

    fn kept(&mut self, sequence: u64) -> Option<&mut Kept> {
        let place = sequence.checked_sub(self.kept.front()?.sequence)?;
        self.kept.get_mut(place as usize)
    }

    /// In its place.
    fn put_written(&mut self, message: Message) {
        let place = self.written.iter().position(|other| other.sequence > message.sequence);
        self.written.insert(place.unwrap_or(self.written.len()), message);
    }
}

impl Message {
    fn written(sequence: u64, bytes: &[u8], mut buffer: Slice) -> Self {
        let len = HEADER + bytes.len();
        buffer[8..HEADER].copy_from_slice(&sequence.to_le_bytes());
        buffer[HEADER..len].copy_from_slice(bytes);
        Self { sequence, len, link: 0, buffer: Some(buffer), rest: None }
    }

    /// With its buffer back, whole.
    fn with(mut self, mut buffer: Slice) -> Self {
        if let Some(rest) = self.rest.take() {
            // They were one.
            let _ = buffer.unsplit(rest);
        }
        Self { buffer: Some(buffer), ..self }
    }
}
