//! What a sender does for one peer: transfers go in, operations for its links come out, and every page is counted once at the receiver, whatever
//! link is lost on the way.
//!
//! The caller has the cards, and the table of what is in flight. He asks for the [next](Outbox::next_post) operation, posts it, and hands it back when its bytes are there: an
//! operation that is only *sent* is not done, because its link may be lost before it lands, and then it is to be sent again. When a link is lost he first
//! makes its card stop and takes every buffer back, and then [says so](Outbox::lose): what was in flight on it goes to the others, without immediates. The
//! receiver is asked how many pages it has counted from that link; when it has answered, and what was sent again is delivered, it is told the
//! difference.

mod state;

use std::collections::{BTreeMap, VecDeque};

use crate::counter::{CounterId, IMMEDIATE_PAGES_MAX, Immediate, LinkId, Reported};
use crate::credit::Credits;
use crate::plan::{Limits, Operation, Plan};
use crate::route::Links;
use crate::sequence::Sequence;
use crate::wire::Frame;
pub use state::Posted;
use state::{Owed, Resend, Transfer};

/// Neighbours are joined up to so many bytes. Longer operations would be no cheaper, and links could not share them.
const JOINED_MAX: u64 = 256 * 1024;

/// One link to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSettings {
    /// Its connection.
    pub id: LinkId,
    /// What one operation on it can do.
    pub limits: Limits,
    /// How many operations it may have in flight.
    pub window: u32,
    /// Its share.
    pub weight: u32,
}

/// Names a transfer of one outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(u64);

impl TransferId {
    /// How many transfers the outbox had before.
    pub fn index(self) -> u64 {
        self.0
    }
}

/// What one outbox has to do.
#[derive(Debug)]
pub struct Outbox {
    links: Links,
    settings: Vec<LinkSettings>,
    windows: Vec<Credits>,
    transfers: Sequence<Transfer>,
    next_transfer: u64,
    reported: Reported,
    owed: BTreeMap<(LinkId, CounterId), Owed>,
    finished: VecDeque<Finished>,
    /// Operations that are done: their room is used again.
    spare: Vec<Operation>,
}

/// A transfer that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Which.
    pub transfer: TransferId,
    /// Whether all of it is there. Only of one that was [aborted](Outbox::abort) something can be missing.
    pub is_whole: bool,
}

impl Outbox {
    /// For these links.
    pub fn new(settings: Vec<LinkSettings>) -> Self {
        let weights: Vec<u32> = settings.iter().map(|link| link.weight).collect();
        let windows: Vec<Credits> = settings.iter().map(|link| Credits::new(link.window)).collect();
        Self {
            links: Links::new(&weights),
            settings,
            windows,
            transfers: Sequence::new(),
            next_transfer: 0,
            reported: Reported::new(),
            owed: BTreeMap::new(),
            finished: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Bytes that it holds: transfers with the lists of their pages, and operations.
    ///
    /// ```
    /// let outbox = farreach_proto::outbox::Outbox::new(Vec::new());
    /// assert_eq!(outbox.memory(), 0);
    /// ```
    pub fn memory(&self) -> usize {
        let lists: usize = self.transfers.iter().map(|(_, transfer)| transfer.plan.memory()).sum();
        self.settings.capacity() * size_of::<LinkSettings>()
            + self.spare.capacity() * size_of::<Operation>()
            + self.transfers.capacity() * size_of::<Transfer>()
            + lists
    }

    /// Takes a transfer, whose pages raise this counter of the receiver's.
    pub fn submit(&mut self, plan: Plan, counter: Option<CounterId>) -> TransferId {
        let id = TransferId(self.next_transfer);
        self.next_transfer += 1;
        let transfer = Transfer {
            plan,
            counter,
            in_flight: 0,
            begun_on: None,
            unreported: vec![0; self.settings.len()],
            refused: VecDeque::new(),
            resends: VecDeque::new(),
            owed: 0,
            is_aborted: false,
            is_incomplete: false,
        };
        self.transfers.put(id.0, transfer);
        self.check_done(id);
        id
    }

    /// The next operation that there is room for. It is in flight from now on.
    pub fn next_post(&mut self) -> Option<Posted> {
        let mut from = 0;
        loop {
            // Without room anywhere no transfer needs to be looked at.
            if !(0..self.settings.len()).any(|link| self.has_room(link)) {
                return None;
            }
            let (id, _) = self.transfers.iter_from(from).next()?;
            if let Some(post) = self.next_of(TransferId(id)) {
                return Some(post);
            }
            from = id + 1;
        }
    }

    fn next_of(&mut self, id: TransferId) -> Option<Posted> {
        self.next_resend(id)
            .or_else(|| self.next_refused(id))
            .or_else(|| self.next_planned(id))
            .or_else(|| self.next_notification(id))
    }

    /// What a lost link had in flight.
    fn next_resend(&mut self, id: TransferId) -> Option<Posted> {
        let first = self.transfers.get(id.0)?.resends.front()?;
        let link = self.pick(first.operation.bytes)?;
        let Resend { operation, owed, pages } = self.transfers.get_mut(id.0)?.resends.pop_front()?;
        let mut parts = operation.split(&self.settings[link].limits);
        let first = parts.remove(0);
        let transfer = self.transfers.get_mut(id.0)?;
        if let Some(owed) = owed.and_then(|owed| self.owed.get_mut(&owed)) {
            owed.resends += parts.len();
        }
        for part in parts.into_iter().rev() {
            transfer.resends.push_front(Resend { operation: part, owed, pages });
        }
        self.post(id, link, first, None, owed, pages)
    }

    fn next_refused(&mut self, id: TransferId) -> Option<Posted> {
        let transfer = self.transfers.get_mut(id.0)?;
        let place = transfer
            .refused
            .iter()
            .position(|(link, _)| self.windows[*link].free() > 0 && self.links.is_alive(*link))?;
        let (link, operation) = transfer.refused.remove(place)?;
        self.post_counted(id, link, operation)
    }

    fn next_planned(&mut self, id: TransferId) -> Option<Posted> {
        let transfer = self.transfers.get(id.0)?;
        if transfer.plan.pages_left() == 0 {
            return None;
        }
        let page_len = transfer.plan.page_len();
        let takes_more = |link: usize| self.windows[link].free() > 0;
        let link = match transfer.begun_on {
            Some(link) => Some(link).filter(|link| takes_more(*link)),
            None => self.links.pick(page_len, takes_more),
        }?;
        let mut limits = self.settings[link].limits;
        limits.pages = limits.pages.min(IMMEDIATE_PAGES_MAX);
        limits.bytes = limits.bytes.min(JOINED_MAX.max(page_len));
        let mut operation = self.spare.pop().unwrap_or_default();
        let transfer = self.transfers.get_mut(id.0)?;
        transfer.plan.next(&limits, &mut operation).then_some(())?;
        transfer.begun_on = transfer.plan.is_in_page().then_some(link);
        self.post_counted(id, link, operation)
    }

    /// An immediate without bytes, for a link that has pages that were not told of, when no more will follow there.
    fn next_notification(&mut self, id: TransferId) -> Option<Posted> {
        let transfer = self.transfers.get(id.0)?;
        transfer.counter?;
        if transfer.plan.pages_left() > 0 || !transfer.refused.is_empty() {
            return None;
        }
        let is_due = |link: &usize| transfer.unreported[*link] > 0 && self.has_room(*link);
        let link = (0..self.settings.len()).find(is_due)?;
        self.post_counted(id, link, Operation::default())
    }

    fn has_room(&self, link: usize) -> bool {
        self.windows[link].free() > 0 && self.links.is_alive(link)
    }

    fn pick(&self, bytes: u64) -> Option<usize> {
        self.links.pick(bytes, |link| self.windows[link].free() > 0)
    }

    /// Posts an operation whose pages are to be told of: at once where the link keeps no order; where it does, by the last one of the
    /// transfer there, or when an immediate can tell of no more.
    fn post_counted(&mut self, id: TransferId, link: usize, operation: Operation) -> Option<Posted> {
        let limits = self.settings[link].limits;
        let transfer = self.transfers.get_mut(id.0)?;
        let pages = transfer.unreported[link] + operation.pages;
        let is_last = transfer.plan.pages_left() == 0 && transfer.refused.is_empty();
        let is_full = pages + limits.pages.min(IMMEDIATE_PAGES_MAX) > IMMEDIATE_PAGES_MAX;
        let tells = !limits.is_ordered || is_last || is_full;
        let immediate = transfer.counter.filter(|_| tells).and_then(|counter| Immediate::new(counter, pages));
        transfer.unreported[link] = match immediate {
            Some(_) => 0,
            None if transfer.counter.is_some() => pages,
            None => 0,
        };
        if let Some(immediate) = immediate {
            self.reported.add(self.settings[link].id, immediate);
        }
        // A part of a page is as good as the page.
        let pages = operation.pages.max(1);
        self.post(id, link, operation, immediate, None, pages)
    }

    fn post(
        &mut self,
        transfer: TransferId,
        link: usize,
        operation: Operation,
        immediate: Option<Immediate>,
        owed: Option<(LinkId, CounterId)>,
        pages: u32,
    ) -> Option<Posted> {
        let took = self.windows[link].take(1);
        debug_assert!(took, "only a link with room is picked");
        self.links.charge(link, operation.bytes);
        let of = self.transfers.get_mut(transfer.0)?;
        of.in_flight += 1;
        Some(Posted { link, transfer, operation, immediate, owed, pages })
    }

    /// The card had no room for it: it is not in flight, and comes again.
    pub fn refuse(&mut self, posted: Posted) {
        self.take(&posted);
        let Posted { link, transfer, operation, immediate, owed, pages } = posted;
        let Some(of) = self.transfers.get_mut(transfer.0) else { return };
        if owed.is_some() || (immediate.is_none() && of.counter.is_none()) {
            of.resends.push_front(Resend { operation, owed, pages });
            return;
        }
        // What it would have reported is unreported again, but for its own pages, which are counted when it is posted again.
        let told = immediate.map_or(of.unreported[link], Immediate::pages);
        of.unreported[link] = told.saturating_sub(operation.pages);
        if let Some(immediate) = immediate {
            self.reported.remove(self.settings[link].id, immediate);
        }
        if operation.bytes > 0 {
            of.refused.push_front((link, operation));
        }
    }

    /// Its bytes are there, and its buffers are back. (What failed is not done: its link is to be stopped, and then [lost](Self::lose).)
    pub fn complete(&mut self, posted: Posted) -> Vec<Frame> {
        self.take(&posted);
        let Posted { transfer, owed, operation, .. } = posted;
        self.spare.push(operation);
        let mut frames = Vec::new();
        if let Some(key) = owed {
            if let Some(owed) = self.owed.get_mut(&key) {
                owed.resends -= 1;
            }
            frames.extend(self.reconcile(key));
        }
        self.check_done(transfer);
        frames
    }

    /// It is not in flight any more.
    fn take(&mut self, posted: &Posted) {
        self.windows[posted.link].give(1);
        self.links.finish(posted.link, posted.operation.bytes);
        if let Some(transfer) = self.transfers.get_mut(posted.transfer.0) {
            transfer.in_flight -= 1;
        }
    }

    /// A link gets nothing more for now: it is not connected yet, or about to be lost. What it has in flight goes on.
    pub fn pause(&mut self, link: usize) {
        self.links.pause(link);
        for transfer in self.transfers.values_mut() {
            if transfer.begun_on.take_if(|begun_on| *begun_on == link).is_some() {
                transfer.plan.restart_page();
            }
        }
    }

    /// Gives a transfer up: nothing more of it is posted, and it is finished when what is in flight is done. Where all of it is in flight
    /// already, and no link is lost meanwhile, it is whole all the same.
    pub fn abort(&mut self, id: TransferId) -> Vec<Frame> {
        let Some(transfer) = self.transfers.get_mut(id.0) else { return Vec::new() };
        transfer.is_aborted = true;
        let is_posted =
            transfer.plan.pages_left() == 0 && transfer.refused.is_empty() && transfer.resends.is_empty();
        if is_posted {
            return Vec::new();
        }
        transfer.abort_rest();
        let mut frames = Vec::new();
        for Resend { owed, pages, .. } in std::mem::take(&mut transfer.resends) {
            frames.extend(owed.and_then(|key| self.abort_resend(key, pages)));
        }
        self.check_done(id);
        frames
    }

    /// Whether something of a transfer is missing, and will be.
    pub fn is_incomplete(&self, id: TransferId) -> bool {
        self.transfers.get(id.0).is_some_and(|transfer| transfer.is_incomplete)
    }

    /// What was to be resent is not, since its transfer was aborted.
    fn abort_resend(&mut self, key: (LinkId, CounterId), pages: u32) -> Option<Frame> {
        let owed = self.owed.get_mut(&key)?;
        owed.resends -= 1;
        owed.aborted += u64::from(pages);
        self.reconcile(key)
    }

    /// A link is lost. Its card has stopped, every buffer that it had is back, and this is what it had in flight or has failed with.
    pub fn lose(&mut self, link: usize, lost: impl IntoIterator<Item = Posted>) -> Vec<Frame> {
        let link_id = self.settings[link].id;
        let reported: BTreeMap<CounterId, u64> = self.reported.lose(link_id).into_iter().collect();
        for (counter, pages) in &reported {
            self.owed.entry((link_id, *counter)).or_default().reported = *pages;
        }
        let mut frames = Vec::new();
        for posted in lost {
            self.take(&posted);
            frames.extend(self.resend(link_id, posted));
        }
        self.pause(link);
        self.links.lose(link);
        let ids: Vec<TransferId> = self.transfers.iter().map(|(id, _)| TransferId(id)).collect();
        for id in ids {
            self.owe_unreported(link_id, link, id);
            // Where it was an immediate that was in flight, and nobody is to be told any more.
            self.check_done(id);
        }
        let settle =
            |(link_id, counter): &(LinkId, CounterId)| Frame::Settle { link: *link_id, counter: *counter };
        frames.extend(self.owed.keys().filter(|(of, _)| *of == link_id).map(settle));
        frames
    }

    /// What was in flight: it goes to another link, and its pages are told of by a frame; unless its transfer was aborted.
    fn resend(&mut self, link_id: LinkId, posted: Posted) -> Option<Frame> {
        let Posted { transfer: id, operation, owed: old_owed, pages, .. } = posted;
        let transfer = self.transfers.get_mut(id.0)?;
        let (has_bytes, new_owed) =
            (operation.bytes > 0, (link_id, transfer.counter.unwrap_or(CounterId::NONE)));
        // Resent already for another lost link: what is owed for that one stays.
        let owed = old_owed.unwrap_or(new_owed);
        if old_owed.is_none() {
            self.owed.entry(owed).or_default().resends += usize::from(has_bytes);
        }
        if transfer.is_aborted && has_bytes {
            transfer.abort_rest();
            let frame = self.abort_resend(owed, pages);
            self.check_done(id);
            return frame;
        }
        // Also where there is nobody to be told: what was in flight may land until the receiver has stopped it. If the transfer were done
        // by then, it would undo what is written next.
        Self::add_owed(&mut self.owed, new_owed, id, transfer);
        if has_bytes {
            transfer.resends.push_back(Resend { operation, owed: Some(owed), pages });
        }
        None
    }

    /// What was posted without an immediate, or refused: nobody has told of it.
    fn owe_unreported(&mut self, link_id: LinkId, link: usize, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(id.0) else { return };
        let refused: Vec<Operation> = {
            let (mine, others) = transfer.refused.drain(..).partition::<Vec<_>, _>(|(of, _)| *of == link);
            transfer.refused = others.into();
            mine.into_iter().map(|(_, operation)| operation).collect()
        };
        let unreported = std::mem::take(&mut transfer.unreported[link]);
        let refused_pages: u32 = refused.iter().map(|operation| operation.pages).sum();
        let key = transfer.counter.map(|counter| (link_id, counter));
        if let Some(key) = key.filter(|_| unreported + refused_pages > 0 || !refused.is_empty()) {
            let owed = self.owed.entry(key).or_default();
            owed.unreported += u64::from(unreported + refused_pages);
            owed.resends += refused.len();
            Self::add_owed(&mut self.owed, key, id, transfer);
        }
        let resends = |operation: Operation| Resend { pages: operation.pages.max(1), operation, owed: key };
        transfer.resends.extend(refused.into_iter().map(resends));
    }

    fn add_owed(
        owed: &mut BTreeMap<(LinkId, CounterId), Owed>,
        key: (LinkId, CounterId),
        id: TransferId,
        transfer: &mut Transfer,
    ) {
        let owed = owed.entry(key).or_default();
        if !owed.transfers.contains(&id) {
            owed.transfers.push(id);
            transfer.owed += 1;
        }
    }

    /// The receiver has counted so many pages from a lost link.
    pub fn settled(&mut self, link_id: LinkId, counter: CounterId, pages: u64) -> Vec<Frame> {
        if let Some(owed) = self.owed.get_mut(&(link_id, counter)) {
            owed.settled = Some(pages);
        }
        self.reconcile((link_id, counter)).into_iter().collect()
    }

    /// Tells the receiver of what it has not counted, when all of it is there.
    fn reconcile(&mut self, key: (LinkId, CounterId)) -> Option<Frame> {
        let owed = self.owed.get(&key)?;
        let settled = owed.settled.filter(|_| owed.resends == 0)?;
        let owed = self.owed.remove(&key)?;
        for id in owed.transfers {
            if let Some(transfer) = self.transfers.get_mut(id.0) {
                transfer.owed -= 1;
            }
            self.check_done(id);
        }
        let missing = owed.reported.saturating_sub(settled) + owed.unreported;
        let pages = missing.saturating_sub(owed.aborted);
        (pages > 0).then_some(Frame::Add { counter: key.1, pages })
    }

    /// A link is back, by a connection of another name.
    pub fn restore(&mut self, link: usize, link_id: LinkId) {
        self.settings[link].id = link_id;
        self.links.restore(link);
    }

    /// The receiver has closed a counter: nobody is told of what is left.
    pub fn forget(&mut self, counter: CounterId) {
        self.reported.forget(counter);
        let of_counter = self.transfers.iter_mut().filter(|(_, transfer)| transfer.counter == Some(counter));
        let ids: Vec<TransferId> = of_counter
            .map(|(id, transfer)| {
                transfer.counter = None;
                transfer.unreported.fill(0);
                TransferId(id)
            })
            .collect();
        ids.into_iter().for_each(|id| self.check_done(id));
    }

    /// A transfer that is done since this was last asked: everything is sent, and all lost pages are reconciled.
    pub fn finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    fn check_done(&mut self, id: TransferId) {
        let is_done = self.transfers.get(id.0).is_some_and(|transfer| {
            // Asked after every operation, and seldom so.
            if transfer.in_flight > 0 {
                return false;
            }
            let is_posted = transfer.plan.pages_left() == 0
                && transfer.refused.is_empty()
                && transfer.resends.is_empty()
                && transfer.unreported.iter().all(|pages| *pages == 0);
            is_posted && transfer.owed == 0
        });
        if is_done && let Some(transfer) = self.transfers.take(id.0) {
            self.finished.push_back(Finished { transfer: id, is_whole: !transfer.is_incomplete });
        }
    }

    /// The peer is gone, and every buffer is back: nothing is left to do.
    pub fn clear(&mut self) {
        *self = Self { next_transfer: self.next_transfer, ..Self::new(std::mem::take(&mut self.settings)) };
    }

    /// How many operations are in flight.
    pub fn in_flight(&self) -> usize {
        self.transfers.iter().map(|(_, transfer)| transfer.in_flight).sum()
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.transfers.is_empty() && self.owed.is_empty()
    }
}
