//! Resets of rails whose links cannot be stopped one by one.
//!
//! A tcp connection without progress holds buffers of this side, and may hold bytes that land in
//! memory of this side long after its peer was lost. Only closing the whole endpoint stops that. It
//! ends the links of all peers on this rail, so it is done in order: nothing more is posted,
//! operations that make progress may complete, and a peer whose link was quiet need not reset its
//! rail in turn.

use std::collections::HashMap;

use super::budget::RESETS_WITHIN;
use super::peer::Phase;
use super::work::Control;
use super::{Machine, PeerKey};
use crate::counter::{CounterId, LinkId};
use crate::rail::RailError;
use crate::wire::Frame;

impl Machine {
    /// Asks for a reset of a rail that a peer has caused. It costs all peers of the rail their
    /// links, so a peer has a budget of resets.
    pub(super) fn reset_because_of(&mut self, key: PeerKey, rail: usize) {
        let (now, budgets) = (self.now, self.tuning.budgets);
        // Another peer has caused it already, or the rail is dead.
        if !self.ask_reset(rail) {
            return;
        }
        let peer = &mut self.peers[key];
        while peer.resets.front().is_some_and(|at| at.saturating_add(RESETS_WITHIN) <= now) {
            peer.resets.pop_front();
        }
        // Only resets that a peer has caused: those of others must not end it.
        peer.resets.push_back(now);
        if peer.resets.len() > budgets.resets as usize {
            self.lose_peer(key, budgets.exceeded_resets(), false);
        }
    }

    /// Asks for a reset of a rail as soon as its healthy links are quiet. Returns `true` if none was
    /// due before.
    pub(super) fn ask_reset(&mut self, rail: usize) -> bool {
        if !self.rails[rail].ask_reset(self.now) {
            return false;
        }
        self.touch_common();
        for peer in self.peers.iter_mut() {
            for index in 0..peer.links.len() {
                if peer.links[index].rail() == rail {
                    // With new posts the links would never become quiet.
                    peer.transfers.pause(index);
                }
            }
        }
        true
    }

    pub(super) fn run_resets(&mut self) {
        for rail in 0..self.rails.len() {
            if self.rails[rail].is_resetting() {
                self.touch_common();
            }
            // None is due, or it is with the driver.
            let Some(since) = self.rails[rail].reset_asked_at() else { continue };
            let links = self.peers.iter().flat_map(|peer| peer.links.iter());
            // Draining links are excluded: their operations are the reason for the reset.
            let is_quiet = links
                .filter(|link| link.rail() == rail && !matches!(link.phase(), Phase::Draining { .. }))
                .all(|link| link.in_flight() == 0);
            if is_quiet || self.now >= since + self.tuning.drain {
                // At the end of the time also with operations in flight: they may be why it is asked for.
                self.rails[rail].begin_reset();
                self.control.push_back(Control::Reset { rail });
            }
        }
    }

    /// Handles the result of a reset: the rail was reset, or is dead.
    pub fn handle_reset(&mut self, rail: usize, reset: Result<(), RailError>) {
        let error = reset.as_ref().err().cloned();
        // First: the rest compares with the new generation, or has to find the rail dead.
        self.rails[rail].end_reset(reset);
        let mut stuck = if error.is_some() { self.abandon_rail(rail) } else { HashMap::new() };
        for key in self.peers.keys() {
            let links = self.peer(key).map_or(0, |peer| peer.links.len());
            for index in 0..links {
                if self.peers[key].links[index].rail() == rail {
                    self.end_link(key, index, error.as_ref());
                    if let Some(error) = &error {
                        let stuck = stuck.remove(&(key, index)).unwrap_or_default();
                        self.abandon_link(key, index, stuck, error);
                    }
                }
            }
            // After a failed reset the peer's operations can never be stopped.
            self.lose_if_unstoppable(key, rail);
            // A successful reset proves that nothing of the old links lands any more.
            self.answer_settles(key);
        }
    }

    /// Answers `Settle` frames about lost links whose bytes can no longer land.
    pub(super) fn answer_settles(&mut self, key: PeerKey) {
        // A reset goes through all keys that were ever assigned.
        let Some(peer) = self.peer(key) else { return };
        // Taken out, because `answer_settle` adds those again that cannot be answered yet.
        for (link, counter) in std::mem::take(&mut peer.settles) {
            self.answer_settle(key, link, counter);
        }
    }

    /// Answers a `Settle` frame, now or when no more bytes of the link can land.
    pub(super) fn answer_settle(&mut self, key: PeerKey, link: LinkId, counter: CounterId) {
        if self.may_still_land(key, link) {
            return self.peers[key].settles.push((link, counter));
        }
        if self.is_about_to_close(key, link) {
            self.peers[key].settles.push((link, counter));
            return self.settling.push(key);
        }
        // A closed counter has no value: nothing is owed for it.
        let is_open = self.counters.is_of(counter, key);
        // No page comes from a link that was never there. It is not noted as settled, or a peer could
        // fill the memory of this side with ids that it invents.
        let links = &self.peers[key].links;
        let is_link = links.position(link).is_some() || self.counters.has_heard_of(link, counter);
        let pages = if is_open && is_link { self.counters.settle(link, counter).unwrap_or(0) } else { 0 };
        if is_open {
            // Even if no page came over the link: the peer adds those whose immediates were lost.
            self.counters.permit_add(counter, links.lost());
        }
        self.send(key, Frame::Settled { link, counter, pages });
    }

    /// Returns `true` if the driver has yet to close this side's end of a link. Until then bytes
    /// that the peer sent over it may land.
    fn is_about_to_close(&self, key: PeerKey, id: LinkId) -> bool {
        let links = &self.peers[key].links;
        // The end of a link that was replaced is closed: the new one was opened after that.
        let Some(end) = links.position(id).and_then(|index| links[index].key()) else { return false };
        self.control.iter().any(|control| matches!(control, Control::CloseLink { link, .. } if *link == end))
    }

    /// Answers `Settle` frames that waited for the driver to close links.
    pub(super) fn answer_after_close(&mut self) {
        for key in std::mem::take(&mut self.settling) {
            if self.peers.get(key).is_some_and(|peer| !peer.is_lost()) {
                self.answer_settles(key);
            }
        }
    }

    /// Returns `true` if bytes that the peer sent over a lost link may still land, because the
    /// reset of its rail is pending.
    pub(super) fn may_still_land(&self, key: PeerKey, id: LinkId) -> bool {
        // A link that is not known ends alone, or never was.
        let Some((rail, generation)) = self.peers[key].links.rail_of(id) else { return false };
        let rail = &self.rails[rail];
        rail.generation() == generation && rail.is_resetting()
    }
}
