//! Rails that cannot be begun anew.
//!
//! What such a rail has in flight is never proven to have stopped. So its buffers are never given back, and whatever waits for it is answered
//! without them: pages as failed, atomics as unknown; messages are sent again by other links, from copies. The peer never hears that nothing is
//! under way in the memory that they were for.

use farreach_core::inflight::SlotId;
use farreach_core::wire::Frame;

use super::peer::Phase;
use super::transfer::TransferFault;
use super::{Event, Machine, PeerKey};
use crate::AtomicError;
use crate::rail::RailError;

impl Machine {
    /// A link over a rail that is dead: it is lost as it is.
    pub(super) fn abandon_link(&mut self, key: PeerKey, index: usize, error: &RailError) {
        let Some(peer) = self.peer(key) else { return };
        let link = &mut peer.links[index];
        if matches!(link.phase, Phase::Down { .. }) {
            return;
        }
        let (rail, id, link_key) = (link.pair.0, link.id, link.key.take());
        (link.phase, link.in_flight) = (Phase::Down { retry_at: u64::MAX }, 0);
        if let Some(link_key) = link_key {
            self.rails[rail].links.remove(&link_key);
        }
        self.abandon_pages(key, index, error);
        self.abandon_atomics(key, index);
        self.abandon_messages(key, index);
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        let frames = peer.outbox.lose(index);
        self.send(key, Frame::LinkLost { link: id, is_quiet: false, reason: error.to_string() });
        self.send_all(key, frames);
        self.send_messages_again(key, id);
        self.round_robin.wake(key.0);
        self.collect_finished(key);
    }

    fn abandon_pages(&mut self, key: PeerKey, index: usize, error: &RailError) {
        let Some(peer) = self.peer(key) else { return };
        let mut frames = Vec::new();
        for id in peer.outbox.transfers_on(index) {
            if let Some(state) = peer.transfers.get_mut(id.index()) {
                state.keep_for_good(TransferFault::Rail(error.clone()));
                peer.has_unstopped = true;
                frames.extend(peer.outbox.abort(id));
            }
        }
        if !peer.is_lost() {
            self.send_all(key, frames);
        }
    }

    fn abandon_atomics(&mut self, key: PeerKey, index: usize) {
        let Some(peer) = self.peer(key) else { return };
        let on_link = peer.atomics.iter().filter(|(_, atomic)| atomic.link == index).map(|(slot, _)| slot);
        let on_link: Vec<SlotId> = on_link.collect();
        for slot in on_link {
            let Some(peer) = self.peer(key) else { return };
            peer.has_unstopped = true;
            if let Some(state) = peer.atomics.take(slot) {
                self.report(Event::Atomic(state.op, Err(AtomicError::Unknown)));
            }
        }
    }

    fn abandon_messages(&mut self, key: PeerKey, index: usize) {
        let Some(peer) = self.peer(key) else { return };
        peer.outgoing.abandon(index);
        self.schedule_sending(key);
    }
}
