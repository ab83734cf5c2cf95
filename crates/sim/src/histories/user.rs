//! Requests of users, one after the other, as the seed determines.

use farreach_proto::ids::PublicationId;
use farreach_proto::machine::TransferFault;
use farreach_proto::rights::Rights;

use super::party::Host;
use super::thing::{Grant, Hold};
use super::world::{What, World, tell};
use crate::answers::Awaited;
use farreach_proto::time::Time;

/// The maximum number of each that one end of a connection has at a time.
const GRANTS_MAX: usize = 4;
const COUNTERS_MAX: usize = 3;

impl World {
    /// Makes a request of some user, and schedules the next one.
    pub(super) fn wish(&mut self) {
        if !self.is_storm {
            return;
        }
        let gap = self.chance.below(2 * self.scenario.wish_gap_ns);
        self.schedule(self.now + 1 + gap, What::Wish);
        let now = self.now;
        let is_awake = |host: &Host| host.is_alive() && !host.is_stopped(now);
        let awake: Vec<usize> = (0..self.hosts.len()).filter(|host| is_awake(&self.hosts[*host])).collect();
        let Some(host) = self.chance.one_of(&awake) else { return };
        // Now and then several at once.
        for _ in 0..=self.chance.below(6).saturating_sub(3) {
            let wish = self.chance.weighted(&self.scenario.habits);
            self.fulfil(host, wish);
        }
        self.observe(host);
        let at = self.now + self.chance.below(self.scenario.poll_gap_ns);
        self.step_by(host, at);
    }

    /// Makes a request between a frame and the work on rails that follows from it. `opened`: the
    /// publication that the frame asks for.
    pub(super) fn wish_at_once(&mut self, connection: usize, end: usize, opened: Option<PublicationId>) {
        if !self.is_storm || !self.chance.once_in(if opened.is_some() { 2 } else { 24 }) {
            return;
        }
        let host = self.connections[connection].ends[end].host;
        // Users know what has happened.
        self.see(host);
        match opened {
            Some(id) => self.wish_withdraw_at_once(id, connection, end),
            None => {
                let wish = self.chance.weighted(&self.scenario.habits);
                self.fulfil(host, wish);
            }
        }
    }

    fn fulfil(&mut self, host: usize, wish: usize) {
        match wish {
            0 => self.wish_connect(host),
            1 => self.wish_grant(host),
            2 => self.wish_count(host),
            3 => self.wish_write(host),
            4 => self.wish_read(host),
            5 => self.wish_say(host),
            6 => self.wish_atomic(host),
            7 => self.wish_revoke(host),
            8 => self.wish_drop(host),
            9 => self.wish_close(host),
            10 => self.wish_abort(host),
            11 => self.wish_leave(host),
            13 => self.wish_publish(host),
            14 => self.wish_withdraw_from(host),
            15 => self.wish_withdraw(host),
            16 => self.wish_share(host),
            17 => self.wish_flush(host),
            _ => self.wish_take(host),
        }
    }

    /// Lets a user wait for something that the machine does not know.
    fn wish_watch(&mut self, host: usize) {
        let Some((connection, end)) = self.some_connection(host) else { return };
        let (now, key) = (self.now, self.connections[connection].ends[end].key());
        self.hosts[host].machine().watch(key, Time::from_nanos(now));
    }

    /// Returns one of a host's connections that can be used.
    pub(super) fn some_connection(&mut self, host: usize) -> Option<(usize, usize)> {
        let usable =
            |(connection, end): &(usize, usize)| self.connections[*connection].ends[*end].is_usable();
        let usable: Vec<_> = self.hosts[host].peers.iter().copied().filter(usable).collect();
        self.chance.one_of(&usable)
    }

    fn wish_connect(&mut self, from: usize) {
        let to = self.chance.index(self.hosts.len());
        if to == from || !self.hosts[to].is_alive() || self.hosts[to].is_stopped(self.now) {
            return;
        }
        if self.cut_until(from, to).or_else(|| self.cut_until(to, from)).is_some() {
            return;
        }
        let between = |ends: [usize; 2]| ends == [from, to] || ends == [to, from];
        let is_there = |connection: &&super::party::Connection| {
            let is_over = connection
                .ends
                .iter()
                .any(|end| end.lost_at.is_some() || end.killed_at.is_some() || end.has_left);
            between([connection.ends[0].host, connection.ends[1].host]) && !is_over
        };
        let there = self.connections.iter().filter(is_there).count();
        // Two connections are allowed, and rare.
        if there == 0 || (there == 1 && self.chance.once_in(12)) {
            self.connect(from, to);
        }
    }

    fn wish_grant(&mut self, host: usize) {
        let Some((connection, end)) = self.some_connection(host) else { return };
        let is_own =
            |grant: &&Grant| grant.connection == connection && grant.end == end && grant.is_granted();
        if self.grants.iter().filter(is_own).count() < GRANTS_MAX {
            let rights = match self.chance.below(8) {
                0 => Rights::READ,
                1 | 2 => Rights::ATOMIC,
                3 | 4 => Rights::READ | Rights::WRITE,
                _ => Rights::WRITE,
            };
            self.grant(connection, end, rights);
        }
    }

    fn wish_count(&mut self, host: usize) {
        self.wish_watch(host);
        let Some((connection, end)) = self.some_connection(host) else { return };
        let is_own = |count: &&super::thing::Count| {
            (count.connection, count.end) == (connection, end) && !count.is_closed
        };
        if self.counts.iter().filter(is_own).count() < COUNTERS_MAX {
            self.open_count(connection, end);
        }
    }

    fn wish_say(&mut self, host: usize) {
        let Some((connection, end)) = self.some_connection(host) else { return };
        for _ in 0..=self.chance.below(4) {
            self.say(connection, end);
        }
    }

    /// Revokes a grant, possibly one to a lost peer.
    fn wish_revoke(&mut self, host: usize) {
        if let Some(grant) = self.some_granted(host) {
            let patience = self.chance.below(2 * self.scenario.tuning.silence);
            self.revoke(grant, patience);
        }
    }

    pub(super) fn revoke(&mut self, grant: usize, patience: u64) {
        let (now, deadline) = (self.now, self.now + patience);
        let it = &mut self.grants[grant];
        let Hold::Granted(memory) = std::mem::replace(&mut it.hold, Hold::Over) else { return };
        let (host, id) = (it.host, it.id);
        let (op, answer) = self.hosts[host].answers.expect(Awaited::Revoked);
        it.is_revoked = true;
        it.hold = Hold::Revoking { memory: std::sync::Arc::downgrade(&memory), answer, since: now, deadline };
        // The user's handle must be gone before the engine is asked.
        drop(memory);
        tell!(self, "revoke: grant, host, deadline", grant, host, deadline);
        self.hosts[host].machine().revoke(Some(op), id, Time::from_nanos(deadline), Time::from_nanos(now));
    }

    fn wish_drop(&mut self, host: usize) {
        if let Some(grant) = self.some_granted(host) {
            let now = self.now;
            let it = &mut self.grants[grant];
            let Hold::Granted(memory) = std::mem::replace(&mut it.hold, Hold::Over) else { return };
            it.is_revoked = true;
            it.hold = Hold::Dropped(std::sync::Arc::downgrade(&memory));
            let id = it.id;
            drop(memory);
            tell!(self, "drop: grant, host", grant, host);
            self.hosts[host].machine().revoke(None, id, Time::NEVER, Time::from_nanos(now));
        }
    }

    fn some_granted(&mut self, host: usize) -> Option<usize> {
        let is_own = |grant: &Grant| grant.host == host && grant.is_granted();
        let own: Vec<usize> = (0..self.grants.len()).filter(|grant| is_own(&self.grants[*grant])).collect();
        self.chance.one_of(&own)
    }

    fn wish_close(&mut self, host: usize) {
        let is_own =
            |count: &super::thing::Count| count.host == host && !count.is_closed && count.shared.is_none();
        let own: Vec<usize> = (0..self.counts.len()).filter(|count| is_own(&self.counts[*count])).collect();
        if let Some(count) = self.chance.one_of(&own) {
            self.close_count(count);
        }
    }

    fn wish_abort(&mut self, host: usize) {
        let own = self.transfers.iter().filter(|it| it.host == host).map(|it| it.number);
        let own: Vec<u64> = own.collect();
        if let Some(number) = self.chance.one_of(&own) {
            self.give_up(number);
        }
    }

    /// Aborts a transfer that is still in progress.
    pub(super) fn give_up(&mut self, number: u64) {
        let now = self.now;
        let Some(transfer) = self.transfers.iter_mut().find(|it| it.number == number) else { return };
        let (host, op, connection, end) = (transfer.host, transfer.op, transfer.connection, transfer.end);
        if self.hosts[host].is_stopped(now) {
            return;
        }
        transfer.is_given_up = true;
        let key = self.connections[connection].ends[end].key();
        tell!(self, "give up: transfer", number);
        self.hosts[host].machine().abort_op(key, op, &TransferFault::Aborted, Time::from_nanos(now));
        self.observe(host);
    }

    fn wish_leave(&mut self, host: usize) {
        if let Some((connection, end)) = self.some_connection(host) {
            self.leave(connection, end);
        }
    }

    pub(super) fn leave(&mut self, connection: usize, end: usize) {
        let now = self.now;
        let there = &mut self.connections[connection].ends[end];
        there.has_left = true;
        let (host, key) = (there.host, there.key());
        self.part_from_published(connection, end);
        tell!(self, "leave: connection, end", connection, end);
        self.count("leaves", 1);
        self.hosts[host].machine().leave(key, Time::from_nanos(now));
    }

    fn wish_take(&mut self, host: usize) {
        for (connection, end) in self.hosts[host].peers.clone() {
            self.hear(connection, end);
        }
    }
}
