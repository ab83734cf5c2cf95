//! Words of a peer's memory, changed in one piece.

use farreach_core::inflight::SlotId;
use farreach_memory::{Buffers, Slice};

use super::peer::Peer;
use super::transfer::{WORD, tag};
use super::{Machine, PeerKey};
use crate::helm::Promise;
use crate::provider::{Refusal, Refused, Request, Target};
use crate::{Rights, WordError};

/// What is to be done with a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WordRequest {
    FetchAdd { add: u64 },
    CompareSwap { expected: u64, desired: u64 },
}

impl WordRequest {
    fn with(self, word: Slice, target: Target) -> Request {
        let into = Buffers::from(word);
        match self {
            Self::FetchAdd { add } => Request::FetchAdd { into, target, add },
            Self::CompareSwap { expected, desired } => {
                Request::CompareSwap { into, target, expected, desired }
            }
        }
    }
}

/// Words of one peer that may wait for a link, or for room.
const WORDS_WAITING_MAX: usize = 1024;

/// A word, and what is to be done with it.
#[derive(Debug)]
pub(crate) struct WordOrder {
    pub(crate) peer: PeerKey,
    pub(crate) grant: u64,
    pub(crate) offset: u64,
    pub(crate) request: WordRequest,
    pub(crate) promise: Promise<Result<u64, WordError>>,
}

#[derive(Debug)]
pub(super) struct WordState {
    pub(super) grant: u64,
    /// Which it is posted to.
    pub(super) link: usize,
    pub(super) promise: Promise<Result<u64, WordError>>,
}

impl Machine {
    /// Changes a word: the answer is what was there.
    pub(crate) fn change_word(&mut self, order: WordOrder, now: u64) {
        self.now = now;
        let WordOrder { peer: key, grant, offset, request, promise } = order;
        match self.place_of(key, grant, offset) {
            // A link is to come, or one that is full to get room.
            Err(WordError::NoLink | WordError::Full) => {
                self.word_waits(WordOrder { peer: key, grant, offset, request, promise })
            }
            Err(error) => promise.keep(Err(error)),
            Ok((index, target)) => {
                let order = WordOrder { peer: key, grant, offset, request, promise };
                self.post_word(order, index, target);
            }
        }
    }

    /// It is tried again with the next step.
    fn word_waits(&mut self, order: WordOrder) {
        let key = order.peer;
        let Some(peer) = self.peer(key) else { return };
        if peer.words_waiting.len() >= WORDS_WAITING_MAX {
            order.promise.keep(Err(WordError::Full));
            return;
        }
        peer.words_waiting.push_back(order);
        self.keep_talking(key);
    }

    /// Posts what has waited for a link, or for room.
    pub(super) fn post_words_of(&mut self, key: PeerKey) {
        let now = self.now;
        let Some(peer) = self.peer(key) else { return };
        for _ in 0..peer.words_waiting.len() {
            let Some(order) = self.peer(key).and_then(|peer| peer.words_waiting.pop_front()) else { return };
            self.change_word(order, now);
        }
    }

    /// The link and the place of a word.
    fn place_of(&mut self, key: PeerKey, grant: u64, offset: u64) -> Result<(usize, Target), WordError> {
        let rails = &self.rails;
        let Some(peer) = self.peers.get(key.0 as usize).and_then(Option::as_deref) else {
            return Err(WordError::PeerLost { reason: "it is gone".to_owned() });
        };
        if peer.is_lost() {
            return Err(WordError::PeerLost { reason: peer.cell.lost().unwrap_or_default().to_owned() });
        }
        let granted = peer.granted.get(&grant).filter(|granted| !granted.is_revoked);
        let granted = granted.ok_or(WordError::NotGranted)?;
        if !granted.rights.contains(Rights::ATOMIC) {
            return Err(WordError::NotGranted);
        }
        let len = size_of::<u64>() as u64;
        if !offset.is_multiple_of(len) || offset.checked_add(len).is_none_or(|end| end > granted.len) {
            return Err(WordError::NotAWord { offset, len: granted.len });
        }
        let has_atomics = |rail: usize| rails[rail].properties().has_atomics;
        let usable = peer.links.iter().enumerate().filter(|(_, link)| has_atomics(link.pair.0));
        if usable.clone().next().is_none() {
            return Err(WordError::Unsupported);
        }
        let mut ready = usable.filter(|(_, link)| rails[link.pair.0].is_ready(link)).peekable();
        if ready.peek().is_none() {
            return Err(WordError::NoLink);
        }
        let (index, link) =
            ready.find(|(_, link)| rails[link.pair.0].has_room(link)).ok_or(WordError::Full)?;
        let key = granted.keys.get(link.pair.1).copied().flatten();
        let (address, key) = key.ok_or(WordError::NotGranted)?;
        Ok((index, Target { address: address + offset, key, len }))
    }

    fn post_word(&mut self, order: WordOrder, index: usize, target: Target) {
        let (now, key, grant) = (self.now, order.peer, order.grant);
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else { return };
        let link = &mut peer.links[index];
        let Some(link_key) = link.key else { return };
        let Some(word) = self.pool.take_word() else { return self.word_waits(order) };
        let (offset, asked) = (order.offset, order.request);
        let slot = match peer.words.put(WordState { grant, link: index, promise: order.promise }) {
            Ok(slot) => slot,
            Err(WordState { promise, .. }) => {
                self.pool.give_word(word);
                return self.word_waits(WordOrder { peer: key, grant, offset, request: asked, promise });
            }
        };
        match self.rails[link.pair.0].provider().post(link_key, tag(WORD, slot), asked.with(word, target)) {
            Ok(()) => {
                link.took_one(now);
                if let Some(granted) = peer.granted.get_mut(&grant) {
                    granted.users += 1;
                }
                let rail = link.pair.0;
                self.posted_to(key, rail);
            }
            Err(Refused { reason, request }) => {
                if let Ok(word) = request.into_buffers().into_slice() {
                    self.pool.give_word(word);
                }
                let Some(WordState { promise, .. }) = self.peer(key).and_then(|peer| peer.words.take(slot))
                else {
                    return;
                };
                match reason {
                    Refusal::Never(error) => return promise.keep(Err(WordError::Rail(error))),
                    Refusal::LinkDown(error) => self.fail_link(key, index, &error),
                    Refusal::Full => {}
                }
                self.word_waits(WordOrder { peer: key, grant, offset, request: asked, promise });
            }
        }
    }

    pub(super) fn word_done(&mut self, key: PeerKey, slot: SlotId, buffers: Buffers, is_ok: bool) {
        let word = buffers.into_slice().ok();
        let value = word.as_ref().and_then(|word| word.get(..8)?.try_into().ok()).map(u64::from_ne_bytes);
        if let Some(word) = word {
            self.pool.give_word(word);
        }
        let Some(state) = self.peer(key).and_then(|peer| peer.words.take(slot)) else { return };
        let grant = state.grant;
        state.promise.keep(match value.filter(|_| is_ok) {
            Some(value) => Ok(value),
            // It may have been done, or not: doing it again would do it twice.
            None => Err(WordError::Unknown),
        });
        self.release(key, grant);
    }
}

impl Peer {
    /// All words that are asked for.
    pub(super) fn drain_words(&mut self) -> Vec<Promise<Result<u64, WordError>>> {
        let slots: Vec<SlotId> = self.words.iter().map(|(slot, _)| slot).collect();
        let posted = slots.into_iter().filter_map(|slot| Some(self.words.take(slot)?.promise));
        let posted: Vec<_> = posted.collect();
        posted.into_iter().chain(self.words_waiting.drain(..).map(|order| order.promise)).collect()
    }
}
