//! Who is there, and who is not any more.

use std::time::Duration;

use super::{Event, Machine, OpId, PeerKey};
use crate::lost::LostReason;
use crate::wire::Frame;

impl Machine {
    /// Nobody here has anything more to do with a peer: it is told so when nothing of ours is under way.
    pub fn leave(&mut self, key: PeerKey, now: u64) {
        self.now = now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        peer.is_left = true;
        self.mark_dirty();
        self.finish_leaving(key);
    }

    /// Nobody here has anything more to do with anybody. It is told when all are gone.
    pub fn leave_all(&mut self, op: OpId, now: u64) {
        for key in self.peers.keys() {
            self.leave(key, now);
        }
        self.closing.push(op);
        self.finish_closing();
    }

    pub(super) fn finish_closing(&mut self) {
        if !self.closing.is_empty() && self.peers.iter().all(|peer| peer.is_lost()) {
            let closed = self.closing.drain(..).map(Event::Closed);
            self.events.extend(closed);
        }
    }

    fn finish_leaving(&mut self, key: PeerKey) {
        let Some(peer) = self.peer(key) else { return };
        // A peer that still answers for its grants spares the rail a reset, and with that all the others.
        let is_done = peer.links.in_flight() == 0 && peer.is_idle() && peer.revoking == 0;
        // Until the peer holds its messages, they may have to be sent again.
        if peer.is_left && is_done && peer.outgoing.is_held() {
            // It says that nothing is under way.
            if !peer.has_unstopped {
                self.send(key, Frame::Goodbye);
            }
            self.lose_peer(key, LostReason::Left, false);
        }
    }

    /// What is due for one peer.
    pub(super) fn run_peer_timers(&mut self, key: PeerKey) {
        let (now, silence) = (self.now, self.tuning.silence);
        let Some(peer) = self.peer(key) else { return };
        if peer.is_lost() {
            self.finish_lost(key);
            return;
        }
        if now >= peer.heard_at.saturating_add(silence) {
            let silent = Duration::from_nanos(now - peer.heard_at);
            self.lose_peer(key, LostReason::Silent { silent }, false);
            return;
        }
        if now >= peer.spoke_at.saturating_add(peer.heartbeat) {
            self.send(key, Frame::Ping { nonce: now });
        }
        self.run_link_timers(key);
        self.finish_leaving(key);
    }
}
