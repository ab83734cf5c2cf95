//! Rails that cannot be reset.
//!
//! Operations in flight on such a rail are never proven to have stopped. Their buffers are
//! therefore never given back, and their requests are answered without them: pages as failed,
//! atomics as unknown. Messages are sent again from copies over other links. The peer is never told
//! that nothing is in flight to the memory concerned.

use std::collections::HashMap;

use super::TransferFault;
use super::in_flight::Requested;
use super::peer::Remains;
use super::{Event, Machine, OpId, PeerKey};
use crate::error::AtomicError;
use crate::outbox::Posted;
use crate::rail::RailError;
use crate::wire::Frame;

impl Machine {
    /// Removes the operations of a dead rail, by link. None of them will come back.
    pub(super) fn abandon_rail(&mut self, rail: usize) -> HashMap<(PeerKey, usize), Vec<Requested>> {
        // What it was asked for is never answered.
        self.grants.forget_rail(rail);
        let peers = &self.peers;
        let is_on_it = |key: PeerKey, link: usize| peers[key].links[link].rail() == rail;
        let mut stuck: HashMap<_, Vec<Requested>> = HashMap::new();
        for it in self.in_flight.abandon(|it| is_on_it(it.peer, it.link())) {
            stuck.entry((it.peer, it.link())).or_default().push(it.what);
        }
        stuck
    }

    /// Ends a link of a dead rail at once, with the operations that are stuck on it.
    pub(super) fn abandon_link(
        &mut self,
        key: PeerKey,
        index: usize,
        stuck: Vec<Requested>,
        error: &RailError,
    ) {
        let now = self.now;
        let peer = &mut self.peers[key];
        let link = &mut peer.links[index];
        let (rail, id) = (link.rail(), link.id());
        // It was down when the rail died, and stays down: nothing offers a link over a dead rail.
        let Some(Remains { key: link_key, failed: mut lost, has_unknown_atomic, .. }) = link.abandon() else {
            return;
        };
        self.rails[rail].remove_link(link_key);
        for what in stuck {
            match what {
                Requested::Pages(posted) => lost.push(posted),
                Requested::Message(sequence) => self.abandon_message(key, sequence),
                Requested::Atomic(new, _) => self.abandon_atomic(key, new.op),
                // The loss of its peer has answered it.
                Requested::Answered => {}
            }
        }
        let in_flight = &self.in_flight;
        // The atomics that were just abandoned are no longer in the table.
        self.peers[key].atomics.retain(|slot| in_flight.has(slot));
        self.abandon_pages(key, &lost, error);
        self.schedule_sending(key);
        // A lost peer gets no more frames.
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        if has_unknown_atomic {
            peer.transfers.ask_about(index);
        }
        let frames = peer.transfers.lose(index, lost, now);
        self.send(key, Frame::LinkLost { link: id, is_quiet: false, reason: error.to_string() });
        self.send_all(key, frames);
        self.send_messages_again(key, id);
        self.need_all_links(key);
        self.wake_pages(key);
        self.collect_finished(key);
    }

    /// Aborts transfers of which the card keeps parts of the memory for good.
    fn abandon_pages(&mut self, key: PeerKey, lost: &[Posted], error: &RailError) {
        let peer = &mut self.peers[key];
        let mut frames = Vec::new();
        for posted in lost.iter().filter(|posted| posted.operation().bytes > 0) {
            let fault = TransferFault::Rail(Box::new(error.clone()));
            if let Some(of_it) = peer.transfers.abandon(posted.transfer(), fault) {
                peer.has_unstopped = true;
                frames.extend(of_it);
            }
        }
        if !peer.is_lost() {
            self.send_all(key, frames);
        }
    }

    fn abandon_atomic(&mut self, key: PeerKey, op: OpId) {
        // A goodbye would say that nothing is in flight.
        self.peers[key].has_unstopped = true;
        self.report(Event::Atomic(op, Err(AtomicError::Unknown)));
    }

    fn abandon_message(&mut self, key: PeerKey, sequence: u64) {
        self.peers[key].outgoing.end(sequence, None);
    }
}
