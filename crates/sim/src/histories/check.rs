//! Checks that must hold at every moment.

use farreach_memory::Exposed;
use farreach_proto::ids::GrantId;
use farreach_proto::wire::Frame;

use super::content::{Content, WORN};
use super::party::{End, Packet};
use super::thing::{Grant, Hold, Transfer};
use super::world::{World, broken};

/// The bytes of a machine's state of one peer, without what the peer announces.
const MEMORY_MIN: usize = 64 * 1024;
/// The bytes for a grant, a counter and a message of a peer, with the room that tables keep free.
const GRANT_BYTES: usize = 512;
const COUNTER_BYTES: usize = 512;
const MESSAGE_BYTES: usize = 256;
/// The bytes for a request of the machine's own user.
const REQUEST_BYTES: usize = 1024;
/// The number of links that a rail has to one peer, at most.
const LINKS_PER_RAIL_MAX: usize = 8;

impl World {
    /// Checks that a counter has never counted more pages than have arrived, and never decreases.
    pub(super) fn look_at_count(&mut self, count: usize) {
        let it = &mut self.counts[count];
        let reached = it.view.reached();
        if reached < it.reached {
            broken!(self, "counter {count} was at {} and is at {reached}", it.reached);
        }
        it.reached = reached;
        if self.counts[count].view.is_aborted() && !self.may_be_aborted(count) {
            broken!(self, "counter {count} is aborted, and its peer has aborted nothing");
        }
        let it = &mut self.counts[count];
        if reached <= it.present || it.is_unobservable || !self.connections[it.connection].is_honest {
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

    /// Returns `true` if a transfer that raises a counter may have been aborted.
    fn may_be_aborted(&self, count: usize) -> bool {
        let it = &self.counts[count];
        let is_whole = self.is_honest(it.connection) && self.connections[it.connection].is_whole();
        let has_broken =
            self.connections[it.connection].ends.iter().any(|end| self.has_broken_card(end.host));
        let may_fail = |transfer: &Transfer| {
            let is_ending = transfer.is_given_up
                || transfer.deadline.is_some_and(|at| at <= self.now)
                || transfer.is_wrong
                // Its memory may not be mapped.
                || self.scenario.network.odds.key_not_mapped > 0
                || self.grants[transfer.grant].is_revoked;
            transfer.counter == Some(count) && is_ending
        };
        !is_whole || has_broken || !it.is_clean || self.transfers.iter().any(may_fail)
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
        self.check_violations();
        let (tuning, slack) = (self.scenario.tuning.clone(), self.scenario.slack_ns());
        // A stopped host begins at the end of its stop. The liar may wait for as long as it likes.
        let is_late = |host: usize, since: u64, bound: u64| {
            let is_liar = self.is_liar(host);
            let host = &self.hosts[host];
            let is_awake = host.is_alive() && !host.is_stopped(self.now);
            is_awake && !is_liar && self.now > since.max(host.stopped_until) + bound
        };
        for (connection, it) in self.connections.iter().enumerate() {
            for end in 0..2 {
                let (there, other) = (&it.ends[end], &it.ends[1 - end]);
                let is_there = there.peer.is_some() && there.killed_at.is_none();
                let stopped = &self.hosts[other.host];
                let stopped_at = stopped.is_stopped(self.now).then_some(stopped.stopped_at);
                let is_own = |transfer: &&Transfer| (transfer.connection, transfer.end) == (connection, end);
                let begun_at = self.transfers.iter().filter(is_own).map(|transfer| transfer.begun_at).min();
                // A peer that nothing waits for is pinged rarely, and by the side that made the
                // connection even later.
                let (since_wait, noticed_within) = match begun_at {
                    Some(at) => (at, tuning.silence + slack),
                    None => (0, tuning.silence + 2 * tuning.idle_heartbeat + slack),
                };
                let silent_since = [
                    ("was killed", other.killed_at),
                    ("does nothing", stopped_at.filter(|_| other.killed_at.is_none())),
                    ("cannot be heard", self.cut_since(it, end)),
                ];
                for (what, since) in silent_since {
                    let is_unnoticed = is_there && there.lost_at.is_none();
                    if let Some(since) = since.filter(|_| is_unnoticed)
                        && is_late(there.host, since.max(there.since).max(since_wait), noticed_within)
                    {
                        broken!(
                            self,
                            "end {end} of connection {connection} does not notice that its peer {what}"
                        );
                    }
                }
                let is_liar = self.is_liar(there.host);
                if there.lost_at.is_some() && is_there && !there.messages.waiting.is_empty() && !is_liar {
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
        // What is in flight comes back, or its link is lost; then the peer answers, or is lost, too.
        let bound = 4 * (tuning.stall + tuning.drain) + tuning.silence + slack;
        for it in &self.transfers {
            if let Some(at) = it.deadline
                && is_late(it.host, at, bound)
            {
                broken!(self, "transfer {} has not ended, and its deadline was at {at} ns", it.number);
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
        for (host, deadline) in self.withdrawals() {
            if is_late(host, deadline, slack) {
                broken!(self, "the withdrawal of a publication of host {host} has no end");
            }
        }
        self.check_published();
        for (place, it) in self.grants.iter().enumerate() {
            self.check_pages(place, 0..it.pages.len());
        }
        for count in self.counts.iter().filter(|count| !count.is_closed) {
            let is_lost = lost_at(count.connection, count.end).is_some();
            if is_lost && !count.view.has_ended() && !self.is_liar(count.host) {
                broken!(self, "a wait for counter {} does not end with its peer", count.id.to_raw());
            }
        }
    }

    /// Returns `true` if neither end of a connection lies.
    pub(super) fn is_honest(&self, connection: usize) -> bool {
        self.connections[connection].is_honest
    }

    /// Notes that a peer says that it has stopped using grants, truly or not.
    pub(super) fn note_acknowledged(&mut self, connection: usize, end: usize, packet: Option<&Packet>) {
        let Some(Packet::Frame(frame)) = packet else { return };
        let is_of = |id: GrantId| match frame {
            Frame::Revoked { grant } => *grant == id,
            Frame::Goodbye | Frame::Refused { .. } => true,
            _ => false,
        };
        let own = self.grants.iter_mut().filter(|grant| (grant.connection, grant.end) == (connection, end));
        own.for_each(|grant| grant.has_word |= is_of(grant.id));
    }

    /// Checks that what an honest machine keeps for a peer is within its budgets.
    pub(super) fn check_budget(&mut self, connection: usize, end: usize) {
        let (budgets, messages) = (self.scenario.tuning.budgets, self.scenario.tuning.messages as usize);
        let there = &self.connections[connection].ends[end];
        let (host, Some((key, view))) = (there.host, &there.peer) else { return };
        if view.untaken() > messages {
            broken!(self, "end {end} of connection {connection} holds {} messages", view.untaken());
        }
        if self.is_honest(connection) || self.is_liar(host) {
            return;
        }
        let Some(machine) = &self.hosts[host].machine else { return };
        let (Some((grants, counters)), Some(kept)) = (machine.announced_by(*key), machine.peer_memory(*key))
        else {
            return;
        };
        if grants > budgets.grants as usize || counters > budgets.counters as usize {
            broken!(self, "the liar has announced {grants} grants and {counters} counters to host {host}");
        }
        let links = machine.census().links;
        let links_max = machine.peer_count() * self.scenario.hosts[host].len() * LINKS_PER_RAIL_MAX;
        if links > links_max {
            broken!(self, "host {host} has {links} links, and {links_max} at most were agreed on");
        }
        // What its own user has requested is not the liar's doing.
        let own = (there.transfers + there.messages.asked) as usize * REQUEST_BYTES;
        let most = MEMORY_MIN
            + own
            + budgets.grants as usize * GRANT_BYTES
            + budgets.counters as usize * COUNTER_BYTES
            + messages * (self.scenario.tuning.message_max + MESSAGE_BYTES);
        self.most_kept = self.most_kept.max(kept);
        if kept > most {
            let (key, machine) = (*key, self.hosts[host].machine.as_ref());
            let portrait = machine.map(|machine| machine.portrait(key)).unwrap_or_default();
            self.log(|| portrait);
            broken!(self, "host {host} keeps {kept} bytes for the liar, and {most} are its budget");
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
        let Some(memory) = grant.look().filter(|_| self.is_honest(grant.connection)) else { return };
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
