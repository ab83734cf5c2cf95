//! Links that come and go, cards that are reset, hosts that are restarted, and memory that is taken
//! back.

use farreach_rail::{EndedKeys, LinkKey, Rail, RemoteSegment, WorkRequest};
use farreach_sim::request::post;

use super::host::{Grant, PLACE_LEN, Revoked};
use super::{Asked, Link, Place, State, Storm, What, byte_of};
use crate::keys::take_back;

/// The time after which a work request is given up. Only a dead link takes this long.
const PATIENCE_NS: u64 = 80_000_000;

impl Storm {
    /// Restarts killed hosts, and runs resets that are due.
    pub(super) fn look_after(&mut self, host: usize, is_restless: bool) {
        if self.network.is_killed(host as u32) {
            self.restart(host);
            return;
        }
        if self.network.is_stopped(host as u32) {
            return;
        }
        for rail in 0..self.kinds.len() {
            let is_due = self.hosts[host].rails[rail].resets_at_ns.is_some_and(|at| at <= self.network.now());
            if is_due || (is_restless && self.chance.once_in(500)) {
                self.reset(host, rail);
            }
            if self.hosts[host].rails[rail].is_used_up() || (is_restless && self.chance.once_in(100)) {
                self.renew_grant(host, rail);
            }
        }
    }

    fn restart(&mut self, host: usize) {
        for rail in 0..self.kinds.len() {
            let place = self.hosts[host].rails[rail].place;
            self.fail_links_of(place);
            self.forget_requests(place, State::Gone);
            self.revoked.retain(|revoked| revoked.owner != place);
        }
        // Everything that it had is gone.
        let fresh = self.start_host(host);
        self.hosts[host] = fresh;
    }

    /// Closes a link on both sides after a failure. If closing gives nothing back, a reset will.
    pub(super) fn fail_link(&mut self, link: usize) {
        if !std::mem::take(&mut self.links[link].is_up) {
            return;
        }
        for side in 0..2 {
            let (place, key) = self.links[link].ends[side];
            if !self.lives(place) {
                continue;
            }
            let later_ns = self.network.now() + self.chance.below(2_000_000) as u64;
            let rail = &mut self.hosts[place.host].rails[place.rail];
            rail.rail.close_link(key);
            let is_waiting = self.asked[self.oldest..]
                .iter()
                .any(|asked| asked.state == State::InFlight && (asked.link, asked.side) == (link, side));
            if is_waiting && !self.kinds[place.rail].properties.links_end_alone {
                rail.resets_at_ns.get_or_insert(later_ns);
            }
        }
    }

    fn fail_links_of(&mut self, place: Place) {
        for link in 0..self.links.len() {
            if self.links[link].ends.iter().any(|(end, _)| *end == place) {
                self.fail_link(link);
            }
        }
    }

    pub(super) fn reset(&mut self, host: usize, rail: usize) {
        let place = self.hosts[host].rails[rail].place;
        self.fail_links_of(place);
        self.hosts[host].rails[rail].resets_at_ns = None;
        if self.hosts[host].rails[rail].rail.reset().is_err() && !self.network.is_killed(host as u32) {
            // Its memory is not proven to be free, and is never given back.
            self.forget_requests(place, State::Lost);
            let fresh = self.start_rail(host, rail);
            let lost = std::mem::replace(&mut self.hosts[host].rails[rail], fresh);
            let leaked = self.revoked.extract_if(.., |revoked| revoked.owner == place);
            leaked.for_each(|revoked| std::mem::forget(revoked.exposed));
            lost.grant.exposed.into_iter().for_each(std::mem::forget);
        }
    }

    /// Ends a grant, and makes another one.
    pub(super) fn renew_grant(&mut self, host: usize, rail: usize) {
        if self.network.is_killed(host as u32) {
            return;
        }
        let there = &mut self.hosts[host].rails[rail];
        let fresh = Grant::new(&mut there.rail, &mut self.next_grant);
        let owner = there.place;
        let old = there.replace_grant(fresh);
        let Some(exposed) = old.exposed else { return };
        if there.rail.end_key(old.key.id).is_err() {
            std::mem::forget(exposed);
            return;
        }
        there.stale = Some(Grant { exposed: None, ..old });
        self.revoked.push(Revoked { owner, exposed });
        // A reset is the proof here, and this moment is as good as any.
        if self.kinds[rail].properties.ended_keys == EndedKeys::StopNew {
            self.reset(host, rail);
            if self.lives(owner) && !self.network.is_killed(host as u32) {
                let proven = self.revoked.extract_if(.., |revoked| revoked.owner == owner);
                let proven: Vec<Revoked> = proven.collect();
                proven.into_iter().for_each(|revoked| self.give_back(revoked));
            }
        }
    }

    /// Takes back memory of ended keys: it is proven to be free at once if an ended key stops
    /// everything.
    pub(super) fn take_back_what_is_proven(&mut self) {
        let mut waiting = std::mem::take(&mut self.revoked);
        for revoked in waiting.drain(..) {
            match self.kinds[revoked.owner.rail].properties.ended_keys {
                EndedKeys::StopAll => self.give_back(revoked),
                EndedKeys::StopNew => self.revoked.push(revoked),
            }
        }
    }

    fn give_back(&mut self, revoked: Revoked) {
        let mut slice = take_back(revoked.exposed);
        slice.fill(0x55);
        self.given_back.push(slice);
    }

    /// Connects two hosts that are not connected.
    pub(super) fn link_up(&mut self) {
        let (one, other) = (self.chance.below(self.hosts.len()), self.chance.below(self.hosts.len()));
        let rail = self.chance.below(self.kinds.len());
        if one == other || [one, other].iter().any(|host| self.network.is_killed(*host as u32)) {
            return;
        }
        let places = [one, other].map(|host| self.hosts[host].rails[rail].place);
        let are_linked = |link: &Link| {
            link.is_up && places.iter().all(|place| link.ends.iter().any(|(end, _)| end == place))
        };
        // Two links between the same two cards are rare, but allowed.
        if self.links.iter().any(are_linked) && !self.chance.once_in(100) {
            return;
        }
        self.link(one, other, rail);
    }

    pub(super) fn link(&mut self, one: usize, other: usize, rail: usize) {
        let opened = [one, other].map(|host| self.hosts[host].rails[rail].rail.open_link());
        let [Ok((key, end)), Ok((other_key, other_end))] = opened else { return };
        let places = [one, other].map(|host| self.hosts[host].rails[rail].place);
        let connects: [(usize, LinkKey, Vec<u8>); 2] = [(one, key, other_end), (other, other_key, end)];
        let connected = connects
            .map(|(host, key, peer_end)| self.hosts[host].rails[rail].rail.connect(key, &peer_end).is_ok());
        let is_up = connected == [true; 2];
        self.links.push(Link { ends: [(places[0], key), (places[1], other_key)], is_up });
    }

    pub(super) fn give_up_what_hangs(&mut self) {
        let now_ns = self.network.now();
        while self.asked.get(self.oldest).is_some_and(|asked| asked.state != State::InFlight) {
            self.oldest += 1;
        }
        let hanging: Vec<usize> = self.asked[self.oldest..]
            .iter()
            .filter(|asked| asked.state == State::InFlight && asked.at_ns + PATIENCE_NS < now_ns)
            .map(|asked| asked.link)
            .collect();
        hanging.into_iter().for_each(|link| self.fail_link(link));
    }

    /// Writes over a link, to a grant that has room. Returns the tag.
    pub(super) fn write_immediate(&mut self, link: usize) -> usize {
        let [(from, link_key), (to, _)] = self.links[link].ends;
        let there = &mut self.hosts[to.host].rails[to.rail];
        let place = there.take_place().expect("the grant is new");
        let (grant, key) = (there.grant.id, there.grant.key);
        let tag = self.asked.len() as u32;
        let sender = &mut self.hosts[from.host].rails[from.rail];
        let mut slice = sender.take_slice(false).expect("all slices came back");
        slice.fill(byte_of(tag));
        let address = key.address + (place * PLACE_LEN) as u64;
        let target = RemoteSegment { address, key: key.key, len: PLACE_LEN as u64 };
        let write = (WorkRequest::Write { target, immediate: Some(tag) }, slice.into());
        post(&mut sender.rail, link_key, tag.into(), write).expect("there are no faults any more");
        let what = What::Write { has_immediate: true };
        let (at_ns, state) = (self.network.now(), State::InFlight);
        self.asked.push(Asked {
            what,
            link,
            side: 0,
            grant,
            place,
            is_stale: false,
            at_ns,
            state,
            is_told: false,
        });
        tag as usize
    }
}
