//! Checks that must hold at every moment.

use farreach_memory::Exposed;

use super::content::{Content, WORN};
use super::party::End;
use super::thing::{Grant, Hold};
use super::world::{World, broken};

impl World {
    /// Checks that a counter has never counted more pages than have arrived, and never decreases.
    pub(super) fn look_at_count(&mut self, count: usize) {
        let it = &mut self.counts[count];
        let reached = it.view.reached();
        if reached < it.reached {
            broken!(self, "counter {count} was at {} and is at {reached}", it.reached);
        }
        it.reached = reached;
        if reached <= it.present || it.is_unobservable {
            return;
        }
        let mut place = 0;
        while place < it.missing.len() && it.present < reached {
            let (grant, page, content) = it.missing[place];
            let grant = &self.grants[grant];
            let Some(memory) = grant.look() else {
                it.is_unobservable = true;
                return;
            };
            match grant.holds(&memory, page, content) {
                true => {
                    it.missing.swap_remove(place);
                    it.present += 1;
                }
                false => place += 1,
            }
        }
        if reached > it.present {
            let (present, total) = (it.present, it.total);
            broken!(self, "counter {count} is at {reached} of {total}, and {present} pages are there");
        }
    }

    /// Checks memory that its user has back: which of the pages that counters wait for have
    /// arrived, and that none arrives later.
    pub(super) fn look_a_last_time(&mut self, grant: usize, memory: &Exposed) {
        let (bytes, is_proven) = (memory.to_vec(), memory.keys() == 0);
        let layout = self.grants[grant].layout;
        for count in &mut self.counts {
            let before = count.missing.len();
            let mut present = 0;
            count.missing.retain(|(of, page, content)| {
                let is_here = *of == grant;
                present += u64::from(is_here && content.is(&bytes[layout.start(*page)..][..layout.page_len]));
                !is_here
            });
            count.present += present;
            count.is_clean &= before == count.missing.len();
            // Operations in flight may still land there, and be counted.
            count.is_unobservable |= !is_proven && before > count.missing.len();
        }
        if let Some(rest) = &self.grants[grant].rest
            && rest.iter().any(|byte| *byte != WORN)
        {
            broken!(self, "something landed behind grant {grant}");
        }
    }

    /// Checks that every wait ends in time.
    pub(super) fn audit(&mut self) {
        let (tuning, slack) = (self.scenario.tuning.clone(), self.scenario.slack_ns());
        // A stopped host begins at the end of its stop.
        let is_late = |host: usize, since: u64, bound: u64| {
            let host = &self.hosts[host];
            host.is_alive() && !host.is_stopped(self.now) && self.now > since.max(host.stopped_until) + bound
        };
        for (connection, it) in self.connections.iter().enumerate() {
            for end in 0..2 {
                let (there, other) = (&it.ends[end], &it.ends[1 - end]);
                let is_there = there.peer.is_some() && there.killed_at.is_none();
                if let Some(killed_at) = other.killed_at.filter(|_| is_there && there.lost_at.is_none())
                    && is_late(there.host, killed_at.max(there.since), tuning.silence + slack)
                {
                    broken!(
                        self,
                        "end {end} of connection {connection} does not notice that its peer was killed"
                    );
                }
                if there.lost_at.is_some() && is_there && !there.messages.waiting.is_empty() {
                    broken!(self, "a message waits for the lost peer of connection {connection}");
                }
            }
        }
        let lost_at = |connection: usize, end: usize| self.connections[connection].ends[end].lost_at;
        for it in &self.transfers {
            if let Some(at) = lost_at(it.connection, it.end)
                && is_late(it.host, at, tuning.drain + slack)
            {
                broken!(self, "transfer {} waits for a peer that was lost at {at} ns", it.number);
            }
        }
        for it in &self.changes {
            if let Some(at) = lost_at(it.connection, it.end)
                && is_late(it.host, at, tuning.drain + slack)
            {
                broken!(self, "word {} of grant {} waits for a peer that was lost", it.word, it.grant);
            }
        }
        for (place, it) in self.grants.iter().enumerate() {
            if let Hold::Revoking { deadline, .. } = it.hold
                && is_late(it.host, deadline, slack)
            {
                broken!(self, "the revocation of grant {place} has no end");
            }
        }
        for (place, it) in self.grants.iter().enumerate() {
            self.check_pages(place, 0..it.pages.len());
        }
        for count in self.counts.iter().filter(|count| !count.is_closed) {
            let is_lost = lost_at(count.connection, count.end).is_some();
            if is_lost && !count.view.has_ended() {
                broken!(self, "a wait for counter {} does not end with its peer", count.id.to_raw());
            }
        }
    }

    /// Returns `true` if a card could not be reset: it keeps what it has.
    pub(super) fn has_broken_card(&self, host: usize) -> bool {
        self.hosts[host].cards.iter().any(|card| !self.network.is_usable(*card))
    }

    /// Returns `true` if there can be no proof that a grant's peer has stopped.
    pub(super) fn is_beyond_proof(&self, grant: &Grant) -> bool {
        self.has_broken_card(grant.host)
    }

    /// Checks that pages of a grant hold what was last written to them. Earlier operations must not
    /// land after it.
    pub(super) fn check_pages(&self, place: usize, pages: impl IntoIterator<Item = usize>) {
        let grant = &self.grants[place];
        let Some(memory) = grant.look() else { return };
        let certain = |page: usize| match grant.pages[page] {
            it if it.is_written || it.is_spoiled => None,
            it => Some((page, it.content?)),
        };
        for (page, content) in pages.into_iter().filter_map(certain) {
            if !grant.holds(&memory, page, content) {
                let Content { tag, .. } = content;
                broken!(self, "page {page} of grant {place} does not hold what source {tag} wrote last");
            }
        }
    }
}

impl End {
    /// Returns `true` if this end has received everything that the other one sent.
    pub(super) fn has_heard(&self, other: &Self) -> bool {
        self.messages.received == other.messages.accepted && other.messages.waiting.is_empty()
    }
}
