//! Grants, counters, and pages that are written and read.

use farreach_memory::{Exposed, Memory};
use farreach_proto::ids::GrantId;
use farreach_proto::machine::{Direction, GrantRange, NewTransfer, Regions, ShortTransfer};
use farreach_proto::plan::{Extent, Pages, Plan, Side};
use farreach_proto::priority::Priority;
use farreach_proto::rights::Rights;
use farreach_proto::segments::{Segment, Segments};
use farreach_rail::{EndedKeys, Held, Properties};

use super::content::{Content, Layout, WORN};
use super::fate::PIECE;
use super::thing::{Count, Grant, Hold, Page, Source, Transfer, Word};
use super::world::{What, World, broken, tell};
use crate::answers::Awaited;
use crate::{Odds, SimCard};
use farreach_proto::time::Time;

impl World {
    /// Grants memory from one end of a connection to the other.
    pub(super) fn grant(&mut self, connection: usize, end: usize, rights: Rights) -> Option<usize> {
        let (now, host) = (self.now, self.connections[connection].ends[end].host);
        let key = self.connections[connection].ends[end].key();
        // Before the hello of the peer no rail is chosen.
        if self.hosts[host].grant_scopes(key).is_empty() {
            return None;
        }
        let mut slice = self.hosts[host].free.pop()?;
        let layout = match rights.contains(Rights::ATOMIC) {
            true => Layout { page_len: 8, stride: 8, offset: 0, count: 1 + self.chance.index(6) },
            false => self.some_layout(),
        };
        let mut rest = slice.split_off(layout.len());
        rest.fill(WORN);
        let number = self.number();
        slice.fill(if rights.contains(Rights::ATOMIC) { 0 } else { WORN });
        let mut pages = vec![Page::default(); layout.count];
        if rights.contains(Rights::READ) {
            for (page, it) in pages.iter_mut().enumerate() {
                let content = Content { tag: number, page: page as u32 };
                content.fill(&mut slice[layout.start(page)..][..layout.page_len]);
                it.content = Some(content);
            }
        }
        let made = match self.hosts[host].grant(key, slice.expose(), rights, now) {
            Ok(made) => made,
            Err((error, memory)) => {
                let may_fail = self.scenario.network.odds.setup_fails > 0 || self.has_broken_card(host);
                if !may_fail && self.is_honest(connection) {
                    broken!(self, "memory cannot be granted: {error}");
                }
                self.count("grants refused", 1);
                let Some(memory) = memory else { broken!(self, "a rail keeps memory that was not granted") };
                match memory.try_into_slice() {
                    Ok(slice) => self.put_away(host, slice, Some(rest)),
                    // No link is ended for it: no peer has got the keys.
                    Err(memory) => self.put_aside(host, memory, true, false),
                }
                return None;
            }
        };
        let are_atomics = rights.contains(Rights::ATOMIC);
        let words = if are_atomics { layout.count } else { 0 };
        let words = (0..words).map(|_| Word { candidates: vec![0], ..Word::default() }).collect();
        let (hold, rest, len) = (Hold::Granted(made.memory), Some(rest), layout.len());
        let grant = self.grants.len();
        tell!(
            self,
            "grant: number, connection, end, id, pages",
            grant,
            connection,
            end,
            made.id.to_raw(),
            layout.count
        );
        self.grants.push(Grant {
            connection,
            end,
            host,
            id: made.id,
            scope: made.scope,
            rights,
            len,
            layout,
            pages,
            words,
            hold,
            published: None,
            is_revoked: false,
            has_word: false,
            rest,
        });
        self.count("grants", 1);
        Some(grant)
    }

    fn some_layout(&mut self) -> Layout {
        let page_len = self.chance.one_of(&self.scenario.page_lens).unwrap_or(8);
        let stride = page_len + 8 * self.chance.below(8).saturating_sub(6) as usize;
        let offset = 8 * self.chance.below(8).saturating_sub(4) as usize;
        let most = (PIECE - offset) / stride;
        let count = match self.chance.below(4) {
            0 => most,
            1 => 1,
            _ => 1 + self.chance.index(most.min(24)),
        };
        Layout { page_len, stride, offset, count }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Puts away memory that is the user's again: it is overwritten at once.
    pub(super) fn put_away(
        &mut self,
        host: usize,
        mut slice: farreach_memory::Slice,
        rest: Option<farreach_memory::Slice>,
    ) {
        slice.fill(WORN);
        if let Some(rest) = rest
            && slice.unsplit(rest).is_err()
        {
            broken!(self, "memory came back that is not the memory that was granted");
        }
        self.hosts[host].free.push(slice);
    }

    /// Puts aside memory that is not proven to be free. The user gets other memory instead.
    /// `has_word`: the peer has said that it has stopped, so its links were not ended for a proof.
    /// `is_hasty`: it was asked for so late before the deadline that a report may come after it.
    pub(super) fn put_aside(&mut self, host: usize, memory: Exposed, has_word: bool, is_hasty: bool) {
        // A fault may delay a report beyond the deadline.
        let may_be_late = is_hasty
            || self.scenario.network.odds != Odds::default()
            || !self.scenario.faults.is_empty()
            || self.scenario.lying.is_some();
        let is_expected = |card: &SimCard| {
            let Properties { ended_keys, links_end_alone, .. } = card.properties;
            match ended_keys {
                EndedKeys::StopAll => false,
                EndedKeys::StopNew => !links_end_alone || has_word,
                EndedKeys::Reported => may_be_late,
            }
        };
        let may_fail = self.scenario.network.odds.end_key_fails > 0 || self.has_broken_card(host);
        if !may_fail && !self.scenario.hosts[host].iter().any(is_expected) {
            broken!(self, "memory is not proven to be free, and every card of host {host} can prove it");
        }
        self.count("grants back without a proof", 1);
        self.unproven.push((host, memory));
        if let Ok(fresh) = Memory::allocate(PIECE)
            && self.hosts[host].carrier().register(fresh.memory()).is_ok()
        {
            self.hosts[host].free.push(fresh);
        }
    }

    pub(super) fn open_count(&mut self, connection: usize, end: usize) -> Option<usize> {
        let (now, host) = (self.now, self.connections[connection].ends[end].host);
        let key = self.connections[connection].ends[end].key();
        let id = self.hosts[host].machine().open_counter(key, Time::from_nanos(now))?;
        let view = self.hosts[host].answers.add_counter(id);
        let number = self.counts.len();
        tell!(self, "counter: number, connection, end, id", number, connection, end, id.to_raw());
        self.counts.push(Count::new((connection, end), host, id, view));
        self.count("counters", 1);
        Some(number)
    }

    pub(super) fn close_count(&mut self, count: usize) {
        let now = self.now;
        let it = &mut self.counts[count];
        it.is_closed = true;
        let (host, id) = (it.host, it.id);
        tell!(self, "close: counter", count);
        if self.counts[count].shared.is_some() {
            // Its peer is lost, and the machine has closed it.
            return self.hosts[host].answers.remove_counter(id);
        }
        self.hosts[host].machine().close_counter(id, Time::from_nanos(now));
        self.hosts[host].answers.remove_counter(id);
    }

    /// Returns a grant of the other end that this one knows of and may use with these rights.
    pub(super) fn some_grant(&mut self, connection: usize, end: usize, rights: Rights) -> Option<usize> {
        let (host, key) =
            (self.connections[connection].ends[end].host, self.connections[connection].ends[end].key());
        let theirs = self.grants.iter().enumerate().filter(|(_, grant)| {
            (grant.connection, grant.end) == (connection, 1 - end)
                && grant.is_usable()
                && grant.rights.contains(rights)
        });
        let theirs: Vec<(usize, GrantId)> = theirs.map(|(place, grant)| (place, grant.id)).collect();
        let machine = self.hosts[host].machine.as_mut()?;
        let known: Vec<usize> = theirs
            .into_iter()
            .filter(|(_, id)| machine.granted(key, *id).is_some())
            .map(|(place, _)| place)
            .collect();
        self.chance.one_of(&known)
    }

    fn some_count(&mut self, connection: usize, end: usize) -> Option<usize> {
        let (host, key) =
            (self.connections[connection].ends[end].host, self.connections[connection].ends[end].key());
        let theirs =
            self.counts.iter().enumerate().filter(|(_, count)| {
                (count.connection, count.end) == (connection, 1 - end) && !count.is_closed
            });
        let theirs: Vec<_> = theirs.map(|(place, count)| (place, count.id)).collect();
        let machine = self.hosts[host].machine.as_mut()?;
        let known: Vec<usize> = theirs
            .into_iter()
            .filter(|(_, id)| machine.knows_counter(key, *id))
            .map(|(place, _)| place)
            .collect();
        self.chance.one_of(&known)
    }

    /// Returns some of the pages of a grant that `is_fit` accepts: adjacent, or scattered.
    fn some_pages(&mut self, grant: usize, is_fit: impl Fn(&Page) -> bool) -> Vec<usize> {
        let pages = &self.grants[grant].pages;
        let mut fit: Vec<usize> = (0..pages.len()).filter(|page| is_fit(&pages[*page])).collect();
        if fit.is_empty() {
            return fit;
        }
        let count = match self.chance.below(4) {
            0 => 1,
            1 => fit.len(),
            _ => 1 + self.chance.index(fit.len().min(12)),
        };
        match self.chance.once_in(2) {
            true => {
                let first = self.chance.index(fit.len() - count + 1);
                fit.drain(..first);
            }
            false => self.chance.shuffle(&mut fit),
        }
        fit.truncate(count);
        fit
    }

    pub(super) fn wish_write(&mut self, host: usize) {
        let Some((connection, end)) = self.some_connection(host) else { return };
        let Some(grant) = self.some_grant(connection, end, Rights::WRITE) else { return };
        let is_fit = |page: &Page| !page.is_written && page.readers == 0 && !page.is_spoiled;
        let pages = self.some_pages(grant, is_fit);
        let counter = if self.chance.once_in(4) { None } else { self.some_count(connection, end) };
        self.write(connection, end, grant, &pages, counter);
    }

    /// Sometimes writes again what was just written: a late part of the first write would undo the
    /// second.
    pub(super) fn may_write_again(&mut self, transfer: &Transfer) {
        let Transfer { connection, end, grant, .. } = *transfer;
        if !self.is_storm || !self.chance.once_in(self.scenario.rewrite_once_in) {
            return;
        }
        let is_usable = self.connections[connection].ends[end].is_usable() && self.grants[grant].is_usable();
        let is_open = |counter: &usize| !self.counts[*counter].is_closed;
        let counter = transfer.counter.filter(is_open);
        let is_fit = |page: &Page| !page.is_written && page.readers == 0 && !page.is_spoiled;
        let pages = transfer.pages.iter().map(|(page, _)| *page);
        let pages: Vec<usize> = pages.filter(|page| is_fit(&self.grants[grant].pages[*page])).collect();
        if is_usable {
            self.write(connection, end, grant, &pages, counter);
            // A refusal is answered at once.
            self.hosts[transfer.host].deliver();
        }
    }

    /// Writes pages, from memory of its own or shared with others.
    pub(super) fn write(
        &mut self,
        connection: usize,
        end: usize,
        grant: usize,
        pages: &[usize],
        counter: Option<usize>,
    ) {
        let host = self.connections[connection].ends[end].host;
        let page_len = self.grants[grant].layout.page_len;
        if pages.is_empty() {
            return;
        }
        self.check_pages(grant, pages.iter().copied());
        let (held, tag, layout, source) = match self.some_source(host, page_len) {
            Some(source) => source,
            None => return,
        };
        let mut places: Vec<u32> = (0..pages.len()).map(|place| (place % layout.count) as u32).collect();
        if self.chance.once_in(2) {
            self.chance.shuffle(&mut places);
        }
        let contents: Vec<(usize, Content)> =
            pages.iter().zip(&places).map(|(page, place)| (*page, Content { tag, page: *place })).collect();
        for (page, _) in &contents {
            self.grants[grant].pages[*page].is_written = true;
        }
        if let Some(counter) = counter {
            let it = &mut self.counts[counter];
            it.total += contents.len() as u64;
            it.missing.extend(contents.iter().map(|(page, content)| (grant, *page, *content)));
            it.under_way += 1;
        }
        self.count("writes", 1);
        self.submit(
            (connection, end),
            Direction::Write,
            held,
            grant,
            contents,
            (layout, places),
            counter,
            source,
        );
    }

    /// Returns a source: newly filled, or one that others read from.
    fn some_source(&mut self, host: usize, page_len: usize) -> Option<(Held, u64, Layout, Option<usize>)> {
        let is_fit = |source: &Source| {
            source.host == host && source.layout.page_len == page_len && source.shared.is_some()
        };
        if self.chance.once_in(4)
            && let Some(place) = self.sources.iter().position(is_fit)
            && let Some(shared) = self.sources[place].shared.clone()
        {
            self.sources[place].users += 1;
            let Source { tag, layout, .. } = self.sources[place];
            return Some((Held::Shared(shared), tag, layout, Some(place)));
        }
        let mut slice = self.hosts[host].free.pop()?;
        let tag = self.number();
        let stride = page_len + if self.chance.once_in(4) { 8 } else { 0 };
        let layout = Layout { page_len, stride, offset: 0, count: PIECE / stride };
        for page in 0..layout.count {
            Content { tag, page: page as u32 }.fill(&mut slice[layout.start(page)..][..page_len]);
        }
        if !self.chance.once_in(5) {
            return Some((Held::Lent(slice.lend()), tag, layout, None));
        }
        let shared = slice.share();
        let (held, place) = (Held::Shared(shared.clone()), self.sources.len());
        self.sources.push(Source { host, shared: Some(shared), tag, layout, users: 1, is_held: false });
        Some((held, tag, layout, Some(place)))
    }

    pub(super) fn wish_read(&mut self, host: usize) {
        let Some((connection, end)) = self.some_connection(host) else { return };
        let Some(grant) = self.some_grant(connection, end, Rights::READ) else { return };
        let is_fit = |page: &Page| !page.is_written && page.content.is_some() && !page.is_spoiled;
        let pages = self.some_pages(grant, is_fit);
        self.read(connection, end, grant, &pages);
    }

    pub(super) fn read(&mut self, connection: usize, end: usize, grant: usize, pages: &[usize]) {
        let host = self.connections[connection].ends[end].host;
        let page_len = self.grants[grant].layout.page_len;
        let layout = Layout { page_len, stride: page_len, offset: 0, count: PIECE / page_len };
        let mut places: Vec<u32> = (0..pages.len() as u32).collect();
        self.chance.shuffle(&mut places);
        let held_pages = &mut self.grants[grant].pages;
        let contents: Vec<(usize, Content)> =
            pages.iter().filter_map(|page| Some((*page, held_pages[*page].content?))).collect();
        if contents.is_empty() {
            return;
        }
        let Some(slice) = self.hosts[host].free.pop() else { return };
        contents.iter().for_each(|(page, _)| held_pages[*page].readers += 1);
        let held = Held::Lent(slice.lend());
        self.count("reads", 1);
        self.submit((connection, end), Direction::Read, held, grant, contents, (layout, places), None, None);
    }

    fn may_be_given_up(&mut self, number: u64) {
        if self.is_storm && self.chance.once_in(2) {
            let patience = self.chance.below(2 * self.scenario.tuning.silence);
            self.schedule(self.now + patience, What::GiveUp { number });
        }
    }

    fn planned(&self, planned: Result<Plan, farreach_proto::plan::PlanError>) -> Plan {
        match planned {
            Ok(plan) => plan,
            Err(error) => broken!(self, "a plan that should do does not: {error}"),
        }
    }

    /// Plans the same pages as segments: each in the range of the transfer, which begins at `base`, or in
    /// all of the grant.
    fn planned_segments(
        &mut self,
        direction: Direction,
        len: u64,
        (own, theirs): (&Pages, &Pages),
        [range, all]: [GrantRange; 2],
        base: u64,
    ) -> Plan {
        let side = match direction {
            Direction::Write => Side::Source,
            Direction::Read => Side::Destination,
        };
        let mut segments = Vec::new();
        for place in 0..own.indices.len() {
            let (own, remote) = (own.start(place).unwrap(), theirs.start(place).unwrap());
            segments.push(match self.chance.once_in(2) {
                true => Segment { own, remote, len, region: 0 },
                false => Segment { own, remote: remote + base, len, region: 1 },
            });
        }
        match Segments::new(segments, &[range.len, all.len], side) {
            Ok(segments) => Plan::of_segments(segments),
            Err(error) => broken!(self, "segments that should do do not: {error}"),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a transfer has as many")]
    fn submit(
        &mut self,
        (connection, end): (usize, usize),
        direction: Direction,
        held: Held,
        grant: usize,
        pages: Vec<(usize, Content)>,
        (layout, places): (Layout, Vec<u32>),
        counter: Option<usize>,
        source: Option<usize>,
    ) {
        let (now, host) = (self.now, self.connections[connection].ends[end].host);
        let (number, peer) = (self.number(), self.connections[connection].ends[end].key());
        let deadline = self.some_deadline();
        let it = &self.grants[grant];
        let indices = pages.iter().map(|(page, _)| *page as u32).collect();
        let (stride, offset) = (it.layout.stride as u64, it.layout.offset as u64);
        // The same pages, relative to the grant or to a part of it.
        let base = if self.chance.once_in(2) { offset } else { 0 };
        let len = it.len as u64 - base;
        let theirs = (Pages { indices, stride, offset: offset - base }, len);
        let (own, page_len) = ((own_pages(&layout, &places), held.len()), it.layout.page_len as u64);
        let only_page = |pages: &Pages| {
            let offset = pages.start(0).filter(|_| pages.indices.len() == 1)?;
            Some(Extent { offset, len: page_len })
        };
        let only_page = only_page(&own.0).zip(only_page(&theirs.0));
        let is_wrong = self.chance.once_in(60);
        let priority = self.chance.one_of(&Priority::ALL).unwrap_or_default();
        let (op, answer) = self.hosts[host].answers.expect(Awaited::Transfer);
        let range = GrantRange { grant: it.id, base: if is_wrong { base + 8 } else { base }, len };
        // As pages of one range, or as segments of two.
        let all = GrantRange { grant: it.id, base: 0, len: it.len as u64 };
        let (plan, regions) = match self.chance.once_in(3) {
            true => {
                let planned =
                    self.planned_segments(direction, page_len, (&own.0, &theirs.0), [range, all], base);
                (planned, Regions::List([range, all].into()))
            }
            false => {
                let planned = self.planned(match direction {
                    Direction::Write => Plan::new(page_len, own, theirs),
                    Direction::Read => Plan::reading(page_len, theirs, own),
                });
                (planned, range.into())
            }
        };
        let order = NewTransfer {
            op,
            peer,
            direction,
            plan,
            regions,
            counter: counter.map(|counter| self.counts[counter].id),
            priority,
            deadline: deadline.map(Time::from_nanos),
        };
        let (count, counted) = (pages.len(), counter.map_or(u64::MAX, |counter| counter as u64));
        tell!(
            self,
            "submit: transfer, connection, end, grant, pages, counter",
            number,
            connection,
            end,
            grant,
            count,
            counted
        );
        self.connections[connection].ends[end].transfers += 1;
        let short = only_page.map(|(own, remote)| {
            let (GrantRange { grant, base, len }, counter, deadline) = (range, order.counter, order.deadline);
            ShortTransfer { peer, direction, own, remote, grant, base, len, counter, priority, deadline }
        });
        let performed = short.and_then(|short| self.hosts[host].perform(&short, &held, now));
        self.hosts[host].carrier().hold(op, held);
        match performed {
            Some(stats) => {
                self.count("performed", 1);
                self.hosts[host].tell_performed(op, stats);
            }
            None => drop(self.hosts[host].machine().submit(order, Time::from_nanos(now))),
        }
        self.may_be_given_up(number);
        self.transfers.push(Transfer {
            begun_at: self.now,
            number,
            op,
            host,
            connection,
            end,
            direction,
            grant,
            pages,
            layout,
            places,
            counter,
            source,
            answer,
            is_given_up: false,
            is_wrong,
            deadline,
        });
    }

    /// Returns a deadline for some transfers: most pass while it is queued, in flight, or on a lost link.
    fn some_deadline(&mut self) -> Option<u64> {
        if !self.is_storm || !self.chance.once_in(4) {
            return None;
        }
        let most = match self.chance.below(4) {
            0 => 1,
            1 => self.scenario.tuning.stall,
            _ => 2_000_000,
        };
        Some(self.now + self.chance.below(most))
    }
}

fn own_pages(layout: &Layout, places: &[u32]) -> Pages {
    Pages { indices: places.into(), stride: layout.stride as u64, offset: layout.offset as u64 }
}
