//! Checks that the answers of engines are true.

use std::time::Duration;

use farreach_proto::machine::{Direction, TransferFault};
use farreach_rail::{Held, RevokeAnswer, TransferAnswer};

use super::content::Content;
use super::content::WORN;
use super::party::End;
use super::thing::{Hold, Transfer};
use super::world::{World, broken, tell};
use crate::end::NOT_MAPPED;

impl World {
    /// Checks everything that an engine may have answered. Nothing moves meanwhile.
    pub(super) fn observe(&mut self, host: usize) {
        self.hosts[host].carry();
        self.see(host);
    }

    /// As [`observe`](Self::observe), without posting first.
    pub(super) fn see(&mut self, host: usize) {
        self.flush(host);
        self.hosts[host].machine().check();
        for place in 0..self.hosts[host].peers.len() {
            let (connection, end) = self.hosts[host].peers[place];
            self.see_loss(connection, end);
            self.check_budget(connection, end);
            self.collect_said(connection, end);
            if self.connections[connection].ends[end].messages.is_eager || !self.is_storm {
                self.hear(connection, end);
            }
        }
        self.collect_transfers(host);
        self.collect_atomics(host);
        self.collect_grants(host);
        self.collect_published(host);
        self.collect_shared(host);
        self.collect_flushes(host);
        for count in 0..self.counts.len() {
            if self.counts[count].host == host && !self.counts[count].is_closed {
                self.look_at_count(count);
            }
        }
    }

    /// Checks that a lost peer has a reason.
    fn see_loss(&mut self, connection: usize, end: usize) {
        let [first, second] = &self.connections[connection].ends;
        let (there, other) = if end == 0 { (first, second) } else { (second, first) };
        let Some((_, view)) = &there.peer else { return };
        let Some(reason) = view.lost().filter(|_| there.lost_at.is_none()) else { return };
        let recently = self.now.saturating_sub(self.scenario.tuning.silence + self.scenario.slack_ns());
        let was_stopped = |end: &End| {
            let host = &self.hosts[end.host];
            host.stopped_long_until > 0 && host.stopped_long_until >= recently
        };
        let is_deserved = !self.connections[connection].is_honest
            || other.killed_at.is_some()
            || there.has_left
            || other.has_left
            || other.lost_at.is_some()
            // Operations over a card that cannot be reset cannot be stopped.
            || self.has_broken_card(there.host)
            || was_stopped(there)
            || was_stopped(other)
            || self.was_parted(&self.connections[connection], recently);
        if !is_deserved {
            broken!(self, "end {end} of connection {connection} has lost its peer, which is well: {reason}");
        }
        if reason.fix().is_empty() {
            broken!(self, "a peer is lost, and its user is not told what to do: {reason}");
        }
        let reason = reason.to_string();
        self.log(|| format!("connection {connection}: {reason}"));
        tell!(self, "lost: connection, end", connection, end);
        self.connections[connection].ends[end].lost_at = Some(self.now);
        self.count("peers lost", 1);
    }

    fn collect_transfers(&mut self, host: usize) {
        let mut place = 0;
        while place < self.transfers.len() {
            let transfer = &self.transfers[place];
            let answer = if transfer.host == host { transfer.answer.take() } else { None };
            match answer {
                None => place += 1,
                Some(answer) => {
                    let transfer = self.transfers.swap_remove(place);
                    self.transfer_answered(&transfer, answer);
                }
            }
        }
    }

    fn transfer_answered(&mut self, transfer: &Transfer, answer: TransferAnswer) {
        let TransferAnswer { outcome, held, stats } = answer;
        let (number, is_ok, is_back) = (transfer.number, outcome.is_ok(), held.is_some());
        self.log(|| format!("transfer {number}: {outcome:?}"));
        tell!(self, "ended: transfer, ok, back", number, is_ok, is_back);
        if is_ok && transfer.direction == Direction::Write {
            self.check_written(transfer);
        }
        let bytes = (transfer.pages.len() * transfer.layout.page_len) as u64;
        if stats.delivered > bytes || (is_ok && stats.delivered < bytes) {
            broken!(self, "{} of {bytes} bytes of transfer {number} were delivered", stats.delivered);
        }
        // What was posted again counts twice.
        let is_moved = stats.bytes() >= bytes && stats.operations() > 0;
        if is_ok && (!is_moved || stats.pages != transfer.pages.len() as u64) {
            broken!(self, "transfer {number} of {bytes} bytes is done, and tells: {stats}");
        }
        if stats.elapsed() > Duration::from_nanos(self.now)
            || stats.links.into_iter().any(|it| it.immediates > it.operations)
        {
            broken!(self, "transfer {number} tells at {}: {stats}", self.now);
        }
        if transfer.direction == Direction::Write {
            self.check_delivered(transfer, stats.delivered);
        }
        match &outcome {
            Ok(()) => {
                self.count("transfers done", 1);
                self.count("bytes moved", bytes);
            }
            Err(fault) => self.check_fault(transfer, fault),
        }
        if !is_back
            && !matches!(outcome, Err(TransferFault::PeerLost(_)))
            && !self.has_broken_card(transfer.host)
        {
            broken!(self, "transfer {number} ended by {outcome:?}, and without its memory");
        }
        self.take_back(transfer, held, is_ok);
        self.note_pages(transfer, is_ok);
        if is_ok && transfer.direction == Direction::Write {
            self.may_write_again(transfer);
        }
    }

    /// Checks that the bytes of a finished transfer are in place.
    fn check_written(&self, transfer: &Transfer) {
        let grant = &self.grants[transfer.grant];
        let Some(memory) = grant.look().filter(|_| self.is_honest(transfer.connection)) else { return };
        for (page, content) in &transfer.pages {
            if !grant.holds(&memory, *page, *content) {
                let Transfer { number, grant, .. } = transfer;
                broken!(self, "transfer {number} is done, and page {page} of grant {grant} is not there");
            }
        }
    }

    /// Checks that as many bytes as were reported are in place.
    fn check_delivered(&self, transfer: &Transfer, delivered: u64) {
        let grant = &self.grants[transfer.grant];
        let Some(memory) = grant.look().filter(|_| self.is_honest(transfer.connection)) else { return };
        let of_page = |(page, content): &(usize, Content)| grant.bytes_of(&memory, *page, *content);
        let there: u64 = transfer.pages.iter().map(of_page).sum();
        if there < delivered {
            let number = transfer.number;
            broken!(self, "{delivered} bytes of transfer {number} were delivered, and {there} are there");
        }
    }

    fn check_fault(&mut self, transfer: &Transfer, fault: &TransferFault) {
        let there = &self.connections[transfer.connection].ends[transfer.end];
        let is_deserved = match fault {
            TransferFault::PeerLost(_) => there.lost_at.is_some(),
            TransferFault::Aborted => transfer.is_given_up,
            TransferFault::DeadlinePassed => transfer.deadline.is_some_and(|at| at <= self.now),
            TransferFault::Revoked | TransferFault::NoSuchGrant => self.grants[transfer.grant].is_revoked,
            TransferFault::OutOfBounds => transfer.is_wrong,
            TransferFault::NoSuchCounter => transfer.counter.is_some_and(|it| self.counts[it].is_closed),
            TransferFault::Rail(error) if error.cause == NOT_MAPPED => {
                self.scenario.network.odds.key_not_mapped > 0
            }
            TransferFault::Rail(_) => self.has_broken_card(transfer.host),
            TransferFault::NoRight | TransferFault::Scopes => false,
        };
        if !is_deserved && self.is_honest(transfer.connection) {
            broken!(self, "transfer {} failed without a reason: {fault:?}", transfer.number);
        }
        self.count(
            match fault {
                TransferFault::PeerLost(_) => "transfers with a lost peer",
                TransferFault::Aborted => "transfers given up",
                TransferFault::DeadlinePassed => "transfers late",
                TransferFault::Revoked | TransferFault::NoSuchGrant => "transfers to revoked memory",
                TransferFault::Rail(error) if error.cause == NOT_MAPPED => "transfers to unmapped memory",
                TransferFault::Rail(_) => "transfers over a broken card",
                _ => "transfers refused",
            },
            1,
        );
    }

    /// Takes back this side's memory of a transfer: no card has a part of it, and its user
    /// overwrites it.
    fn take_back(&mut self, transfer: &Transfer, held: Option<Held>, is_ok: bool) {
        let (number, host) = (transfer.number, transfer.host);
        let held = match (held, transfer.source) {
            (None, None) => return,
            (held, Some(source)) => {
                let is_held = held.is_none();
                drop(held);
                self.release_source(source, is_held);
                return;
            }
            (Some(held), None) => held,
        };
        let Held::Lent(lent) = held else { broken!(self, "transfer {number} gave back what it never had") };
        let Ok(slice) = lent.try_reclaim() else {
            broken!(self, "transfer {number} has ended, and a card has a part of its memory")
        };
        if is_ok && transfer.direction == Direction::Read && self.is_honest(transfer.connection) {
            for ((page, content), place) in transfer.pages.iter().zip(&transfer.places) {
                let start = transfer.layout.start(*place as usize);
                if !content.is(&slice[start..][..transfer.layout.page_len]) {
                    broken!(self, "transfer {number} has read page {page}, and it is another one");
                }
            }
        }
        self.put_away(host, slice, None);
    }

    fn release_source(&mut self, source: usize, is_held: bool) {
        let it = &mut self.sources[source];
        it.is_held |= is_held;
        it.users -= 1;
        let is_over = it.users == 0 && self.chance.once_in(2);
        let Some(shared) = it.shared.take_if(|_| is_over) else { return };
        let (host, is_held) = (it.host, it.is_held);
        match shared.try_unshare() {
            Ok(slice) => self.put_away(host, slice, None),
            Err(_) if is_held => {}
            Err(_) => broken!(self, "source {source} has no user, and a card has a part of it"),
        }
    }

    /// Notes the contents of the pages of a transfer that has ended.
    fn note_pages(&mut self, transfer: &Transfer, is_ok: bool) {
        let is_write = transfer.direction == Direction::Write;
        let is_honest = self.is_honest(transfer.connection);
        let grant = &mut self.grants[transfer.grant];
        for (page, content) in &transfer.pages {
            let page = &mut grant.pages[*page];
            if !is_write {
                page.readers -= 1;
                continue;
            }
            page.is_written = false;
            // What a liar has done is nobody's to know.
            page.is_spoiled |= !is_ok && is_honest;
            page.content = is_ok.then_some(*content);
        }
        let Some(counter) = transfer.counter else { return };
        let count = &mut self.counts[counter];
        count.under_way -= 1;
        count.is_clean &= is_ok;
        if is_ok {
            // They were checked just before.
            let tag = transfer.pages[0].1.tag;
            let is_of = |missing: &(usize, usize, Content)| {
                missing.0 == transfer.grant
                    && missing.2.tag == tag
                    && transfer.pages.contains(&(missing.1, missing.2))
            };
            let before = count.missing.len();
            count.missing.retain(|missing| !is_of(missing));
            count.present += (before - count.missing.len()) as u64;
        }
    }

    fn collect_grants(&mut self, host: usize) {
        for grant in 0..self.grants.len() {
            let it = &self.grants[grant];
            if it.host != host {
                continue;
            }
            if let Hold::Revoking { answer, .. } = &it.hold
                && let Some(answer) = answer.take()
            {
                self.grant_answered(grant, answer);
            }
        }
    }

    fn grant_answered(&mut self, grant: usize, answer: RevokeAnswer) {
        let it = &mut self.grants[grant];
        let host = it.host;
        let Hold::Revoking { memory, since, deadline, .. } = std::mem::replace(&mut it.hold, Hold::Over)
        else {
            return;
        };
        match answer {
            RevokeAnswer::Back(memory) => {
                tell!(self, "back: grant", grant);
                self.count("grants back", 1);
                self.look_a_last_time(grant, &memory);
                let (rest, has_word) = (self.grants[grant].rest.take(), self.grants[grant].has_word);
                match (memory.try_into_slice(), self.chance.once_in(2)) {
                    (Ok(slice), true) => self.put_away(host, slice, rest),
                    (Ok(mut slice), false) => {
                        slice.fill(WORN);
                        self.kept.push((host, slice, WORN));
                    }
                    (Err(memory), _) => {
                        let is_hasty = deadline - since < 2 * self.scenario.slack_ns();
                        self.put_aside(host, memory, has_word, is_hasty);
                    }
                }
            }
            RevokeAnswer::NotYet(why) => {
                self.log(|| format!("grant {grant}: {why}"));
                tell!(self, "not yet: grant", grant);
                self.count("grants not yet back", 1);
                let Some(memory) = memory.upgrade() else {
                    broken!(self, "grant {grant} is not back, and its memory is gone")
                };
                self.grants[grant].hold = Hold::Granted(memory);
            }
        }
    }
}
