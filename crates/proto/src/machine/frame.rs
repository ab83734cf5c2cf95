//! Handles the frames of peers.

use super::{Machine, PeerChange, PeerKey};
use crate::lost::LostReason;
use crate::wire::{Frame, Hello};

/// The minimum interval of keep-alives in nanoseconds, whatever interval a peer asks for.
const HEARTBEAT_MIN: u64 = 10_000_000;

impl Machine {
    /// Handles a frame of a peer.
    pub fn handle_frame(&mut self, key: PeerKey, frame: Frame, now: u64) {
        self.now = now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        peer.heard_at = now;
        // Keep-alives alone must not make an idle machine run its timers more often.
        if !matches!(frame, Frame::Ping { .. }) {
            self.mark_dirty();
        }
        let Some(peer) = self.peer(key) else { return };
        // Until the hello nothing is known of the peer's rails, so no other frame can be handled.
        if peer.hello.is_none() && !matches!(frame, Frame::Hello(_)) {
            self.lose_peer(key, LostReason::Violation("the first frame is not a hello"), false);
            return;
        }
        match frame {
            Frame::Hello(hello) => self.on_hello(key, hello),
            Frame::Link(offer) => self.on_link_offer(key, offer),
            Frame::LinkReady { link, mark } => self.on_link_ready(key, link, mark),
            Frame::LinkLost { link, is_quiet, reason } => self.on_link_lost(key, link, is_quiet, &reason),
            Frame::Grant(offer) => self.on_grant(key, offer),
            Frame::Revoke { grant } => self.on_revoke(key, grant),
            Frame::Revoked { grant } => self.on_revoked(key, grant),
            Frame::Counter { counter, names } => self.on_counter(key, counter, names),
            Frame::CounterClosed { counter } => self.on_counter_closed(key, counter),
            Frame::Settle { link, counter } => self.on_settle(key, link, counter),
            Frame::Settled { link, counter, pages } => {
                let Some(peer) = self.peer(key) else { return };
                let frames = peer.transfers.settled(link, counter, pages);
                self.send_all(key, frames);
                self.collect_finished(key);
            }
            Frame::Add { counter, pages } => self.on_add(key, counter, pages),
            Frame::Abort { counter, .. } => self.on_abort(key, counter),
            Frame::Message { sequence, bytes } => self.receive(key, sequence, &bytes),
            Frame::Taken { count } => self.on_taken(key, count),
            Frame::Held { next } => self.on_held(key, next),
            Frame::Look => self.looking.expect(self.now),
            Frame::Goodbye => self.lose_peer(key, LostReason::Goodbye, true),
            // A ping needs no answer, because each side sends keep-alives by itself: receiving it
            // has updated `heard_at`. A connection of this version never carries frames of later
            // versions.
            _ => {}
        }
    }

    /// Handles the end of a connection.
    pub fn handle_disconnected(&mut self, key: PeerKey, reason: LostReason, now: u64) {
        self.now = now;
        self.lose_peer(key, reason, false);
    }

    fn on_hello(&mut self, key: PeerKey, hello: Hello) {
        let Some(peer) = self.peer(key) else { return };
        if peer.hello.is_some() {
            self.lose_peer(key, LostReason::Violation("a second hello was received"), false);
            return;
        }
        let name = hello.name.clone();
        peer.outgoing.add_room(hello.messages);
        let wanted = u64::from(hello.heartbeat_ms).saturating_mul(1_000_000).max(HEARTBEAT_MIN);
        peer.hello = Some(hello);
        // The shorter interval of both sides applies.
        peer.heartbeat = peer.heartbeat.min(wanted);
        self.timers.note_heartbeat(wanted);
        self.report_peer(key, PeerChange::Named(name));
        // Messages may have waited for the room that the hello announces.
        self.schedule_sending(key);
        self.make_links(key);
        self.schedule_sending(key);
    }
}
