//! The invariants of a machine as a whole: what its tables say of each other.
//!
//! A table can keep its own order and still be wrong about another one: credits of an operation that no
//! card has, a peer with pages that nobody asks, a revocation that nothing wakes. A test finds such a
//! state in the step that has made it, and not when somebody has waited in vain for it.

use std::collections::{BTreeMap, BTreeSet};

use super::in_flight::{InFlight, Requested};
use super::peer::{Peer, Phase};
use super::timers::INTERVAL;
use super::{Machine, PeerKey};
use crate::ids::GrantId;
use crate::inflight::SlotId;
use crate::outbox::Posted;
use crate::priority::Priority;
use crate::time::Time;

/// The operations of one peer in flight.
type OfPeer<'a> = [(SlotId, &'a InFlight)];

impl Machine {
    /// Checks the invariants between the tables. The cost grows with everything that the machine keeps,
    /// so this is for tests: the simulation calls it after each step.
    ///
    /// The driver must have done all [control work](Self::poll_control), and have reported the result of
    /// each post.
    ///
    /// # Panics
    ///
    /// Panics if an invariant does not hold, and names it.
    #[doc(hidden)]
    pub fn check(&self) {
        let mut in_flight: BTreeMap<PeerKey, Vec<(SlotId, &InFlight)>> = BTreeMap::new();
        for (slot, it) in self.in_flight.iter() {
            assert!(self.peers.get(it.peer).is_some(), "slots: {slot:?} is of {:?}, which is gone", it.peer);
            in_flight.entry(it.peer).or_default().push((slot, it));
        }
        for (key, peer) in self.peers.iter_keys() {
            let of_peer = in_flight.get(&key).map_or(&[][..], Vec::as_slice);
            self.check_links(key, peer, of_peer);
            self.check_requests(key, peer, of_peer);
            self.check_uses(key, peer, of_peer);
            self.check_turns(key, peer);
            self.check_timers(key, peer);
            self.check_own(key, peer);
        }
        self.check_rails();
        self.check_deadlines();
        self.check_grants();
        self.check_counters();
        self.check_common_timer();
        self.confirmations.check();
        let are_all_lost = self.peers.iter().all(Peer::is_lost);
        assert!(self.closing.is_empty() || !are_all_lost, "closing: all peers are gone, and nobody was told");
    }

    /// Each link counts its slots, is known to its rail and by its mark, and gets pages exactly if it is
    /// ready.
    fn check_links(&self, key: PeerKey, peer: &Peer, in_flight: &OfPeer<'_>) {
        for (slot, it) in in_flight {
            assert!(it.link() < peer.links.len(), "slots: {slot:?} of {key:?} is of no link");
        }
        for (index, link) in peer.links.iter().enumerate() {
            let name = (key, index, link.phase());
            let rail = &self.rails[link.rail()];
            let slots = in_flight.iter().filter(|(_, it)| it.link() == index).count();
            assert_eq!(link.in_flight() as usize, slots, "credits: slots of {name:?}");
            let window = rail.properties().window;
            assert!(link.in_flight() <= window, "credits: more than {window} in flight on {name:?}");
            link.check(&name);
            let of_rail = link.key().map(|end| rail.owner(end));
            assert!(
                of_rail.is_none_or(|owner| owner == Some((key, index))),
                "rails: {of_rail:?} has {name:?}"
            );
            let is_usable = link.key().is_some() && !link.is_failing();
            let of_mark = self.marks.link(link.own_mark()).filter(|_| is_usable);
            let is_marked = of_mark.is_some_and(|end| (end.peer, end.index) == (key, index));
            assert_eq!(is_marked, is_usable, "marks: {of_mark:?} has the mark of {name:?}");
            let is_opening = self.openings.has(key, index, link.id());
            // A link that has failed meanwhile leaves its entry, which is not taken any more.
            assert!(is_opening || link.phase() != Phase::Opening, "openings: nothing opens {name:?}");
            if !peer.is_lost() {
                let posts_pages = peer.transfers.posts_over(index);
                assert_eq!(posts_pages, rail.is_ready(link).then_some(link.id()), "routes: {name:?}");
            }
        }
    }

    /// Each request that claims to be in flight has its slot, and each slot its request.
    fn check_requests(&self, key: PeerKey, peer: &Peer, in_flight: &OfPeer<'_>) {
        let mut pages: Vec<&Posted> = Vec::new();
        let (mut atomics, mut messages) = (BTreeSet::new(), 0);
        for (slot, it) in in_flight {
            match &it.what {
                Requested::Pages(posted) => {
                    assert_eq!(
                        posted.link(),
                        it.link(),
                        "slots: {slot:?} of {key:?} has pages of another link"
                    );
                    pages.push(posted);
                }
                Requested::Message(_) => messages += 1,
                Requested::Atomic(new, _) => {
                    assert_eq!(new.peer, key, "slots: {slot:?} has an atomic of another peer");
                    atomics.insert(slot.to_raw());
                }
                Requested::Answered => {
                    assert!(peer.is_lost(), "slots: {slot:?} of {key:?} is answered, and the peer is well");
                }
            }
        }
        peer.outgoing.check(key, messages);
        peer.incoming.check(key, self.tuning.messages);
        assert_eq!(peer.atomics.slots(), atomics, "slots: atomics of {key:?}");
        // The pages of a lost peer are not accounted any more: they are dropped with its outbox.
        if !peer.is_lost() {
            pages.extend(peer.links.iter().flat_map(|link| link.failed()));
            peer.transfers.check(key, &pages);
        }
    }

    /// Each grant that a transfer or an atomic uses is there, and counts its users.
    fn check_uses(&self, key: PeerKey, peer: &Peer, in_flight: &OfPeer<'_>) {
        if peer.is_lost() {
            return;
        }
        let mut uses: BTreeMap<GrantId, u32> = BTreeMap::new();
        for (_, transfer) in peer.transfers.iter() {
            for range in transfer.regions().as_slice() {
                *uses.entry(range.grant).or_default() += 1;
            }
        }
        for (_, it) in in_flight {
            if let Requested::Atomic(new, _) = &it.what {
                *uses.entry(new.grant).or_default() += 1;
            }
        }
        let may_be_unused = peer.may_land();
        peer.granted.check(key, &uses, (peer.has_unstopped, may_be_unused), peer.links.len());
    }

    /// A peer that has something to post is asked, unless the end of something in flight, or a link,
    /// asks it.
    fn check_turns(&self, key: PeerKey, peer: &Peer) {
        let turns = self.turns.times_queued(key);
        assert_eq!(turns, usize::from(peer.is_pending_sender), "turns: {key:?} among those with messages");
        if peer.is_lost() {
            return;
        }
        let has_work = peer.outgoing.has_work() || peer.atomics.are_waiting();
        assert!(
            !has_work || peer.is_pending_sender,
            "turns: {key:?} has messages or atomics, and is not asked"
        );
        for priority in Priority::ALL {
            let is_asked = self.turns.has_pages(key, priority);
            let must_post = peer.transfers.could_post(priority);
            assert!(is_asked || !must_post, "turns: {key:?} has {priority:?} pages, and is not asked");
        }
    }

    /// A peer is looked at again before anything of it is due.
    fn check_timers(&self, key: PeerKey, peer: &Peer) {
        let is_scheduled = self.timers.has(key, peer.due_at);
        assert_eq!(is_scheduled, peer.due_at != Time::NEVER, "timers: {key:?} at {}", peer.due_at);
        let rails = &self.rails;
        let times = self.tuning.link_times();
        let due = peer.next_due(self.now, &self.tuning, &times, |rail| rails[rail].must_be_polled());
        // What begins between two runs is looked at within a heartbeat.
        let soon = self.now.saturating_add(self.tuning.heartbeat.max(INTERVAL));
        assert!(
            peer.due_at <= due.max(soon),
            "timers: {key:?} is due at {due}, and asleep until {}",
            peer.due_at
        );
    }

    /// Grants, counters and questions of a peer have their entries.
    fn check_own(&self, key: PeerKey, peer: &Peer) {
        let revoking = self.grants.iter().filter(|(_, grant)| grant.peer() == key && grant.is_waited_for());
        assert_eq!(peer.revoking, revoking.count(), "grants: those of {key:?} that are being revoked");
        for grant in &peer.own_grants {
            let owner = self.grants.get(*grant).map(|grant| grant.peer());
            assert_eq!(owner, Some(key), "grants: the owner of {grant}");
        }
        for counter in &peer.own_counters {
            assert!(self.counters.is_of(*counter, key), "counters: {counter:?} of {key:?} is not its own");
        }
        if peer.is_lost() {
            assert!(peer.openings.is_empty() && peer.counter_openings.is_empty(), "openings of {key:?}");
            assert!(peer.outgoing.is_held(), "messages: {key:?} is lost, and some wait");
            return;
        }
        let is_answered_later =
            self.settling.contains(&key) || self.rails.iter().any(|rail| rail.is_resetting());
        assert!(peer.settles.is_empty() || is_answered_later, "settles: nothing answers those of {key:?}");
    }

    /// Rails, marks and openings name links that exist, and a rail counts what its links have in flight.
    fn check_rails(&self) {
        for (number, rail) in self.rails.iter().enumerate() {
            for (end, (key, index)) in rail.links() {
                let link = self.peers.get(key).map(|peer| &peer.links[index]);
                let is_it = link.is_some_and(|link| (link.rail(), link.key()) == (number, Some(end)));
                assert!(is_it, "rails: {end:?} of rail {number} is not link {index} of {key:?}");
            }
            let links = self.peers.iter().flat_map(|peer| peer.links.iter());
            let in_flight: u32 =
                links.filter(|link| link.rail() == number).map(|link| link.in_flight()).sum();
            let expected = if rail.death().is_none() { rail.in_flight() } else { 0 };
            assert_eq!(in_flight as usize, expected, "credits: the links of rail {number}");
        }
        for (mark, end) in self.marks.iter() {
            let link = self.peers.get(end.peer).map(|peer| &peer.links[end.index]);
            let is_it = link.is_some_and(|link| (link.own_mark(), link.key()) == (mark, Some(end.link)));
            assert!(is_it, "marks: {mark} is of a link of {:?} that has another one", end.peer);
        }
    }

    /// The table of deadlines has exactly those of the transfers, except for deadlines that have passed
    /// and have ended their transfers.
    fn check_deadlines(&self) {
        let mut count = 0;
        for (key, peer) in self.peers.iter_keys() {
            for (_, transfer) in peer.transfers.iter() {
                let Some(at) = transfer.deadline() else { continue };
                let is_there = self.deadlines.has(at, key, transfer.id());
                assert!(is_there || transfer.has_failed(), "deadlines: {:?} of {key:?}", transfer.id());
                count += usize::from(is_there);
            }
        }
        assert_eq!(self.deadlines.len(), count, "deadlines: some are of transfers that have ended");
    }

    /// Grants belong to peers that are there, and those of publications to both.
    fn check_grants(&self) {
        self.grants.check();
        for (id, grant) in self.grants.iter() {
            let key = grant.peer();
            let is_known = self.peers.get(key).is_some_and(|peer| peer.own_grants.contains(&id));
            assert!(is_known, "grants: {key:?} does not know of {id}");
            let Some(publication) = grant.publication() else { continue };
            let is_known = self.publications.grant_of(publication, key) == Some(id);
            assert!(is_known || grant.is_ending(), "publications: {publication} does not know of {id}");
        }
        for (publication, key, grant) in self.publications.iter_grants() {
            let it = self.grants.get(grant).map(|grant| (grant.peer(), grant.publication()));
            assert_eq!(it, Some((key, Some(publication))), "publications: {grant} of {publication}");
        }
        for ((key, _), bound) in &self.bound {
            assert!(self.peers.get(*key).is_some(), "bound keys: {bound:?} of {key:?}, which is gone");
        }
    }

    /// Counters belong to their peers, and those of shared counters to both.
    fn check_counters(&self) {
        self.counters.check();
        for (counter, key) in self.counters.iter() {
            // Counters of a peer that is gone stay until their user closes them.
            let is_known = self.peers.get(key).is_none_or(|peer| peer.own_counters.contains(&counter));
            assert!(is_known, "counters: {key:?} does not know of {counter:?}");
        }
        self.shared_counters.check();
        for (shared, key, counter) in self.shared_counters.iter_members() {
            assert!(self.counters.is_of(counter, key), "shared counters: {counter:?} of {shared}");
        }
    }

    /// Resets and revocations that wait are looked at again.
    fn check_common_timer(&self) {
        let is_any_resetting = self.rails.iter().any(|rail| rail.is_resetting());
        let waits = is_any_resetting || self.grants.are_revoking() || self.publications.are_awaited();
        assert!(
            !waits || self.timers.is_common_scheduled(),
            "timers: nothing looks at resets and revocations"
        );
    }
}
