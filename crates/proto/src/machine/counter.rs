//! Counters of this side, and their announcements to peers.

use super::id_map::IdMap;
use super::peer::{Link, Phase};
use super::{Event, Machine, PeerChange, PeerKey};
use crate::counter::{AddError, CounterId, Counters, Immediate, LinkId, Outcome};
use crate::lost::LostReason;
use crate::rail::LinkKey;
use crate::time::Time;
use crate::wire::Frame;

/// `Settle` frames that a peer may send about counters that were closed meanwhile.
const SETTLES_SPARE: usize = 1024;

/// The counters of this side, with the peer that raises each.
#[derive(Debug, Default)]
pub(super) struct CounterDesk {
    counters: Counters,
    owners: IdMap<CounterId, PeerKey>,
}

impl CounterDesk {
    pub(super) fn settle(&mut self, link: LinkId, counter: CounterId) -> Option<u64> {
        self.counters.settle(link, counter)
    }

    /// Lets the peer add pages once, for one of so many lost links.
    pub(super) fn permit_add(&mut self, counter: CounterId, lost: u64) {
        self.counters.permit_add(counter, lost);
    }

    /// Returns `true` if pages of a link were counted, or can be by a name.
    pub(super) fn has_heard_of(&self, link: LinkId, counter: CounterId) -> bool {
        self.counters.has_heard_of(link, counter)
    }

    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (CounterId, PeerKey)> {
        self.owners.iter().map(|(counter, key)| (*counter, *key))
    }

    /// Checks that each counter with a peer is open.
    pub(super) fn check(&self) {
        for (counter, key) in self.iter() {
            assert!(self.counters.reached(counter).is_some(), "counters: {counter:?} of {key:?} is closed");
        }
        self.counters.check();
    }

    /// Returns `true` if this peer may raise the counter.
    pub(super) fn is_of(&self, counter: CounterId, key: PeerKey) -> bool {
        self.owners.get(&counter) == Some(&key)
    }
}

impl Machine {
    /// Opens a counter that this peer raises. Returns `None` if there are too many, or the peer is
    /// lost.
    pub fn open_counter(&mut self, key: PeerKey, now: Time) -> Option<CounterId> {
        self.now = now;
        let peer = self.peers.get(key);
        let peer = peer.filter(|peer| !peer.is_lost())?;
        // The peer would end the connection, with everything else on it.
        if peer.hello.as_ref().is_some_and(|hello| peer.own_counters.len() >= hello.counters as usize) {
            return None;
        }
        // Links that are down are included, because they may be connected later.
        let has_names = |link: &&Link| !self.rails[link.rail()].properties().immediates_name_link;
        let names_max = peer.links.iter().filter(has_names).count();
        let counter = self.counters.counters.open_with_names(names_max)?;
        self.counters.owners.insert(counter, key);
        let peer = &mut self.peers[key];
        peer.own_counters.push(counter);
        let links = peer.links.len();
        let names = (0..links).filter_map(|index| self.name_on(key, index, counter)).collect();
        self.send(key, Frame::Counter { counter, names });
        Some(counter)
    }

    /// Closes a counter.
    pub fn close_counter(&mut self, counter: CounterId, now: Time) {
        self.now = now;
        // Its user may close it twice, or a shared counter may have closed it with its peer.
        let Some(key) = self.counters.owners.remove(&counter) else { return };
        self.counters.counters.close(counter);
        // The counters of a peer that is gone stay until their user closes them.
        let Some(peer) = self.peer(key) else { return };
        peer.own_counters.retain(|other| *other != counter);
        if !peer.is_lost() {
            self.send(key, Frame::CounterClosed { counter });
        }
    }

    /// Names all counters on a link that is about to be ready.
    pub(super) fn name_counters(&mut self, key: PeerKey, index: usize) {
        let peer = &mut self.peers[key];
        for counter in peer.own_counters.clone() {
            if let Some(name) = self.name_on(key, index, counter) {
                self.send(key, Frame::Counter { counter, names: vec![name] });
            }
        }
    }

    /// Names a counter on a link, if the rail's immediates do not identify their link.
    fn name_on(&mut self, key: PeerKey, index: usize, counter: CounterId) -> Option<(LinkId, CounterId)> {
        let link = &self.peers[key].links[index];
        // It has no end yet, or one that is closing. It gets its name when it is connected.
        if matches!(link.phase(), Phase::Down { .. } | Phase::Opening | Phase::Draining { .. }) {
            return None;
        }
        let (id, rail) = (link.id(), link.rail());
        if self.rails[rail].properties().immediates_name_link {
            return None;
        }
        let current: Vec<LinkId> = self.peers[key].links.iter().map(|link| link.id()).collect();
        // An id of a lost link never recurs, and nothing more of that link lands.
        self.counters.counters.retain_names(counter, |link| current.contains(&link));
        Some((id, self.counters.counters.name(counter, id)?))
    }

    /// Handles an immediate of a peer.
    pub fn handle_immediate(&mut self, rail: usize, link: Option<LinkKey>, bits: u32) {
        let immediate = Immediate::from_bits(bits);
        let raised = match link {
            None => self.counters.counters.arrive_named(immediate),
            Some(link) => {
                // The immediate was on its way while the link ended.
                let Some((key, index)) = self.rails[rail].owner(link) else { return };
                let id = self.peers[key].links[index].id();
                // A peer must not raise a counter of another one.
                if !self.counters.is_of(immediate.counter, key) {
                    return;
                }
                self.counters.counters.arrive(id, immediate).map(|reached| (immediate.counter, reached))
            }
        };
        if let Some((counter, reached)) = raised {
            self.report_reached(counter, reached);
        }
    }

    pub(super) fn on_settle(&mut self, key: PeerKey, link: LinkId, counter: CounterId) {
        let peer = &mut self.peers[key];
        // An honest peer asks once for each counter and lost link.
        // One more for each link: pages without a counter are asked about, too.
        let most = (peer.own_counters.len() + 1) * (peer.links.len() + peer.links.past()) + SETTLES_SPARE;
        if peer.settles.len() >= most {
            let why = LostReason::Violation("it asks more often about lost links than it had links");
            return self.lose_peer(key, why, false);
        }
        self.answer_settle(key, link, counter);
    }

    pub(super) fn on_add(&mut self, key: PeerKey, counter: CounterId, pages: u64) {
        // It was closed while the frame was on its way, or was never this peer's to raise.
        if !self.counters.is_of(counter, key) {
            return;
        }
        let wrong = match self.counters.counters.add(counter, pages) {
            Ok(reached) => return self.report_reached(counter, reached),
            Err(AddError::Closed) => unreachable!("a counter with an owner is open"),
            Err(AddError::Unsettled) => {
                "it adds pages to a counter, and has lost no link that could have had them"
            }
            Err(AddError::TooMany) => "it adds more pages to a counter than can have been in flight",
        };
        self.lose_peer(key, LostReason::Violation(wrong), false);
    }

    pub(super) fn on_abort(&mut self, key: PeerKey, counter: CounterId) {
        if self.counters.is_of(counter, key) {
            self.report(Event::CounterEnded(counter, Outcome::Aborted));
        }
    }

    /// Ends the waits on all counters of a lost peer.
    pub(super) fn end_counters_of(&mut self, key: PeerKey) {
        let peer = &mut self.peers[key];
        let counters = peer.own_counters.clone();
        for counter in counters {
            // The counter stays, with its value: pages that have arrived are there.
            self.report(Event::CounterEnded(counter, Outcome::PeerLost));
        }
    }

    /// Handles a counter announced by the peer.
    pub(super) fn on_counter(&mut self, key: PeerKey, counter: CounterId, names: Vec<(LinkId, CounterId)>) {
        let budgets = self.tuning.budgets;
        let peer = &mut self.peers[key];
        if names.len() > peer.links.len() {
            let why = LostReason::Violation("it announced a counter with more names than there are links");
            return self.lose_peer(key, why, false);
        }
        // A later frame about a known counter has the names on new links.
        if !peer.counters.knows(counter) && peer.counters.len() >= budgets.counters as usize {
            return self.lose_peer(key, budgets.exceeded_counters(), false);
        }
        let links = &peer.links;
        peer.counters.learn(counter, names, |link| links.position(link).is_some());
        self.report_peer(key, PeerChange::Offered);
        // A transfer may be parked until the name of its counter comes.
        self.wake_pages(key);
    }

    pub(super) fn on_counter_closed(&mut self, key: PeerKey, counter: CounterId) {
        let peer = &mut self.peers[key];
        peer.counters.forget(counter);
        peer.transfers.forget(counter);
        // A transfer may have waited only for the reconciliation of its pages.
        self.collect_finished(key);
    }
}
