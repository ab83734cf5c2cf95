//! What fails: links, and peers.
//!
//! A link that has failed is *draining* until everything of ours on it has come back; only then is it lost, and its pages go to other
//! links. A peer that is lost ends every wait on it. Its buffers come back when the cards are done with them.

use super::links::IN_USE;
use super::peer::{Due, Lost, Remains};
use super::transfer::TransferFault;
use super::work::Control;
use super::{Event, Machine, Output, PeerChange, PeerKey};
use crate::counter::LinkId;
use crate::error::SendError;
use crate::lost::LostReason;
use crate::rail::RailError;
use crate::wire::Frame;

/// What a peer is told of a link that failed without a reason of its own: with its peer, or with its rail.
const NO_REASON: &str = "its link has failed";

/// Characters of a reason of the peer that are kept.
const REASON_CHARS_MAX: usize = 400;

impl Machine {
    /// A link is of no use any more, as was found here.
    pub(super) fn fail_link(&mut self, key: PeerKey, index: usize, reason: &RailError) {
        let Some(peer) = self.peer(key) else { return };
        let link = &mut peer.links[index];
        if link.is_failing() {
            return;
        }
        link.note_why(reason.to_string());
        self.report_peer(key, PeerChange::Note(reason.clone()));
        self.end_link(key, index);
    }

    /// A link is of no use any more, for a reason that is known already.
    pub(super) fn end_link(&mut self, key: PeerKey, index: usize) {
        let now = self.now;
        let Some(peer) = self.peer(key) else { return };
        let link = &mut peer.links[index];
        if !link.fail(now) {
            return;
        }
        let (rail, link_key, mark) = (link.rail(), link.key(), link.own_mark());
        peer.transfers.pause(index);
        self.mark_dirty();
        self.marks.end(mark);
        if let Some(link) = link_key {
            self.control.push_back(Control::CloseLink { rail, link });
        }
        self.tell_rails(key);
    }

    /// Everything of ours on a failed link has come back: it is lost, and what it had goes to the others.
    pub(super) fn drained(&mut self, key: PeerKey, index: usize) {
        let retry_at = self.now + self.tuning.cool_down;
        let Some(peer) = self.peer(key) else { return };
        let link = &mut peer.links[index];
        let (rail, id) = (link.rail(), link.id());
        let Remains { key: link_key, failed, is_quiet, why } = link.drained(retry_at);
        let is_lost = peer.is_lost();
        self.rails[rail].remove_link(link_key);
        if is_lost {
            return;
        }
        let reason = if why.is_empty() { NO_REASON.to_owned() } else { why };
        self.send(key, Frame::LinkLost { link: id, is_quiet, reason });
        let Some(peer) = self.peer(key) else { return };
        let frames = peer.transfers.lose(index, failed);
        self.send_all(key, frames);
        self.send_messages_again(key, id);
        self.collect_finished(key);
        self.turns.wake(key);
    }

    /// The peer's end of a link is lost.
    pub(super) fn on_link_lost(&mut self, key: PeerKey, id: LinkId, is_quiet: bool, reason: &str) {
        let Some(peer) = self.peer(key) else { return };
        let Some((rail, generation)) = peer.links.rail_of(id) else { return };
        let index = peer.links.position(id);
        if let Some(index) = index {
            let link = &mut peer.links[index];
            link.lost_there();
            if !link.is_failing() && reason != NO_REASON && reason != IN_USE {
                let told: String = reason.chars().take(REASON_CHARS_MAX).collect();
                let fix = "see what the other side says, and its card: farreach devices";
                let note = RailError::new("link, at the peer's end", told, fix);
                self.report_peer(key, PeerChange::Note(note));
            }
        }
        let properties = self.rails[rail].properties();
        // What the peer had under way may land late, unless it is stopped here.
        let may_land_late = !is_quiet && !properties.links_end_alone;
        if may_land_late && self.rails[rail].generation() == generation {
            if let Some(peer) = self.peer(key) {
                peer.links.expect_late(id);
            }
            self.ask_reset(rail);
            self.lose_if_unstoppable(key, rail);
        } else if let Some(peer) = self.peer(key) {
            peer.links.forget_past(id);
        }
        if let Some(index) = index {
            self.end_link(key, index);
        }
    }

    /// What a peer had under way may land over a rail that nothing can stop any more: no memory of ours that it was granted will ever stay as it
    /// is, so that nothing can be promised of it. All waits end, and the memory never becomes a slice again.
    pub(super) fn lose_if_unstoppable(&mut self, key: PeerKey, rail: usize) {
        let Some(error) = self.rails[rail].death().cloned() else { return };
        let generation = self.rails[rail].generation();
        if self.peer(key).is_some_and(|peer| peer.links.may_land_over(rail, generation)) {
            self.lose_peer(key, LostReason::Unstoppable { rail: error }, false);
        }
    }

    /// A peer is lost: all waits on it end.
    pub(super) fn lose_peer(&mut self, key: PeerKey, reason: LostReason, is_quiet: bool) {
        let now = self.now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        // One that cannot have begun anything has nothing under way, whatever became of it.
        let is_quiet = is_quiet || peer.links.were_never_offered();
        peer.lost = Some(Lost { at: now, reason: reason.clone(), is_quiet });
        self.mark_dirty();
        let Some(peer) = self.peer(key) else { return };
        for index in 0..peer.links.len() {
            self.end_link(key, index);
        }
        let Some(peer) = self.peer(key) else { return };
        let unsent = peer.outgoing.give_up();
        self.report_peer(key, PeerChange::Lost(reason.clone()));
        for op in unsent {
            self.report(Event::Sent(op, Err(SendError::PeerLost { reason: reason.clone() })));
        }
        self.end_counters_of(key);
        self.turns.remove(key);
        self.outputs.push_back(Output::Close(key));
        self.finish_lost(key);
        self.finish_closing();
    }

    /// What is left of a lost peer: its buffers, which come back when the cards are done.
    pub(super) fn finish_lost(&mut self, key: PeerKey) {
        let (now, times) = (self.now, self.tuning.link_times());
        let Some(peer) = self.peer(key) else { return };
        for index in 0..peer.links.len() {
            let Some(link) = self.peer(key).map(|peer| &peer.links[index]) else { return };
            let (rail, due) = (link.rail(), link.due(now, false, &times));
            match due {
                Due::Drained => self.drained(key, index),
                // What nobody answers any more has room in a queue that others need, and buffers of ours.
                Due::Reset => self.ask_reset(rail),
                _ => {}
            }
        }
        let Some(peer) = self.peers.get_mut(key) else { return };
        let Some(lost) = &peer.lost else { return };
        let is_back = peer.links.in_flight() == 0;
        if !is_back && now < lost.at + times.drain {
            return;
        }
        let reason = lost.reason.clone();
        for transfer in peer.transfers.drain() {
            // Without its buffers, where a card still has them: they are freed when it is done.
            let fault = TransferFault::PeerLost(reason.clone());
            self.events.push_back(transfer.end(Err(fault), is_back, now));
        }
        self.lose_atomics(key, &reason);
        let Some(peer) = self.peer(key) else { return };
        if is_back {
            peer.transfers.clear();
            if peer.own_grants == 0 {
                self.peers.forget(key);
                self.report_peer(key, PeerChange::Forgotten);
            }
        }
    }
}
