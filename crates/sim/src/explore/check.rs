//! What must hold in every state, and when nothing happens any more.

use super::scenario::Call;
use super::user::{Hold, PAGE, PAGES, Region, TAKEN, Things, page};
use super::world::World;
use farreach_proto::time::Time;

/// The time that a revocation may take when everybody leaves.
const LEAVES_WITHIN: u64 = 50_000_000;

impl World {
    /// Notes which pages have arrived.
    pub(super) fn see_pages(&mut self) {
        for writer in 1..self.things.writers.len() {
            let Some(memory) = self.things.region_of(writer).and_then(Region::look) else { continue };
            for (write, it) in self.things.writers[writer].writes.iter_mut().enumerate() {
                let (offset, content) = page(writer, write);
                let mut bytes = [0; PAGE];
                memory.read_at(offset, &mut bytes);
                it.has_arrived |= bytes == content;
            }
        }
    }

    /// Checks that writes that are done change nothing any more.
    fn check_used(&self, writer: usize) {
        let Some(memory) = self.things.region_of(writer).and_then(Region::look) else { return };
        for (write, it) in self.things.writers[writer].writes.iter().enumerate() {
            let mut bytes = [0; PAGE];
            memory.read_at(page(writer, write).0, &mut bytes);
            if it.is_used && bytes != [TAKEN; PAGE] {
                self.fail(&format!("write {write} of {writer} was done, and bytes of it have landed"));
            }
        }
    }

    /// Checks what must hold in every state.
    pub(super) fn check(&mut self) {
        self.see_pages();
        if let Some(violation) = self.network.violations().first() {
            self.fail(&format!("a card was misused: {violation}"));
        }
        let regions = self.things.published.iter().chain(self.things.granted.iter().flatten());
        for region in regions {
            if let Hold::Back(slice) = &region.hold
                && slice.iter().any(|byte| *byte != TAKEN)
            {
                self.fail("bytes have landed in memory that is its user's again");
            }
        }
        for writer in 1..self.things.writers.len() {
            self.check_closed(writer);
            self.check_used(writer);
            self.check_count(writer);
            for key in [&self.hosts[0].peers[writer - 1], &self.hosts[writer].peers[0]] {
                let lost = key.1.lost();
                let is_deserved = self.things.is_lost[writer] || self.things.has_left();
                if let Some(reason) = lost.filter(|_| !is_deserved) {
                    self.fail(&format!("writer {writer} and the owner are well, and one is lost: {reason}"));
                }
            }
        }
    }

    /// Checks that a writer that has lost the publication changes nothing of it.
    fn check_closed(&self, writer: usize) {
        let Some(region) = &self.things.published else { return };
        let Some(memory) = region.look().filter(|_| region.is_closed_to[writer]) else { return };
        let mut bytes = [0; PAGE * PAGES];
        memory.read_at(page(writer, 0).0, &mut bytes);
        if bytes.iter().any(|byte| *byte != TAKEN) {
            self.fail(&format!("writer {writer} has changed memory that it has lost"));
        }
    }

    /// Checks that a counter has counted no page that has not arrived.
    fn check_count(&self, writer: usize) {
        let Some(count) = &self.things.counters[writer] else { return };
        let writes = self.things.writers[writer].writes.iter();
        // What has arrived in memory that was taken before somebody looked cannot be seen.
        let is_taken = self.things.region_of(writer).is_some_and(|region| region.is_taken_from[writer]);
        let seen = writes.filter(|it| it.writing.is_counted && (it.has_arrived || is_taken)).count() as u64;
        let reached = count.view.reached();
        if reached > seen {
            self.fail(&format!("the counter of {writer} is at {reached}, and {seen} pages have arrived"));
        }
    }

    /// Returns something that has begun and not ended.
    pub(super) fn unfinished(&self) -> Option<String> {
        let things = &self.things;
        let is_revoking = |region: &Region| matches!(region.hold, Hold::Revoking(..));
        let mut regions = things.published.iter().chain(things.granted.iter().flatten());
        if regions.any(is_revoking) || !things.withdrawals.is_empty() {
            return Some("a request to revoke memory is not answered".to_owned());
        }
        for (host, writer) in things.writers.iter().enumerate() {
            if writer.is_waiting() && !self.hosts[host].is_stopped {
                return Some(format!("a request of writer {host} is not answered"));
            }
        }
        for (host, it) in self.hosts.iter().enumerate().filter(|(_, it)| !it.is_stopped) {
            let census = it.machine.census();
            if !it.machine.is_idle() || census.transfers + census.in_flight > 0 {
                return Some(format!("host {host} has something under way: {census:?}"));
            }
            if things.has_left() && census.peers > 0 {
                return Some(format!("host {host} keeps something of a peer: {census:?}"));
            }
        }
        None
    }

    /// Checks what has come of everything.
    pub(super) fn check_end(&self) {
        for writer in 1..self.things.writers.len() {
            let Some(count) = &self.things.counters[writer] else { continue };
            let counted = self.things.writers[writer].writes.iter().filter(|it| it.writing.is_counted);
            let (done, all) = (counted.clone().filter(|it| it.is_ok == Some(true)).count(), counted.count());
            let is_owed = !count.is_closed && !self.things.is_lost[writer];
            let reached = count.view.reached() as usize;
            if is_owed && !(done..=all).contains(&reached) {
                self.fail(&format!(
                    "the counter of {writer} ends at {reached}, and {done} pages were written"
                ));
            }
        }
    }

    /// Lets everybody take back and close everything, and leave.
    pub(super) fn leave(&mut self) {
        let mut calls = vec![Call::Withdraw(LEAVES_WITHIN), Call::CloseShared];
        for writer in 1..self.hosts.len() {
            calls.extend([Call::Revoke(writer, LEAVES_WITHIN), Call::CloseCounter(writer)]);
        }
        for call in calls {
            if self.is_ready(0, call) {
                self.call(0, call);
            }
        }
        self.wait_for_the_end();
        self.resume();
        self.wait_for_the_end();
        self.things.leave();
        for host in 0..self.hosts.len() {
            let (keys, now) = (self.hosts[host].peers.clone(), self.now);
            for (key, _) in keys {
                self.hosts[host].machine.leave(key, Time::from_nanos(now));
            }
            self.after(host);
        }
    }

    /// Checks that nothing is kept when everybody has left.
    pub(super) fn check_left_behind(&mut self) {
        for host in 0..self.hosts.len() {
            let (held, census) = (self.hosts[host].carrier.held(), self.hosts[host].machine.census());
            let is_kept = census.grants + census.publications + census.peers > 0 || census.is_busy();
            if held != (0, 0, 0) || is_kept {
                self.fail(&format!("host {host} keeps something: {held:?}, {census:?}"));
            }
        }
        if self.network.leaked() > 0 {
            self.fail("a card could not prove that something has stopped");
        }
        let unproven = self.things.take_unproven();
        self.hosts.clear();
        if unproven.iter().any(|memory| memory.keys() > 0) {
            self.fail("memory is not free, though its engine has ended");
        }
    }
}

impl Things {
    pub(super) fn take_unproven(&mut self) -> Vec<farreach_memory::Exposed> {
        let regions = self.published.iter_mut().chain(self.granted.iter_mut().flatten());
        let holds = regions.map(|region| std::mem::replace(&mut region.hold, Hold::Over));
        let unproven = |hold| if let Hold::Unproven(memory) = hold { Some(memory) } else { None };
        holds.filter_map(unproven).collect()
    }
}
