//! Shared counters: each peer that opens one raises a counter of its own, which is [checked](super::check)
//! as any other.

use farreach_proto::access::Access;
use farreach_proto::counter::CounterId;
use farreach_proto::error::OpenError;
use farreach_proto::ids::SharedCounterId;

use super::publications::name_of;
use super::thing::Count;
use super::world::{World, broken, tell};
use crate::answers::{Answer, Awaited, Joined};
use farreach_proto::time::Time;

/// The maximum number of shared counters that a host has at a time.
const SHARED_MAX: usize = 2;

/// A counter that a host shares.
#[derive(Debug)]
pub(super) struct Shared {
    host: usize,
    id: SharedCounterId,
    /// The hosts that may open it; `None` if everybody may.
    permitted: Option<Vec<usize>>,
    is_open: bool,
}

/// A request of a peer to open a shared counter.
#[derive(Debug)]
pub(super) struct CounterOpening {
    host: usize,
    shared: usize,
    connection: usize,
    end: usize,
    /// Whether it must succeed, if nothing happens.
    is_due: bool,
    answer: Answer<Result<CounterId, OpenError>>,
}

impl World {
    /// Shares a counter, closes one, or opens that of another host.
    pub(super) fn wish_share(&mut self, host: usize) {
        let of = |world: &Self, host: usize| -> Vec<usize> {
            let is_of = |it: &usize| world.shared[*it].host == host && world.shared[*it].is_open;
            (0..world.shared.len()).filter(is_of).collect()
        };
        let own = of(self, host);
        match self.chance.below(8) {
            0 | 1 if own.len() < SHARED_MAX => self.share(host),
            2 => {
                if let Some(shared) = self.chance.one_of(&own) {
                    self.close_shared(shared);
                }
            }
            3 => {
                if let Some(shared) = self.chance.one_of(&own) {
                    self.admit_to_counter(shared);
                }
            }
            _ => {
                let Some((connection, end)) = self.some_connection(host) else { return };
                let theirs = of(self, self.connections[connection].ends[1 - end].host);
                if let Some(shared) = self.chance.one_of(&theirs) {
                    self.open_shared(shared, connection, end);
                }
            }
        }
    }

    fn share(&mut self, host: usize) {
        let mut permitted = None;
        if self.scenario.has_names && self.chance.once_in(2) {
            let hosts = 0..self.hosts.len();
            permitted = Some(hosts.filter(|_| self.chance.once_in(2)).collect::<Vec<usize>>());
        }
        let access = match &permitted {
            Some(hosts) => Access::only(hosts.iter().map(|host| name_of(*host))),
            None => Access::Anyone,
        };
        let id = self.hosts[host].machine().share_counter(access);
        tell!(self, "share: host, id", host, id.to_raw());
        self.count("shared counters", 1);
        self.shared.push(Shared { host, id, permitted, is_open: true });
    }

    fn admit_to_counter(&mut self, shared: usize) {
        let other = self.chance.index(self.hosts.len());
        let it = &mut self.shared[shared];
        let Some(hosts) = it.permitted.as_mut().filter(|hosts| !hosts.contains(&other)) else { return };
        hosts.push(other);
        let (host, id) = (it.host, it.id);
        tell!(self, "admit: shared counter, host", shared, other);
        self.hosts[host].machine().admit_to_counter(id, &name_of(other));
    }

    fn close_shared(&mut self, shared: usize) {
        let now = self.now;
        let it = &mut self.shared[shared];
        it.is_open = false;
        let (host, id) = (it.host, it.id);
        // Peers may have opened it that the user has not heard of.
        self.collect_joined(host);
        for count in self.counts.iter_mut().filter(|count| count.shared == Some(shared)) {
            count.is_closed = true;
            self.hosts[host].answers.remove_counter(count.id);
        }
        tell!(self, "close: shared counter", shared);
        self.hosts[host].machine().close_shared_counter(id, Time::from_nanos(now));
    }

    /// Closes all shared counters.
    pub(super) fn close_all_shared(&mut self) {
        for shared in 0..self.shared.len() {
            let host = self.shared[shared].host;
            if self.shared[shared].is_open && self.hosts[host].is_alive() {
                self.close_shared(shared);
                self.observe(host);
            }
        }
    }

    fn open_shared(&mut self, shared: usize, connection: usize, end: usize) {
        let (now, there) = (self.now, &self.connections[connection].ends[end]);
        let (host, key, id) = (there.host, there.key(), self.shared[shared].id);
        let (op, answer) = self.hosts[host].answers.expect(Awaited::CounterOpened);
        tell!(self, "open: shared counter, connection, end", shared, connection, end);
        let is_due = self.shared[shared].permitted.as_ref().is_none_or(|hosts| hosts.contains(&host));
        self.counter_openings.push(CounterOpening { host, shared, connection, end, is_due, answer });
        self.hosts[host].machine().open_shared_counter(op, key, id, Time::from_nanos(now));
    }

    /// Collects who has opened a shared counter, at the owner and at the peers.
    pub(super) fn collect_shared(&mut self, host: usize) {
        self.collect_joined(host);
        let mut place = 0;
        while place < self.counter_openings.len() {
            let it = &self.counter_openings[place];
            match if it.host == host { it.answer.take() } else { None } {
                None => place += 1,
                Some(answer) => {
                    let opening = self.counter_openings.remove(place);
                    self.check_counter_opened(&opening, answer);
                }
            }
        }
    }

    fn collect_joined(&mut self, host: usize) {
        self.flush(host);
        for Joined { shared: id, peer, counter, view } in std::mem::take(&mut self.hosts[host].answers.joined)
        {
            let (connection, end) = self.hosts[host].peers[peer.0 as usize];
            let is_it = |it: &Shared| (it.host, it.id) == (host, id) && it.is_open;
            let Some(shared) = self.shared.iter().position(is_it) else {
                broken!(self, "connection {connection} has opened a counter that is not shared")
            };
            let other = self.connections[connection].ends[1 - end].host;
            if self.shared[shared].permitted.as_ref().is_some_and(|hosts| !hosts.contains(&other)) {
                broken!(self, "host {other} has opened shared counter {shared}, and is not permitted");
            }
            let is_same = |count: &Count| {
                (count.connection, count.shared, count.is_closed) == (connection, Some(shared), false)
            };
            if self.counts.iter().any(is_same) {
                broken!(self, "connection {connection} has opened shared counter {shared} twice");
            }
            tell!(self, "joined: shared counter, connection, id", shared, connection, counter.to_raw());
            self.count("shared counters opened", 1);
            let count = Count::new((connection, end), host, counter, view);
            self.counts.push(Count { shared: Some(shared), ..count });
        }
    }

    /// Checks that a peer raises the counter that its owner has made for it.
    fn check_counter_opened(&mut self, opening: &CounterOpening, answer: Result<CounterId, OpenError>) {
        let CounterOpening { shared, connection, end, .. } = *opening;
        tell!(self, "opened: shared counter, connection, ok", shared, connection, answer.is_ok());
        let ends = &self.connections[connection].ends;
        if !self.is_honest(connection) {
            return;
        }
        match answer {
            Ok(id) => {
                let is_it = |count: &Count| {
                    (count.connection, count.end, count.shared) == (connection, 1 - end, Some(shared))
                        && count.id == id
                };
                let is_known = ends[1 - end].killed_at.is_some() || self.counts.iter().any(is_it);
                if !is_known {
                    broken!(self, "connection {connection} raises a counter that is not of {shared}");
                }
            }
            Err(OpenError::PeerLost { .. }) => {}
            Err(why) => {
                let it = &self.shared[shared];
                if opening.is_due && it.is_open && !ends.iter().any(|end| end.has_left) {
                    broken!(self, "connection {connection} cannot open shared counter {shared}: {why}");
                }
            }
        }
    }

    /// Forgets what a host shares, and what it has asked for: it was killed.
    pub(super) fn kill_shared(&mut self, host: usize) {
        self.counter_openings.retain(|opening| opening.host != host);
        self.shared.iter_mut().filter(|it| it.host == host).for_each(|it| it.is_open = false);
    }

    /// Returns a request to open a shared counter that is not answered, and should be.
    pub(super) fn unopened_counter(&self) -> Option<usize> {
        self.counter_openings.iter().map(|it| it.connection).find(|it| self.is_honest(*it))
    }
}
