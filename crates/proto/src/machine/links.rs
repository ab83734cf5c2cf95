//! Links: connecting, and failures.
//!
//! The side that connected offers links between pairs of rails of the same kind. If there are pairs
//! within the host, it offers the others when they are needed. Each side creates
//! its end, connects it to the other's end, and sends `LinkReady`. A side posts once it has
//! received that frame.
//!
//! Invariant: a link is opened again only when all operations of this side on its previous
//! connection have come back.

use std::collections::BTreeMap;

use super::peer::{Due, Expected, Links, MadeEnd, NO_LINK, Phase, Transfers};
use super::work::{Control, LinkEnd, Opening};
use super::{Machine, PeerChange, PeerKey};
use crate::counter::LinkId;
use crate::lost::LostReason;
use crate::outbox::LinkSettings;
use crate::rail::{LinkKey, Properties, RailError, Scope};
use crate::route::pairs;
use crate::wire::{Frame, LinkOffer};

/// Slots of a card's queue that pages leave to messages and atomics.
const RESERVED: u32 = 8;

/// The reason sent to a peer that offers a link too soon after the last one. The peer tries again;
/// this is not a failure.
pub(super) const IN_USE: &str = "the last one is still in use";

/// The maximum number of replaced links whose loss the peer has not reported. It reports each of
/// them sooner or later.
const PAST_MAX: usize = 256;

/// The maximum number of links of one rail to one peer: a link costs descriptors and memory.
const LINKS_PER_RAIL_MAX: usize = 8;

/// Pairs the rails of two sides by kind, in turn. Both sides compute the same pairs. A rail has at
/// most eight links. The cost is linear in the number of rails, apart from a logarithm.
pub fn pairs_of(initiator: &[String], acceptor: &[String]) -> Vec<(usize, usize)> {
    // The rails of each kind, in the order in which the initiator names the kinds.
    let mut kinds: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    // A map: with a search for each kind, a hello with thousands of them would cost their square.
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (rail, kind) in initiator.iter().enumerate() {
        let place = *places.entry(kind).or_insert(kinds.len());
        if place == kinds.len() {
            kinds.push(Default::default());
        }
        kinds[place].0.push(rail);
    }
    for (rail, kind) in acceptor.iter().enumerate() {
        if let Some(place) = places.get(kind.as_str()) {
            kinds[*place].1.push(rail);
        }
    }
    let mut links = (vec![0; initiator.len()], vec![0; acceptor.len()]);
    let mut all = Vec::new();
    for (ours, theirs) in kinds {
        for (a, b) in pairs(ours.len(), theirs.len()).into_iter().map(|(a, b)| (ours[a], theirs[b])) {
            // A peer that announces many rails must not take all descriptors of a local one. Both
            // sides count in the same order, so they leave out the same pairs.
            if links.0[a] < LINKS_PER_RAIL_MAX && links.1[b] < LINKS_PER_RAIL_MAX {
                (links.0[a], links.1[b]) = (links.0[a] + 1, links.1[b] + 1);
                all.push((a, b));
            }
        }
    }
    all
}

impl Machine {
    /// Determines the links after both sides have sent their hello. The initiator offers its ends.
    pub(super) fn make_links(&mut self, key: PeerKey) {
        let (now, ours) = (self.now, self.hello.rails.clone());
        let peer = &mut self.peers[key];
        let theirs = peer.hello.as_ref().map(|hello| hello.rails.clone()).unwrap_or_default();
        let is_initiator = peer.is_initiator;
        let mut chosen: Vec<(usize, usize)> = match is_initiator {
            true => pairs_of(&ours, &theirs),
            // The pairing depends on the order of its arguments, so both sides pass the initiator
            // first.
            false => pairs_of(&theirs, &ours).into_iter().map(|(a, b)| (b, a)).collect(),
        };
        if chosen.is_empty() {
            self.send(key, Frame::Goodbye);
            let theirs = theirs.into_iter().map(Into::into).collect();
            self.lose_peer(key, LostReason::NoCommonRail { theirs, ours }, true);
            return;
        }
        // Messages go over the first one that has room.
        chosen.sort_by_key(|(rail, _)| self.rails[*rail].scope());
        let settings: Vec<LinkSettings> = chosen.iter().map(|(rail, _)| self.rail_settings(*rail)).collect();
        let within_host = settings.iter().filter(|link| link.scope == Scope::Host).count();
        let peer = &mut self.peers[key];
        peer.links = Links::new(chosen, now);
        if within_host > 0 {
            // The sort has put the links over the network behind those within the host.
            peer.links.hold_back(within_host..settings.len());
        }
        peer.transfers = Transfers::new(settings);
        // At once: a first message need not wait for a timer.
        self.run_link_timers(key);
    }

    /// Connects the links that are not used as long as those within the host are sufficient.
    pub(super) fn need_all_links(&mut self, key: PeerKey) {
        let now = self.now;
        if self.peers[key].links.need_all(now) {
            self.touch(key);
        }
    }

    fn rail_settings(&self, rail: usize) -> LinkSettings {
        let properties = self.rails[rail].properties();
        // Shares follow the rates. A rail without a known rate is used only if no other is.
        let weight = u32::try_from(properties.rate_bps / 1_000_000).unwrap_or(u32::MAX);
        // The rest of the window is left to messages and atomics.
        let window = properties.window.saturating_sub(RESERVED).max(1);
        LinkSettings { id: NO_LINK, limits: properties.limits, window, weight, scope: properties.scope }
    }

    /// Runs the timers of a peer's links.
    pub(super) fn run_link_timers(&mut self, key: PeerKey) {
        let (now, times) = (self.now, self.tuning.link_times());
        let peer = &mut self.peers[key];
        let is_initiator = peer.is_initiator;
        for index in 0..peer.links.len() {
            // The reset that one link needs may have been one too many: the peer is lost then.
            let Some(link) = self.peer(key).map(|peer| &peer.links[index]) else { return };
            let (rail, due) = (link.rail(), link.due(now, is_initiator, &times));
            match due {
                // A frame or a completion comes first.
                Due::Nothing => {}
                Due::Offer => self.offer_link(key, index),
                Due::Drained => self.drained(key, index),
                Due::Reset => self.reset_because_of(key, rail),
                Due::Fail(why) => {
                    let reason = self.hangs(rail, why);
                    self.fail_link(key, index, &reason);
                }
                Due::Look => self.tell_to_look(key, rail),
            }
        }
    }

    fn hangs(&self, rail: usize, cause: &str) -> RailError {
        let operation = format!("link over {}", self.rails[rail].properties().name);
        RailError::new(
            operation,
            cause,
            "check that the rail's packets pass: VLAN, firewall, and PFC on the path",
        )
    }

    fn offer_link(&mut self, key: PeerKey, index: usize) {
        let links = &mut self.peers[key].links;
        // It is offered when the reset is done. A dead rail has no link that is due.
        if !self.rails[links[index].rail()].is_usable() {
            return;
        }
        let id = links.next_id();
        self.open_end(key, index, id, None);
    }

    /// Requests this side's end of a link.
    fn open_end(&mut self, key: PeerKey, index: usize, id: LinkId, peer_end: Option<Vec<u8>>) {
        // Before `open` gives the link another id.
        self.remember_link(key, index);
        let peer = &mut self.peers[key];
        // A peer that never reports its losses would make this list grow without limit.
        if peer.links.past() >= PAST_MAX {
            let why = LostReason::Violation("it does not report the loss of its links");
            self.lose_peer(key, why, false);
            return;
        }
        // Before the driver gets the work: what it reports is compared with this id.
        peer.links.open(index, id);
        let rail = peer.links[index].rail();
        self.openings.push(Opening { rail, peer: key, index, id, peer_end });
    }

    /// Returns the next end of a link to create, unless one was created a moment ago.
    pub(super) fn next_opening(&mut self) -> Option<Opening> {
        let peers = &self.peers;
        // The peer may be lost, or the link may have failed, since the end was requested.
        let is_wanted = |opening: &Opening| {
            peers.get(opening.peer).is_some_and(|peer| peer.links[opening.index].is_opening(opening.id))
        };
        self.openings.take(self.now, is_wanted)
    }

    /// Handles the creation of this side's end: sends its address to the peer. If the peer offered
    /// the link, connects the end.
    pub fn handle_opened(&mut self, opening: Opening, opened: Result<(LinkKey, Vec<u8>), RailError>) {
        let Opening { rail, peer: key, index, id, peer_end } = opening;
        self.touch(key);
        let is_wanted = self.peer(key).is_some_and(|peer| peer.links[index].is_opening(id));
        match opened {
            // The link has failed since the end was requested.
            Ok((link, _)) if !is_wanted => self.control.push_back(Control::CloseLink { rail, link }),
            Ok((link, address)) => {
                let end = LinkEnd { rail, link, peer: key, index };
                self.opened(end, address);
                if let Some(peer_end) = peer_end {
                    self.connect_end(key, index, peer_end);
                }
            }
            // It is retried by the time at which it has failed.
            Err(_) if !is_wanted => {}
            Err(error) => {
                let retry_at = self.now + self.tuning.cool_down;
                self.peers[key].links[index].not_opened(retry_at);
                // Links that were held back may have to replace this one.
                self.need_all_links(key);
                // If the peer offered the link, it needs the reason; otherwise only the local user
                // does.
                match peer_end {
                    None => self.report_peer(key, PeerChange::Note(error)),
                    Some(_) => self.refuse_rail(key, id, &error.to_string()),
                }
            }
        }
    }

    fn opened(&mut self, end: LinkEnd, address: Vec<u8>) {
        let (now, LinkEnd { rail, link: link_key, peer: key, index }) = (self.now, end);
        self.rails[rail].add_link(link_key, key, index);
        // A reset after this moment raises the number, and has then ended this link.
        let generation = self.rails[rail].generation();
        // A new mark for each connection: a message of the last one may still be in a queue of the card.
        let own_mark = self.marks.give(end, &mut self.names);
        let peer = &mut self.peers[key];
        let link = &mut peer.links[index];
        link.opened(MadeEnd { key: link_key, generation, own_mark }, now);
        let (id, from, to) = (link.id(), rail as u16, link.peer_rail() as u16);
        self.send(key, Frame::Link(LinkOffer { link: id, from, to, address }));
    }

    /// Remembers a link that is about to be replaced: operations of the peer on it may still land.
    fn remember_link(&mut self, key: PeerKey, index: usize) {
        let peer = &mut self.peers[key];
        let rails = &self.rails;
        peer.links.forget_ended(|rail| rails[rail].generation());
        let rail = peer.links[index].rail();
        // Closing its end has stopped everything otherwise.
        if !rails[rail].properties().links_end_alone {
            peer.links.remember(index);
        }
    }

    /// Handles the peer's end of a link: an offer, or the answer to one.
    pub(super) fn on_link_offer(&mut self, key: PeerKey, offer: LinkOffer) {
        let peer = &mut self.peers[key];
        let pair = (usize::from(offer.to), usize::from(offer.from));
        let is_answer = peer.is_initiator;
        // A peer may name rails that do not exist.
        let Some(index) = peer.links.between(pair) else {
            self.refuse_rail(key, offer.link, "no such rail");
            return;
        };
        let phase = peer.links[index].phase();
        if is_answer {
            // The answer to an offer that was withdrawn meanwhile is ignored.
            if phase == Phase::Offered && peer.links[index].id() == offer.link {
                self.connect_end(key, index, offer.address);
            }
        } else {
            // With an id that recurs, frames about one link would apply to another.
            if !peer.links.is_new_id(offer.link) {
                let why = LostReason::Violation("it offered a link with an id that it used before");
                return self.lose_peer(key, why, false);
            }
            // Operations of the last link must be back first. The peer tries again.
            let is_free = matches!(phase, Phase::Down { .. }) && !self.rails[pair.0].is_resetting();
            if !is_free {
                self.refuse_rail(key, offer.link, IN_USE);
                return;
            }
            self.open_end(key, index, offer.link, Some(offer.address));
        }
    }

    fn refuse_rail(&mut self, key: PeerKey, link: LinkId, reason: &str) {
        // No end was made here, so nothing of this side can be in flight over it.
        self.send(key, Frame::LinkLost { link, is_quiet: true, reason: reason.to_owned() });
    }

    fn connect_end(&mut self, key: PeerKey, index: usize, peer_end: Vec<u8>) {
        let peer = &mut self.peers[key];
        let link = &mut peer.links[index];
        let link_key = link.connect();
        let end = LinkEnd { rail: link.rail(), link: link_key, peer: key, index };
        self.control.push_back(Control::Connect { end, peer_end });
    }

    /// Handles the connection of this side's end. The peer may post from now on.
    pub fn handle_connected(&mut self, end: LinkEnd, connected: Result<(), RailError>) {
        let (now, LinkEnd { rail, link: link_key, peer: key, index }) = (self.now, end);
        self.touch(key);
        let link = self.peer(key).map(|peer| &peer.links[index]).filter(|link| link.key() == Some(link_key));
        // The link may have failed meanwhile, and is closed then. The local error is reported all
        // the same: it says more than the peer's frame about its end.
        if !link.is_some_and(|link| matches!(link.phase(), Phase::Connecting { .. })) {
            if let Err(error) = connected {
                self.report_peer(key, PeerChange::Note(error));
            }
            return;
        }
        if let Err(error) = connected {
            self.fail_link(key, index, &error);
            return;
        }
        // Before `LinkReady`: the peer may use the names as soon as it gets that frame.
        self.name_counters(key, index);
        let peer = &mut self.peers[key];
        let link = &mut peer.links[index];
        let (theirs, id, mark) = (link.connected(now), link.id(), link.own_mark());
        // Of this side's rail: it decides what the peer has to send with its operations.
        let Properties { immediates_name_link, keys_are_bound, .. } = *self.rails[rail].properties();
        let (needs_names, binds_keys) = (!immediates_name_link, keys_are_bound);
        self.send(key, Frame::LinkReady { link: id, mark, needs_names, binds_keys });
        self.bind_keys_to(key, index);
        if let Some(theirs) = theirs {
            self.on_link_ready(key, id, theirs);
        }
    }

    /// Handles the connection of the peer's end. This side may post from now on.
    pub(super) fn on_link_ready(&mut self, key: PeerKey, link: LinkId, theirs: Expected) {
        let now = self.now;
        let peer = &mut self.peers[key];
        // This side's end has failed while the frame was on its way.
        let Some(index) = peer.links.named(link) else { return };
        let rail = peer.links[index].rail();
        // If this side's end is not connected yet, `handle_connected` comes back here.
        if !peer.links[index].peer_is_ready(theirs, now) {
            return;
        }
        peer.transfers.restore(index, link);
        // The reset ends the link again, and waits for what is in flight.
        if self.rails[rail].is_resetting() {
            peer.transfers.pause(index);
        }
        self.wake_pages(key);
        self.tell_rails(key);
    }

    pub(super) fn tell_rails(&mut self, key: PeerKey) {
        let peer = &mut self.peers[key];
        let ready = peer.links.iter().filter(|link| link.phase() == Phase::Ready);
        let rails: Vec<usize> = ready.map(|link| link.rail()).collect();
        // It stays set: after the first link, messages no longer wait for one that is being
        // connected.
        peer.is_up |= !rails.is_empty();
        let names = rails.into_iter().map(|rail| self.rails[rail].properties().name.clone()).collect();
        self.report_peer(key, PeerChange::Rails(names));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rails_of_a_kind_go_together_and_both_sides_agree() {
        let kinds = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let (a, b) = (kinds(&["v", "tcp", "v"]), kinds(&["efa", "v", "tcp"]));
        assert_eq!(pairs_of(&a, &b), [(0, 1), (2, 1), (1, 2)]);
        assert!(pairs_of(&a, &kinds(&["efa"])).is_empty());
    }

    #[test]
    fn a_rail_has_no_more_links_than_its_limit_whatever_the_peer_announces() {
        let of_kind = |kind: &str, count| vec![kind.to_owned(); count];
        for (ours, theirs) in [(1, 64), (64, 1)] {
            let pairs = pairs_of(&of_kind("tcp", ours), &of_kind("tcp", theirs));
            assert_eq!(pairs.len(), LINKS_PER_RAIL_MAX, "{ours} to {theirs}");
        }
        assert_eq!(pairs_of(&of_kind("tcp", 32), &of_kind("tcp", 32)).len(), 32);
    }

    #[test]
    fn thousands_of_kinds_are_paired_in_a_moment() {
        let kinds: Vec<String> = (0..60_000).map(|kind| kind.to_string()).collect();
        assert_eq!(pairs_of(&kinds, &kinds).len(), kinds.len());
    }
}
