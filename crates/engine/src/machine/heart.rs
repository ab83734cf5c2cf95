//! Who is there, and who is not any more.

use farreach_core::wire::Frame;

use super::peer::{Link, Peer, Phase};
use super::{Machine, PeerKey};
use crate::helm::Promise;

impl Machine {
    /// Nobody here has anything more to do with a peer: it is told so when nothing of ours is under way.
    pub(crate) fn leave(&mut self, key: PeerKey, now: u64) {
        self.now = now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        peer.is_left = true;
        self.stir();
        self.tend_leaving(key);
    }

    /// Nobody here has anything more to do with anybody. It is told when all are gone.
    pub(crate) fn leave_all(&mut self, promise: Promise<()>, now: u64) {
        for index in 0..self.peers.len() {
            self.leave(PeerKey(index as u32), now);
        }
        self.closing = Some(promise);
        self.tend_closing();
    }

    pub(super) fn tend_closing(&mut self) {
        if self.closing.is_some()
            && self.peers.iter().flatten().all(|peer| peer.is_lost())
            && let Some(promise) = self.closing.take()
        {
            promise.keep(());
        }
    }

    fn tend_leaving(&mut self, key: PeerKey) {
        let Some(peer) = self.peer(key) else { return };
        let sending = &peer.sending;
        // Until the peer holds them, they may have to be sent again.
        let has_messages = !sending.waiting.is_empty() || !sending.kept.is_empty();
        // A peer that still answers for its grants spares the rail a reset, and with that all the others.
        let is_done = peer.in_flight() == 0 && peer.is_idle() && peer.revoking == 0;
        if peer.is_left && is_done && !has_messages {
            // It says that nothing is under way.
            if !peer.has_strays {
                self.send(key, Frame::Goodbye);
            }
            self.lose_peer(key, "nobody here needs it any more", false);
        }
    }

    /// What is due for one peer.
    pub(super) fn tend_peer(&mut self, key: PeerKey) {
        let (now, silence) = (self.now, self.tuning.silence);
        let Some(peer) = self.peer(key) else { return };
        if peer.is_lost() {
            self.tend_lost(key);
            return;
        }
        if now >= peer.heard_at.saturating_add(silence) {
            let silent_ms = (now - peer.heard_at) / 1_000_000;
            self.lose_peer(key, &format!("it has said nothing for {silent_ms} ms"), false);
            return;
        }
        if now >= peer.spoke_at.saturating_add(peer.heartbeat) {
            self.send(key, Frame::Ping { nonce: now });
        }
        self.tend_links(key);
        self.tend_leaving(key);
    }
}

impl Peer {
    /// Whether something of it is under way, or about to change by time alone.
    pub(super) fn is_unsettled(&self) -> bool {
        let is_changing = |link: &Link| link.phase != Phase::Ready || link.in_flight > 0;
        self.is_lost() || self.is_left || self.links.iter().any(is_changing)
    }

    /// Whether nothing is asked of it.
    pub(super) fn is_idle(&self) -> bool {
        let has_words = !self.words.is_empty() || !self.words_waiting.is_empty();
        self.transfers.is_empty() && !has_words && self.sending.posted.is_empty()
    }
}
