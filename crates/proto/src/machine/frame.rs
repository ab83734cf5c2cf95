//! Handles the frames of peers.

use farreach_text::Untrusted;

use super::budget::NAME_MAX;
use super::lose::told_by_peer;
use super::peer::Expected;
use super::{Machine, PeerChange, PeerKey};
use crate::lost::LostReason;
use crate::time::Time;
use crate::wire::{Frame, Hello};

impl Machine {
    /// Handles a frame of a peer.
    pub fn handle_frame(&mut self, key: PeerKey, frame: Frame, now: Time) {
        self.now = now;
        // Frames that were received before this side has closed the connection still come.
        let Some(peer) = self.peers.get_mut(key).filter(|peer| !peer.is_lost()) else { return };
        if peer.liveness.hear(now) {
            let at = peer.liveness.next_due(peer.is_awaited(), peer.is_initiator, &self.tuning);
            self.timers.schedule(key, &mut peer.due_at, at);
        }
        // Pings alone must not make the timers of a peer run more often.
        if !matches!(frame, Frame::Ping { .. } | Frame::Pong { .. }) {
            self.touch(key);
        }
        let peer = &mut self.peers[key];
        // Until the hello nothing is known of the peer's rails, so no other frame can be handled.
        if peer.hello.is_none() && !matches!(frame, Frame::Hello(_) | Frame::Refused { .. }) {
            self.lose_peer(key, LostReason::Violation("the first frame is not a hello"), false);
            return;
        }
        match frame {
            Frame::Hello(hello) => self.on_hello(key, hello),
            Frame::Link(offer) => self.on_link_offer(key, offer),
            Frame::LinkReady { link, mark, needs_names, binds_keys } => {
                self.on_link_ready(key, link, Expected { mark, needs_names, binds_keys });
            }
            Frame::Keys { link, keys } => self.on_keys(key, link, &keys),
            Frame::LinkLost { link, is_quiet, reason } => self.on_link_lost(key, link, is_quiet, &reason),
            Frame::Grant(offer) => self.on_grant(key, offer),
            Frame::Revoke { grant } => self.on_revoke(key, grant),
            Frame::Revoked { grant } => self.on_revoked(key, grant),
            Frame::Open { publication } => self.on_open(key, publication),
            Frame::Opened { publication, grant } => self.on_opened(key, publication, grant),
            Frame::NotOpened { publication, reason } => self.on_not_opened(key, publication, &reason),
            Frame::Counter { counter, names } => self.on_counter(key, counter, names),
            Frame::CounterClosed { counter } => self.on_counter_closed(key, counter),
            Frame::Settle { link, counter } => self.on_settle(key, link, counter),
            Frame::Settled { link, counter, pages } => {
                let peer = &mut self.peers[key];
                let frames = peer.transfers.settled(link, counter, pages, now);
                self.send_all(key, frames);
                // The end of a grant may have waited for this answer.
                self.confirm_unused(key);
                self.collect_finished(key);
            }
            Frame::Add { counter, pages } => self.on_add(key, counter, pages),
            Frame::Abort { counter, .. } => self.on_abort(key, counter),
            Frame::Message { sequence, bytes } => self.on_message(key, sequence, &bytes),
            Frame::Taken { count } => self.on_taken(key, count),
            Frame::Held { next } => self.on_held(key, next),
            Frame::Look => self.on_look(key),
            Frame::Refused { reason } => {
                let reason = told_by_peer(&reason);
                // Quiet: it comes instead of a hello, before any link.
                self.lose_peer(key, LostReason::Refused { reason }, true);
            }
            // Sent when nothing of the peer is in flight.
            Frame::Goodbye => self.lose_peer(key, LostReason::Goodbye, true),
            Frame::OpenCounter { shared } => self.on_open_counter(key, shared),
            Frame::CounterOpened { shared, counter } => self.on_counter_opened(key, shared, counter),
            Frame::CounterNotOpened { shared, reason } => self.on_counter_not_opened(key, shared, &reason),
            Frame::Ping { nonce } => self.send(key, Frame::Pong { nonce }),
            // Any frame answers a ping.
            Frame::Pong { .. } => {}
        }
    }

    /// Polls rails that cannot wake this side for a while, if the peer has a link over one.
    fn on_look(&mut self, key: PeerKey) {
        let rails = &self.rails;
        if self.peers[key].links.iter().any(|link| rails[link.rail()].must_be_polled()) {
            self.looking.expect(self.now);
        }
    }

    /// Handles the end of a connection.
    pub fn handle_disconnected(&mut self, key: PeerKey, reason: LostReason, now: Time) {
        self.now = now;
        self.lose_peer(key, reason, false);
    }

    fn on_hello(&mut self, key: PeerKey, hello: Hello) {
        let budgets = self.tuning.budgets;
        let peer = &mut self.peers[key];
        if peer.hello.is_some() {
            self.lose_peer(key, LostReason::Violation("a second hello was received"), false);
            return;
        }
        if hello.rails.len() > budgets.rails as usize {
            return self.lose_peer(key, budgets.exceeded_rails(), true);
        }
        if hello.name.len() > NAME_MAX || hello.rails.iter().any(|kind| kind.len() > NAME_MAX) {
            let why = LostReason::Violation("a name in its hello is longer than 255 bytes");
            return self.lose_peer(key, why, true);
        }
        // Programs print it.
        let name = Untrusted::new(hello.name.as_str()).shown();
        peer.outgoing.add_room(hello.messages);
        peer.hello = Some(hello);
        self.report_peer(key, PeerChange::Named(name));
        // Messages may have waited for the room that the hello announces.
        self.schedule_sending(key);
        self.make_links(key);
        self.schedule_sending(key);
    }
}
