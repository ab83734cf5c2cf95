//! Failures of links and of peers.
//!
//! A failed link is *draining* until all operations of this side on it have come back. Only then is
//! it lost, and its pages go to other links. The loss of a peer ends every wait on it. Its buffers
//! come back when the cards are done with them.
//!
//! Invariant: a buffer is never reused while a card may access it.

use farreach_text::Untrusted;

use super::TransferFault;
use super::links::IN_USE;
use super::peer::{Due, Lost, Phase, Remains};
use super::work::Control;
use super::{Event, Machine, Output, PeerChange, PeerKey};
use crate::counter::LinkId;
use crate::error::SendError;
use crate::lost::LostReason;
use crate::rail::RailError;
use crate::wire::Frame;

/// The reason sent with a link that failed without a reason of its own: with its peer, or with its
/// rail. Peers compare it, so it is part of the protocol.
const NO_REASON: &str = "its link has failed";

/// The maximum number of characters kept of a peer's reason.
const REASON_CHARS_MAX: usize = 400;

/// Returns a peer's reason, cut to what is kept of it.
pub(super) fn told_by_peer(reason: &str) -> Untrusted {
    Untrusted::new(reason.chars().take(REASON_CHARS_MAX).collect::<String>())
}

impl Machine {
    /// Handles the failure of a link that was detected on this side.
    pub(super) fn fail_link(&mut self, key: PeerKey, index: usize, reason: &RailError) {
        let peer = &mut self.peers[key];
        let link = &mut peer.links[index];
        // Only the first failure is reported: the later ones follow from it.
        if link.is_failing() {
            return;
        }
        // For the peer: `LinkLost` has the reason when the link has drained.
        link.note_why(reason.to_string());
        self.report_peer(key, PeerChange::Note(reason.clone()));
        self.end_link(key, index, Some(reason));
    }

    /// Ends a link. Its reason, if there is one, was noted already.
    pub(super) fn end_link(&mut self, key: PeerKey, index: usize, reason: Option<&RailError>) {
        let now = self.now;
        let peer = &mut self.peers[key];
        let (is_lost, link) = (peer.is_lost(), &mut peer.links[index]);
        let was_ready = link.phase() == Phase::Ready;
        // Both sides may notice the end of a link, and the end of its peer or rail ends it again.
        if !link.fail(now) {
            return;
        }
        // The links of a lost peer end with it.
        if was_ready && !is_lost {
            let rail = self.rails[link.rail()].properties().name.clone();
            self.events.push_back(Event::Peer(key, PeerChange::LinkLost { rail, reason: reason.cloned() }));
        }
        let peer = &mut self.peers[key];
        let link = &mut peer.links[index];
        let (rail, link_key, mark) = (link.rail(), link.key(), link.own_mark());
        peer.transfers.pause(index);
        self.touch(key);
        // Messages that still arrive over the link are ignored. The peer sends them again.
        self.marks.end(mark);
        if let Some(link) = link_key {
            self.control.push_back(Control::CloseLink { rail, link });
        }
        self.tell_rails(key);
    }

    /// Handles a failed link whose operations have all come back: it is lost, and its pages go to
    /// the others.
    pub(super) fn drained(&mut self, key: PeerKey, index: usize) {
        let (now, retry_at) = (self.now, self.now + self.tuning.cool_down);
        let peer = &mut self.peers[key];
        let link = &mut peer.links[index];
        let (rail, id) = (link.rail(), link.id());
        let Remains { key: link_key, failed, has_unknown_atomic, is_quiet, why } = link.drained(retry_at);
        let is_lost = peer.is_lost();
        self.rails[rail].remove_link(link_key);
        // The transfers of a lost peer end without another link.
        if is_lost {
            return;
        }
        let reason = if why.is_empty() { NO_REASON.to_owned() } else { why };
        // Before the `Settle` frames below: the peer has to stop the link before it answers them.
        self.send(key, Frame::LinkLost { link: id, is_quiet, reason });
        self.need_all_links(key);
        let peer = &mut self.peers[key];
        // The atomic may still land. The answer to this question proves that it no longer does.
        if has_unknown_atomic {
            peer.transfers.ask_about(index);
        }
        let frames = peer.transfers.lose(index, failed, now);
        self.send_all(key, frames);
        self.send_messages_again(key, id);
        self.collect_finished(key);
        self.wake_pages(key);
    }

    /// Handles the loss of the peer's end of a link.
    pub(super) fn on_link_lost(&mut self, key: PeerKey, id: LinkId, is_quiet: bool, reason: &str) {
        let peer = &mut self.peers[key];
        // A peer may report a loss twice, or of a link that it has refused to make.
        let Some((rail, generation)) = peer.links.rail_of(id) else { return };
        let index = peer.links.position(id);
        let mut why = None;
        if let Some(index) = index {
            let link = &mut peer.links[index];
            link.lost_there();
            if !link.is_failing() && reason != NO_REASON && reason != IN_USE {
                let told = told_by_peer(reason).shown();
                let fix = "check the log of the other side and its card (`farreach devices`)";
                let note = RailError::new("link (peer's end)", told, fix);
                self.report_peer(key, PeerChange::Note(note.clone()));
                why = Some(note);
            }
        }
        let properties = self.rails[rail].properties();
        // Operations of the peer may land late, unless this side stops them by a reset.
        let may_land_late = !is_quiet && !properties.links_end_alone;
        // If the rail was reset since, that has stopped the peer's operations already.
        if may_land_late && self.rails[rail].generation() == generation {
            // Before the reset: a dead rail is not reset, and the peer is lost for what is noted
            // here.
            self.peers[key].links.expect_late(id);
            self.reset_because_of(key, rail);
            self.lose_if_unstoppable(key, rail);
        } else {
            // Nothing of it lands any more, so nothing about it has to be remembered.
            self.peers[key].links.forget_past(id);
        }
        // Unless the reset was one too many for the peer.
        if let Some(index) = index.filter(|_| self.peers.get(key).is_some()) {
            self.end_link(key, index, why.as_ref());
        }
    }

    /// Loses a peer whose operations may still land over a rail that can no longer be stopped: the
    /// memory granted to it may change at any time, and nothing can be guaranteed about it. All
    /// waits end, and the memory never becomes a slice again.
    pub(super) fn lose_if_unstoppable(&mut self, key: PeerKey, rail: usize) {
        // A rail that is alive is reset, which stops them.
        let Some(error) = self.rails[rail].death().cloned() else { return };
        let generation = self.rails[rail].generation();
        if self.peer(key).is_some_and(|peer| peer.links.may_land_over(rail, generation)) {
            self.lose_peer(key, LostReason::Unstoppable { rail: error }, false);
        }
    }

    /// Handles the loss of a peer: all waits on it end.
    pub(super) fn lose_peer(&mut self, key: PeerKey, reason: LostReason, is_quiet: bool) {
        let now = self.now;
        // It stays lost for the first reason: what ends with it is often reported as a loss as well.
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        // A peer that never knew an end of a link cannot have operations in flight.
        let is_quiet = is_quiet || peer.links.were_never_offered();
        peer.lost = Some(Lost { at: now, reason: reason.clone(), is_quiet });
        self.touch(key);
        let peer = &mut self.peers[key];
        for index in 0..peer.links.len() {
            self.end_link(key, index, None);
        }
        let peer = &mut self.peers[key];
        let unsent = peer.outgoing.give_up();
        self.report_peer(key, PeerChange::Lost(reason.clone()));
        for op in unsent {
            self.report(Event::Sent(op, Err(SendError::PeerLost { reason: reason.clone() })));
        }
        self.lose_openings(key, &reason);
        self.lose_counter_openings(key, &reason);
        self.end_counters_of(key);
        self.part_from_shared_counters(key);
        self.end_published_grants(key);
        self.turns.remove(key);
        // After all frames for it: a goodbye is sent before the connection ends.
        self.outputs.push_back(Output::Close(key));
        self.finish_lost(key);
        // It may be the last one that a close of the engine waits for.
        self.finish_closing();
    }

    /// Finishes a lost peer: its buffers come back when the cards are done with them.
    pub(super) fn finish_lost(&mut self, key: PeerKey) {
        let (now, times) = (self.now, self.tuning.link_times());
        let peer = &mut self.peers[key];
        for index in 0..peer.links.len() {
            let link = &self.peers[key].links[index];
            let (rail, due) = (link.rail(), link.due(now, false, &times));
            match due {
                Due::Drained => self.drained(key, index),
                // Operations that are never answered occupy a queue that others need, and buffers
                // of this side.
                Due::Reset => drop(self.ask_reset(rail)),
                // Its operations have some time left to come back.
                Due::Nothing => {}
                due => unreachable!("all links of a lost peer have failed, and one is due: {due:?}"),
            }
        }
        let peer = &mut self.peers[key];
        let lost = peer.lost.as_ref().expect("only a peer that is lost is finished");
        let is_back = peer.links.in_flight() == 0;
        // Transfers end with their buffers if the cards return them in time, and without them
        // otherwise.
        if !is_back && now < lost.at + times.drain {
            return;
        }
        let reason = lost.reason.clone();
        for transfer in peer.transfers.drain() {
            if let Some(at) = transfer.deadline() {
                self.deadlines.remove(at, key, transfer.id());
            }
            // Reported without the buffers if a card still has them. They are freed when the card
            // is done.
            let fault = TransferFault::PeerLost(Box::new(reason.clone()));
            self.events.push_back(transfer.end(Err(fault), is_back, now));
        }
        // Those in flight may have taken effect, and cannot be asked for any more.
        self.lose_atomics(key, &reason);
        let peer = &mut self.peers[key];
        if is_back {
            // The buffers are back, so nothing of them completes any more.
            peer.transfers.clear();
            // The revocation of its grants still needs the peer's state.
            if peer.own_grants.is_empty() {
                let due_at = peer.due_at;
                // Nothing may name the peer from here on.
                self.timers.remove(key, due_at);
                self.peers.forget(key);
                self.report_peer(key, PeerChange::Forgotten);
            }
        }
    }
}
