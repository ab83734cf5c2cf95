//! Beginning a rail anew, where its links do not end by themselves.
//!
//! A tcp connection that hangs has buffers of ours, and may hold bytes that land in memory of ours long after its peer was given up.
//! Nothing but the end of the whole endpoint stops that. It ends the links of all peers on this rail, so it is done in order: nothing
//! more is posted, what goes well is waited for, and a peer whose link was quiet need not do the same.

use std::collections::HashMap;

use super::peer::Phase;
use super::work::Control;
use super::{Machine, PeerKey};
use crate::rail::RailError;
use crate::wire::Frame;

impl Machine {
    /// A rail is to be reset as soon as its healthy links are quiet.
    pub(super) fn ask_reset(&mut self, rail: usize) {
        if !self.rails[rail].ask_reset(self.now) {
            return;
        }
        self.mark_dirty();
        for peer in self.peers.iter_mut() {
            for index in 0..peer.links.len() {
                if peer.links[index].rail() == rail {
                    peer.transfers.pause(index);
                }
            }
        }
    }

    pub(super) fn run_resets(&mut self) {
        for rail in 0..self.rails.len() {
            self.timers.note(self.rails[rail].is_resetting());
            let Some(since) = self.rails[rail].reset_asked_at() else { continue };
            let links = self.peers.iter().flat_map(|peer| peer.links.iter());
            let is_quiet = links
                .filter(|link| link.rail() == rail && !matches!(link.phase(), Phase::Draining { .. }))
                .all(|link| link.in_flight() == 0);
            if is_quiet || self.now >= since + self.tuning.drain {
                self.rails[rail].begin_reset();
                self.control.push_back(Control::Reset { rail });
            }
        }
    }

    /// A rail has begun anew, or is dead.
    pub fn handle_reset(&mut self, rail: usize, reset: Result<(), RailError>) {
        let error = reset.as_ref().err().cloned();
        self.rails[rail].end_reset(reset);
        let mut stuck = if error.is_some() { self.abandon_rail(rail) } else { HashMap::new() };
        for key in self.peers.keys() {
            let links = self.peer(key).map_or(0, |peer| peer.links.len());
            for index in 0..links {
                if self.peer(key).is_some_and(|peer| peer.links[index].rail() == rail) {
                    self.end_link(key, index);
                    if let Some(error) = &error {
                        let stuck = stuck.remove(&(key, index)).unwrap_or_default();
                        self.abandon_link(key, index, stuck, error);
                    }
                }
            }
            self.lose_if_unstoppable(key, rail);
            self.answer_settles(key);
        }
    }

    /// Answers what peers have asked of lost links whose bytes can land no more.
    pub(super) fn answer_settles(&mut self, key: PeerKey) {
        let Some(peer) = self.peer(key) else { return };
        for (link, counter) in std::mem::take(&mut peer.settles) {
            if self.may_still_land(key, link) {
                if let Some(peer) = self.peer(key) {
                    peer.settles.push((link, counter));
                }
                continue;
            }
            // One that is closed has counted for nobody, and what is owed for it is owed to nobody.
            let is_open = self.counters.is_of(counter, key);
            let pages = if is_open { self.counters.settle(link, counter).unwrap_or(0) } else { 0 };
            self.send(key, Frame::Settled { link, counter, pages });
        }
    }

    /// Whether bytes that the peer has sent over a lost link may land yet: its rail waits for being begun anew.
    pub(super) fn may_still_land(&mut self, key: PeerKey, id: crate::counter::LinkId) -> bool {
        let Some(peer) = self.peer(key) else { return false };
        let Some((rail, generation)) = peer.links.rail_of(id) else { return false };
        let rail = &self.rails[rail];
        rail.generation() == generation && rail.is_resetting()
    }
}
