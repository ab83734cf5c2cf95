//! The timers of a peer: pings, silence, and orderly closing.

use std::time::Duration;

use super::{Event, Machine, OpId, PeerChange, PeerKey};
use crate::lost::LostReason;
use crate::time::Time;
use crate::wire::Frame;

impl Machine {
    /// Closes a peer. The goodbye is sent when nothing of this side is in flight.
    pub fn leave(&mut self, key: PeerKey, now: Time) {
        self.now = now;
        // Its handle may outlive it.
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        peer.left_at.get_or_insert(now);
        self.touch(key);
        self.end_published_grants(key);
        self.finish_leaving(key);
    }

    /// Closes all peers. `op` is answered when all are gone.
    pub fn leave_all(&mut self, op: OpId, now: Time) {
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
        let (now, silence) = (self.now, self.tuning.silence);
        // The timers of its links may have lost it a moment ago.
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        // A peer that can still confirm the end of its grants saves the rail a reset, and with that
        // all other peers their links.
        let is_settled = !peer.may_land();
        let is_quiet = peer.links.in_flight() == 0 && is_settled;
        let is_done = is_quiet && peer.is_idle() && peer.revoking == 0;
        // Until the peer holds its messages, they may have to be sent again.
        let is_over = is_done && peer.outgoing.is_held();
        if peer.is_left() && (is_over || peer.is_stranded(now, silence)) {
            // The goodbye asserts that nothing is in flight, which a dead rail makes unprovable.
            if is_quiet && !peer.has_unstopped {
                self.confirm(key);
                self.send(key, Frame::Goodbye);
            }
            self.lose_peer(key, LostReason::Left, false);
        }
    }

    /// Notes that something waits for a peer that the machine does not know, such as a message: the
    /// peer is pinged as if an operation were in flight. After a heartbeat interval the machine reports
    /// [`PeerChange::Unwatched`], and the driver calls this again if something still waits.
    pub fn watch(&mut self, key: PeerKey, now: Time) {
        self.now = now;
        let until = now.saturating_add(self.tuning.heartbeat);
        if let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) {
            peer.liveness.watch(until);
            self.expect(key);
        }
    }

    /// Runs the timers of one peer.
    pub(super) fn run_peer_timers(&mut self, key: PeerKey) {
        let now = self.now;
        // The peer may have to reset its rail first, and its frames may be late twice.
        let answer_within = self.tuning.stall.saturating_mul(2).saturating_add(self.tuning.drain);
        let peer = &mut self.peers[key];
        if peer.is_lost() {
            self.finish_lost(key);
            return;
        }
        if let Some(silent) = peer.liveness.silence(now, &self.tuning) {
            let silent = Duration::from_nanos(silent);
            self.lose_peer(key, LostReason::Silent { silent }, false);
            return;
        }
        // Transfers, even aborted ones, end with the answer.
        if peer.transfers.unanswered_since().is_some_and(|since| now >= since.saturating_add(answer_within)) {
            let why = LostReason::Violation("it does not tell how many pages have arrived over a lost link");
            return self.lose_peer(key, why, false);
        }
        let (is_awaited, is_initiator) = (peer.is_awaited(), peer.is_initiator);
        let is_due = peer.liveness.ping(is_awaited, is_initiator, now, &self.tuning);
        let is_unwatched = peer.liveness.end_watch(now);
        if is_due {
            self.send(key, Frame::Ping { nonce: now.to_nanos() });
        }
        if is_unwatched {
            self.report_peer(key, PeerChange::Unwatched);
        }
        self.run_link_timers(key);
        self.bind_again(key);
        self.finish_leaving(key);
    }
}
