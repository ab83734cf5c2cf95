//! The end of a history: faults stop, everything that was begun ends, living engines continue, and
//! nothing is left behind.

use farreach_proto::machine::pairs_of;
use farreach_proto::rights::Rights;

use super::content::WORN;
use super::party::{Connection, End};
use super::thing::{Change, Count, Grant, Hold, Transfer};
use super::world::{World, broken, tell};
use crate::SimCard;
use crate::answers::Awaited;
use farreach_proto::time::Time;

impl World {
    /// Ends all faults. Users only wait from now on.
    pub(super) fn calm(&mut self) {
        self.is_storm = false;
        tell!(self, "calm");
        // Where a rail does not separate peers, a liar can cause resets that cost all peers their
        // links, so nothing need settle while it is there.
        if !self.scenario.is_separated() {
            self.retire_liar();
        }
        let end = self.now + 8 * self.scenario.tuning.silence;
        let is_awake = |world: &mut Self| {
            let now = world.now;
            let mut hosts = (0..world.hosts.len()).filter(|host| !world.is_retired(*host));
            let are_parted = world.partitions.iter().any(|it| it.until > now);
            hosts.all(|host| world.hosts[host].is_alive() && !world.hosts[host].is_stopped(now))
                && !are_parted
        };
        if !self.run_until(end, is_awake) {
            broken!(self, "a host stays stopped: that is the simulation's fault");
        }
        self.network.calm();
        let end = self.now + self.settled_within_ns();
        if self.run_until(end, |world| world.unsettled().is_none()) {
            return self.give_up_on_liar();
        }
        // Without any rail left, there is nothing to wait for.
        for number in self.stranded() {
            self.give_up(number);
        }
        let end = self.now + self.scenario.slack_ns();
        if !self.run_until(end, |world| world.unsettled().is_none()) {
            let what = self.unsettled().unwrap_or_default();
            self.show_stuck();
            broken!(self, "nothing goes wrong any more, and {what}");
        }
        self.give_up_on_liar();
    }

    /// Lets honest users abort their transfers with the liar. Each ends, whatever the liar does.
    fn give_up_on_liar(&mut self) {
        let with_liar = |world: &Self| -> Vec<u64> {
            let is_so = |it: &&Transfer| !world.is_honest(it.connection) && !world.is_liar(it.host);
            world.transfers.iter().filter(is_so).map(|it| it.number).collect()
        };
        for number in with_liar(self) {
            self.give_up(number);
        }
        let end = self.now + self.settled_within_ns();
        if !self.run_until(end, |world| with_liar(world).is_empty()) {
            broken!(self, "the liar keeps transfer {} from ending", with_liar(self)[0]);
        }
    }

    /// Logs the state of the first unfinished transfer's peer.
    fn show_stuck(&mut self) {
        if let Some(transfer) = self.transfers.first() {
            let (host, key) = (transfer.host, self.connections[transfer.connection].ends[transfer.end].key());
            let portrait = self.hosts[host].machine().portrait(key);
            self.log(|| portrait);
        }
    }

    /// Returns the time within which everything that was begun must end: some cards have one work
    /// request in flight, with one page or a part of it.
    fn settled_within_ns(&self) -> u64 {
        let pages: usize = self.transfers.iter().map(|transfer| transfer.pages.len()).sum();
        let cuts = 1 + self.scenario.page_lens.iter().max().unwrap_or(&0) / 48;
        let step = self.scenario.network.delay_ns.end() + self.scenario.poll_gap_ns;
        self.scenario.settled_within_ns() + (pages * cuts) as u64 * 5 * step
    }

    /// Returns transfers between engines that no rail of the grant's scope connects any more.
    fn stranded(&self) -> Vec<u64> {
        let is_stranded = |transfer: &&Transfer| {
            let [from, to] = [0, 1].map(|end| self.connections[transfer.connection].ends[end].host);
            let scope = self.grants[transfer.grant].scope;
            !self.reaches(from, to, |card| card.properties.scope == scope)
        };
        let honest = self.transfers.iter().filter(|it| self.is_honest(it.connection));
        honest.filter(is_stranded).map(|it| it.number).collect()
    }

    /// Returns `true` if cards are left over which one host reaches another, when it connects to
    /// it.
    fn can_reach(&self, from: usize, to: usize) -> bool {
        self.reaches(from, to, |_| true)
    }

    /// As [`can_reach`](Self::can_reach), over cards of the first host that `is_fit` accepts.
    fn reaches(&self, from: usize, to: usize, is_fit: impl Fn(&SimCard) -> bool) -> bool {
        let kinds = |host: usize| -> Vec<String> {
            self.scenario.hosts[host].iter().map(|card| card.properties.kind.clone()).collect()
        };
        let is_usable = |host: usize, card: usize| self.network.is_usable(self.hosts[host].cards[card]);
        let pairs = pairs_of(&kinds(from), &kinds(to));
        pairs.into_iter().any(|(ours, theirs)| {
            is_usable(from, ours) && is_usable(to, theirs) && is_fit(&self.scenario.hosts[from][ours])
        })
    }

    /// Returns something that was begun and has not ended.
    fn unsettled(&mut self) -> Option<String> {
        if let Some(transfer) = self.transfers.iter().find(|it| self.is_honest(it.connection)) {
            return Some(format!("transfer {} has no end", transfer.number));
        }
        // Atomics wait for a link that supports them.
        let is_possible = |change: &&Change| {
            let Connection { is_honest, ends } = &self.connections[change.connection];
            *is_honest
                && self.reaches(ends[change.end].host, ends[1 - change.end].host, |card| {
                    card.properties.has_atomics && card.properties.scope == self.grants[change.grant].scope
                })
        };
        if let Some(change) = self.changes.iter().find(is_possible) {
            return Some(format!("word {} of grant {} is not answered", change.word, change.grant));
        }
        for (place, grant) in self.grants.iter().enumerate() {
            if matches!(grant.hold, Hold::Revoking { .. }) && !self.is_liar(grant.host) {
                return Some(format!("grant {place} is not answered for"));
            }
        }
        if let Some(host) = self.withdrawals().map(|(host, _)| host).find(|host| !self.is_liar(*host)) {
            return Some(format!("a withdrawal of host {host} is not answered"));
        }
        if let Some(connection) = self.unopened().or(self.unopened_counter()) {
            return Some(format!("a request to open over connection {connection} is not answered"));
        }
        // Before the first link is made, messages wait for it.
        let is_possible = |connection: &usize| {
            let Connection { is_honest, ends } = &self.connections[*connection];
            *is_honest && self.can_reach(ends[0].host, ends[1].host)
        };
        if let Some(connection) = self.unflushed().find(is_possible) {
            return Some(format!("connection {connection} is not flushed"));
        }
        // An end that does not know of a connection yet could not close it.
        let is_coming = |end: &End| end.peer.is_none() && end.killed_at.is_none();
        if let Some(connection) =
            self.connections.iter().position(|connection| connection.ends.iter().any(is_coming))
        {
            return Some(format!("connection {connection} is not known to both of its ends"));
        }
        for (place, connection) in
            self.connections.iter().enumerate().filter(|(_, it)| it.is_whole() && it.is_honest)
        {
            // Before the first link is made, messages wait for it.
            let is_stranded = !self.can_reach(connection.ends[0].host, connection.ends[1].host);
            for end in (0..2).filter(|_| !is_stranded) {
                if !connection.ends[end].has_heard(&connection.ends[1 - end]) {
                    let messages = (&connection.ends[1 - end].messages, &connection.ends[end].messages);
                    let (said, heard, waiting) =
                        (messages.0.accepted, messages.1.received, messages.0.waiting.len());
                    return Some(format!(
                        "of {said} messages over connection {place} end {end} has heard {heard}, and {waiting} wait"
                    ));
                }
            }
        }
        let is_short = |count: &Count| self.is_owed(count) && count.reached < count.total;
        let short = self.counts.iter().position(is_short)?;
        let Count { reached, total, .. } = &self.counts[short];
        Some(format!("counter {short} stays at {reached} of {total}"))
    }

    /// Returns `true` if a counter must count every page.
    fn is_owed(&self, count: &Count) -> bool {
        let is_whole = self.connections[count.connection].is_whole();
        is_whole
            && self.is_honest(count.connection)
            && count.is_clean
            && count.under_way == 0
            && !count.is_closed
    }

    /// Checks that living engines continue: new transfers between all of them succeed.
    pub(super) fn go_on(&mut self) {
        let tried = self.connect_all();
        let mut offers = Vec::new();
        for connection in &tried {
            for end in 0..2 {
                let rights = Rights::READ | Rights::WRITE;
                if let (Some(grant), Some(count)) =
                    (self.grant(*connection, end, rights), self.open_count(*connection, end))
                {
                    offers.push((*connection, end, grant, count));
                }
                let host = self.connections[*connection].ends[end].host;
                self.observe(host);
            }
        }
        let all = offers.clone();
        let are_known = move |world: &mut Self| all.iter().all(|offer| world.is_known(*offer));
        let end = self.now + self.scenario.slack_ns();
        if !self.run_until(end, are_known) {
            broken!(self, "a grant or a counter does not come to a peer that is well");
        }
        for (connection, end, grant, count) in &offers {
            let pages: Vec<usize> = (0..self.grants[*grant].pages.len().min(12)).collect();
            self.write(*connection, 1 - end, *grant, &pages, Some(*count));
            self.say(*connection, 1 - end);
            let host = self.connections[*connection].ends[1 - end].host;
            self.observe(host);
            self.step_by(host, self.now);
        }
        let end = self.now + self.settled_within_ns();
        if !self.run_until(end, |world| world.unsettled().is_none()) {
            let what = self.unsettled().unwrap_or_default();
            broken!(self, "after all, {what}");
        }
        for (connection, _, _, count) in &offers {
            let it = &self.counts[*count];
            // Some transfers ask for memory that they cannot have.
            if it.is_clean && it.reached != it.total {
                broken!(
                    self,
                    "counter {count} of connection {connection} ends at {} of {}",
                    it.reached,
                    it.total
                );
            }
        }
    }

    /// Connects all hosts that can reach each other, until a rail is ready on both sides.
    fn connect_all(&mut self) -> Vec<usize> {
        let end = self.now + self.scenario.settled_within_ns();
        loop {
            let mut tried = Vec::new();
            for from in 0..self.hosts.len() {
                for to in from + 1..self.hosts.len() {
                    if !self.is_liar(from) && !self.is_liar(to) && self.can_reach(from, to) {
                        tried.push(self.connection_between(from, to));
                    }
                }
            }
            // A card that broke during the storm may still cost a peer: another connection is made
            // then.
            let is_lost =
                |world: &Self| tried.iter().any(|connection| world.connections[*connection].is_lost());
            let is_up = |world: &Self| tried.iter().all(|connection| world.connections[*connection].is_up());
            if !self.run_until(end, |world| is_lost(world) || is_up(world)) {
                broken!(self, "engines that are well do not connect");
            }
            if !is_lost(self) {
                return tried;
            }
        }
    }

    fn is_known(&mut self, (connection, end, grant, count): (usize, usize, usize, usize)) -> bool {
        if self.connections[connection].is_lost() {
            return true;
        }
        let there = &self.connections[connection].ends[1 - end];
        let (host, key) = (there.host, there.key());
        let machine = self.hosts[host].machine();
        machine.granted(key, self.grants[grant].id).is_some()
            && machine.knows_counter(key, self.counts[count].id)
    }

    /// Returns the connection between two living hosts, a new one if necessary.
    fn connection_between(&mut self, from: usize, to: usize) -> usize {
        let is_between = |connection: &Connection| {
            let hosts = [connection.ends[0].host, connection.ends[1].host];
            (hosts == [from, to] || hosts == [to, from]) && connection.is_whole()
        };
        let there = self.connections.iter().position(is_between);
        // A connection in the other direction may have other rails.
        let there = there.filter(|connection| {
            let ends = &self.connections[*connection].ends;
            self.can_reach(ends[0].host, ends[1].host)
        });
        there.unwrap_or_else(|| self.connect(from, to))
    }

    /// Lets users revoke everything and leave. Nothing must stay behind.
    pub(super) fn wind_up(&mut self) {
        self.check_memory();
        let end = self.now + self.scenario.settled_within_ns();
        loop {
            let is_granted = |grant: &usize| {
                let grant = &self.grants[*grant];
                grant.is_granted() && !self.is_beyond_proof(grant) && !self.is_liar(grant.host)
            };
            let granted: Vec<usize> = (0..self.grants.len()).filter(is_granted).collect();
            if granted.is_empty() {
                break;
            }
            if self.now >= end {
                broken!(self, "grant {} does not come back", granted[0]);
            }
            let patience = self.scenario.tuning.drain;
            for grant in granted {
                self.revoke(grant, patience);
                let host = self.grants[grant].host;
                self.observe(host);
                // Found by seed 33125: nothing else may be due on this host.
                let at = self.hosts[host].machine().poll_timeout().to_nanos();
                self.step_by(host, at);
            }
            let is_over = |world: &mut Self| {
                let is_open = |grant: &Grant| matches!(grant.hold, Hold::Revoking { .. });
                !world.grants.iter().any(|grant| is_open(grant) && !world.is_liar(grant.host))
            };
            let until = self.now + patience + self.scenario.slack_ns();
            if !self.run_until(until, is_over) {
                broken!(self, "a revocation has no end");
            }
        }
        self.withdraw_all();
        let until = self.now + self.scenario.tuning.drain + self.scenario.slack_ns();
        let is_over = |world: &mut Self| !world.withdrawals().any(|(host, _)| !world.is_liar(host));
        if !self.run_until(until, is_over) {
            broken!(self, "a withdrawal has no end");
        }
        self.close_all_shared();
        for count in 0..self.counts.len() {
            if !self.counts[count].is_closed {
                self.close_count(count);
            }
        }
        for host in 0..self.hosts.len() {
            self.leave_all(host);
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].is_alive() {
                self.observe(host);
            }
        }
        self.retire_liar();
        let end = self.now + self.scenario.settled_within_ns();
        if !self.run_until(end, |world| world.left_behind().is_none()) {
            let what = self.left_behind().unwrap_or_default();
            broken!(self, "everybody has left, and {what}");
        }
    }

    /// Closes all peers of a host, together or one after the other.
    fn leave_all(&mut self, host: usize) {
        let is_usable =
            |(connection, end): &(usize, usize)| self.connections[*connection].ends[*end].is_usable();
        let usable: Vec<_> = self.hosts[host].peers.iter().copied().filter(is_usable).collect();
        if !self.hosts[host].is_alive() || self.chance.once_in(2) {
            return usable.into_iter().for_each(|(connection, end)| self.leave(connection, end));
        }
        for (connection, end) in usable {
            self.connections[connection].ends[end].has_left = true;
            self.part_from_published(connection, end);
        }
        tell!(self, "leave all: host", host);
        let (now, (op, answer)) = (self.now, self.hosts[host].answers.expect(Awaited::Closed));
        self.closings.push((host, answer));
        self.hosts[host].machine().confirm_all();
        self.hosts[host].machine().leave_all(op, Time::from_nanos(now));
    }

    /// Checks that memory holds what was last written to it.
    fn check_memory(&self) {
        for grant in 0..self.grants.len() {
            self.check_pages(grant, 0..self.grants[grant].pages.len());
            self.check_atomics(&self.grants[grant]);
        }
        self.check_published();
        for (_, slice, filled_with) in &self.kept {
            if slice.iter().any(|byte| byte != filled_with) {
                broken!(self, "something has landed in memory that had come back");
            }
        }
    }

    /// Returns something that an engine keeps although its user has nothing any more.
    fn left_behind(&mut self) -> Option<String> {
        self.closings.retain(|(_, answer)| answer.take().is_none());
        if let Some((host, _)) = self.closings.iter().find(|(host, _)| !self.is_liar(*host)) {
            return Some(format!("host {host} is not told that all its peers are gone"));
        }
        for host in (0..self.hosts.len()).filter(|host| !self.is_liar(*host)).collect::<Vec<_>>() {
            let is_stuck = |grant: &Grant| {
                grant.host == host && !matches!(grant.hold, Hold::Over) && self.is_beyond_proof(grant)
            };
            let stuck = self.grants.iter().filter(|grant| is_stuck(grant)).count();
            // A wait for a broken card lasts as long as its user allows.
            let is_broken = (0..self.hosts.len()).any(|host| self.has_broken_card(host));
            if is_broken {
                continue;
            }
            let (buffers, transfers, grants) = self.hosts[host].carrier().held();
            let census = self.hosts[host].machine().census();
            if census.grants.max(grants) > stuck || census.peers > stuck || census.publications > 0 {
                return Some(format!(
                    "host {host} keeps something of its peers: {grants} grants, {census:?}"
                ));
            }
            if buffers + transfers > 0 {
                return Some(format!(
                    "host {host} has {buffers} buffers and memory of {transfers} transfers out"
                ));
            }
            if !self.hosts[host].machine().is_idle() || census.is_busy() {
                return Some(format!("host {host} has something under way: {census:?}"));
            }
            let in_flight: usize = self.hosts[host].carrier().rails_mut().map(|rail| rail.in_flight()).sum();
            if in_flight > 0 {
                return Some(format!("a card of host {host} has {in_flight} requests"));
            }
        }
        None
    }

    /// Checks that honest hosts have not misused their cards. The liar may, and may make others
    /// post nonsense to where it says that its memory is.
    pub(super) fn check_violations(&mut self) {
        for violation in self.network.violations().split_off(self.violations_seen) {
            self.violations_seen += 1;
            let home = self.homes.get(&violation.card).copied();
            let owner = violation.link.and_then(|link| self.network.owner_of(link));
            let is_liars = |it: &Connection| {
                let is_end = |end: &End| {
                    Some((end.host, end.life)) == home && end.peer.as_ref().map(|(key, _)| *key) == owner
                };
                !it.is_honest && it.ends.iter().any(is_end)
            };
            let is_excused = home.is_some_and(|(host, _)| self.is_liar(host))
                || (owner.is_some() && self.connections.iter().any(is_liars));
            if !is_excused {
                broken!(self, "{violation}");
            }
        }
    }

    /// Runs the last checks.
    pub(super) fn finish(&mut self) {
        self.check_memory();
        self.check_violations();
        let has_refused = self.tally.contains_key("grants refused");
        let leaked = self.network.leaked();
        if leaked > 0 && !has_refused && self.scenario.network.odds.end_key_fails == 0 {
            broken!(self, "{leaked} keys or requests were leaked");
        }
        let machines = self.hosts.iter().filter_map(|host| host.machine.as_ref());
        let resets = machines.map(|machine| machine.census().resets).sum();
        self.count("rails begun anew", resets);
        for (what, times) in self.network.counts() {
            self.count(what, times);
        }
        let digest = self.network.history();
        tell!(self, "end", digest, WORN);
        // With the engine, everything ends that could still reach memory that came back without a
        // proof.
        let broken: Vec<bool> = (0..self.hosts.len()).map(|host| self.has_broken_card(host)).collect();
        self.hosts.iter_mut().for_each(|host| (host.machine, host.carrier) = (None, None));
        for (host, memory) in &self.unproven {
            if memory.keys() > 0 && !broken[*host] && self.scenario.network.odds.end_key_fails == 0 {
                broken!(self, "memory of host {host} is not free, though its engine has ended");
            }
        }
    }
}

impl Connection {
    /// Returns `true` if one side has lost the other.
    fn is_lost(&self) -> bool {
        self.ends.iter().any(|end| end.lost_at.is_some())
    }

    /// Returns `true` if a rail is ready on both sides.
    fn is_up(&self) -> bool {
        self.ends.iter().all(|end| end.peer.as_ref().is_some_and(|(_, view)| view.has_rails()))
    }
}
