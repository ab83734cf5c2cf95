//! What a sender does for one peer: transfers go in, operations for its rails come out, and every page is counted once at the receiver, whatever
//! rail is lost on the way.
//!
//! The caller has the cards. He asks for the [next](Outbox::next_post) operation, posts it, and says when its bytes are there: an operation that is only
//! *sent* is not done, because its rail may be lost before it lands, and then it is to be sent again. When a rail is lost he first
//! makes its card stop and takes every buffer back, and then [says so](Outbox::lose): what was under way on it goes to the others, without ticks. The
//! receiver is asked how many pages it has counted from that rail; when it has answered, and what was sent again is delivered, it is told the
//! difference.

mod state;

use std::collections::{BTreeMap, VecDeque};

use crate::counter::{Claims, CounterId, LinkId, TICK_PAGES_MAX, Tick};
use crate::credit::Credits;
use crate::inflight::{SlotId, Slots};
use crate::plan::{Limits, Operation, Plan};
use crate::route::Rails;
use crate::sequence::Sequence;
use crate::wire::Frame;
use state::{Again, Debt, Posted, Transfer};

/// Neighbours are joined up to so many bytes. Longer operations would be no cheaper, and rails could not share them.
const JOINED_MAX: u64 = 256 * 1024;

/// One rail to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RailSettings {
    /// Its connection.
    pub link: LinkId,
    /// What one operation on it can do.
    pub limits: Limits,
    /// How many operations it may have under way.
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

/// An operation to be posted: [`Outbox::operation`] says what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Post {
    /// Its number: the card gives it back.
    pub slot: SlotId,
    /// Which rail.
    pub rail: usize,
    /// Whose pages.
    pub transfer: TransferId,
    /// What it tells the receiver.
    pub tick: Option<Tick>,
}

/// What one outbox has to do.
#[derive(Debug)]
pub struct Outbox {
    rails: Rails,
    settings: Vec<RailSettings>,
    windows: Vec<Credits>,
    slots: Slots<Posted>,
    transfers: Sequence<Transfer>,
    next_transfer: u64,
    claims: Claims,
    debts: BTreeMap<(LinkId, CounterId), Debt>,
    finished: VecDeque<Finished>,
    /// Operations that are done: their room is used again.
    spare: Vec<Operation>,
}

/// A transfer that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Which.
    pub transfer: TransferId,
    /// Whether all of it is there. Only of one that was [given up](Outbox::abort) something can be missing.
    pub is_whole: bool,
}

impl Outbox {
    /// For these rails.
    pub fn new(settings: Vec<RailSettings>) -> Self {
        let weights: Vec<u32> = settings.iter().map(|rail| rail.weight).collect();
        let windows: Vec<Credits> = settings.iter().map(|rail| Credits::new(rail.window)).collect();
        let total = settings.iter().map(|rail| rail.window).fold(0, u32::saturating_add);
        Self {
            rails: Rails::new(&weights),
            settings,
            windows,
            slots: Slots::new(total),
            transfers: Sequence::new(),
            next_transfer: 0,
            claims: Claims::new(),
            debts: BTreeMap::new(),
            finished: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Bytes that it holds: transfers with the lists of their pages, and operations.
    ///
    /// ```
    /// let outbox = farreach_core::outbox::Outbox::new(Vec::new());
    /// assert_eq!(outbox.memory(), 0);
    /// ```
    pub fn memory(&self) -> usize {
        let lists: usize = self.transfers.iter().map(|(_, transfer)| transfer.plan.memory()).sum();
        self.settings.capacity() * size_of::<RailSettings>()
            + self.slots.capacity() * (size_of::<Posted>() + size_of::<Operation>())
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
            under_way: 0,
            begun_on: None,
            untold: vec![0; self.settings.len()],
            refused: VecDeque::new(),
            again: VecDeque::new(),
            debts: 0,
            is_given_up: false,
            is_short: false,
        };
        self.transfers.put(id.0, transfer);
        self.check_done(id);
        id
    }

    /// The next operation that there is room for. It is under way from now on.
    pub fn next_post(&mut self) -> Option<Post> {
        let mut from = 0;
        loop {
            // Without room anywhere no transfer needs to be looked at.
            if !(0..self.settings.len()).any(|rail| self.has_room(rail)) {
                return None;
            }
            let (id, _) = self.transfers.iter_from(from).next()?;
            if let Some(post) = self.next_of(TransferId(id)) {
                return Some(post);
            }
            from = id + 1;
        }
    }

    /// What a post is about, as long as it is under way. Without any bytes, it only carries its tick.
    pub fn operation(&self, slot: SlotId) -> Option<&Operation> {
        self.slots.get(slot).map(|posted| &posted.operation)
    }

    fn next_of(&mut self, id: TransferId) -> Option<Post> {
        self.next_again(id)
            .or_else(|| self.next_refused(id))
            .or_else(|| self.next_planned(id))
            .or_else(|| self.next_bell(id))
    }

    /// What a lost rail had under way.
    fn next_again(&mut self, id: TransferId) -> Option<Post> {
        let again = self.transfers.get(id.0)?.again.front()?;
        let rail = self.pick(again.operation.bytes)?;
        let Again { operation, debt, stake } = self.transfers.get_mut(id.0)?.again.pop_front()?;
        let mut parts = operation.split(&self.settings[rail].limits);
        let first = parts.remove(0);
        let transfer = self.transfers.get_mut(id.0)?;
        if let Some(debt) = debt.and_then(|debt| self.debts.get_mut(&debt)) {
            debt.again += parts.len();
        }
        for part in parts.into_iter().rev() {
            transfer.again.push_front(Again { operation: part, debt, stake });
        }
        self.post(id, rail, first, None, debt, stake)
    }

    fn next_refused(&mut self, id: TransferId) -> Option<Post> {
        let transfer = self.transfers.get_mut(id.0)?;
        let place = transfer
            .refused
            .iter()
            .position(|(rail, _)| self.windows[*rail].free() > 0 && self.rails.is_alive(*rail))?;
        let (rail, operation) = transfer.refused.remove(place)?;
        self.post_counted(id, rail, operation)
    }

    fn next_planned(&mut self, id: TransferId) -> Option<Post> {
        let transfer = self.transfers.get(id.0)?;
        if transfer.plan.pages_left() == 0 {
            return None;
        }
        let page_len = transfer.plan.page_len();
        let takes_more = |rail: usize| self.windows[rail].free() > 0;
        let rail = match transfer.begun_on {
            Some(rail) => Some(rail).filter(|rail| takes_more(*rail)),
            None => self.rails.pick(page_len, takes_more),
        }?;
        let mut limits = self.settings[rail].limits;
        limits.pages = limits.pages.min(TICK_PAGES_MAX);
        limits.bytes = limits.bytes.min(JOINED_MAX.max(page_len));
        let mut operation = self.spare.pop().unwrap_or_default();
        let transfer = self.transfers.get_mut(id.0)?;
        transfer.plan.next(&limits, &mut operation).then_some(())?;
        transfer.begun_on = transfer.plan.is_in_page().then_some(rail);
        self.post_counted(id, rail, operation)
    }

    /// A tick without bytes, for a rail that has pages that were not told of, when no more will follow there.
    fn next_bell(&mut self, id: TransferId) -> Option<Post> {
        let transfer = self.transfers.get(id.0)?;
        transfer.counter?;
        if transfer.plan.pages_left() > 0 || !transfer.refused.is_empty() {
            return None;
        }
        let is_due = |rail: &usize| transfer.untold[*rail] > 0 && self.has_room(*rail);
        let rail = (0..self.settings.len()).find(is_due)?;
        self.post_counted(id, rail, Operation::default())
    }

    fn has_room(&self, rail: usize) -> bool {
        self.windows[rail].free() > 0 && self.rails.is_alive(rail)
    }

    fn pick(&self, bytes: u64) -> Option<usize> {
        self.rails.pick(bytes, |rail| self.windows[rail].free() > 0)
    }

    /// Posts an operation whose pages are to be told of: at once where the rail keeps no order; where it does, by the last one of the
    /// transfer there, or when a tick can tell of no more.
    fn post_counted(&mut self, id: TransferId, rail: usize, operation: Operation) -> Option<Post> {
        let limits = self.settings[rail].limits;
        let transfer = self.transfers.get_mut(id.0)?;
        let pages = transfer.untold[rail] + operation.pages;
        let is_last = transfer.plan.pages_left() == 0 && transfer.refused.is_empty();
        let is_full = pages + limits.pages.min(TICK_PAGES_MAX) > TICK_PAGES_MAX;
        let tells = !limits.is_ordered || is_last || is_full;
        let tick = transfer.counter.filter(|_| tells).and_then(|counter| Tick::new(counter, pages));
        transfer.untold[rail] = match tick {
            Some(_) => 0,
            None if transfer.counter.is_some() => pages,
            None => 0,
        };
        if let Some(tick) = tick {
            self.claims.claim(self.settings[rail].link, tick);
        }
        // A part of a page is as good as the page.
        let stake = operation.pages.max(1);
        self.post(id, rail, operation, tick, None, stake)
    }

    fn post(
        &mut self,
        transfer: TransferId,
        rail: usize,
        operation: Operation,
        tick: Option<Tick>,
        debt: Option<(LinkId, CounterId)>,
        stake: u32,
    ) -> Option<Post> {
        let took = self.windows[rail].take(1);
        debug_assert!(took, "only a rail with room is picked");
        self.rails.charge(rail, operation.bytes);
        let of = self.transfers.get_mut(transfer.0)?;
        of.under_way += 1;
        let slot = self.slots.put(Posted { rail, transfer, operation, tick, debt, stake }).ok()?;
        Some(Post { slot, rail, transfer, tick })
    }

    /// The card had no room for it: it is not under way, and comes again.
    pub fn refuse(&mut self, slot: SlotId) {
        let Some(Posted { rail, transfer, operation, tick, debt, stake }) = self.take(slot) else { return };
        let Some(of) = self.transfers.get_mut(transfer.0) else { return };
        if debt.is_some() || (tick.is_none() && of.counter.is_none()) {
            of.again.push_front(Again { operation, debt, stake });
            return;
        }
        // What it would have told of is untold again, but for its own pages, which are counted when it is posted again.
        let told = tick.map_or(of.untold[rail], Tick::pages);
        of.untold[rail] = told.saturating_sub(operation.pages);
        if let Some(tick) = tick {
            self.claims.unclaim(self.settings[rail].link, tick);
        }
        if operation.bytes > 0 {
            of.refused.push_front((rail, operation));
        }
    }

    /// Its bytes are there, and its buffers are back. (What failed is not done: its rail is to be stopped, and then [lost](Self::lose).)
    pub fn complete(&mut self, slot: SlotId) -> Vec<Frame> {
        let Some(Posted { transfer, debt, operation, .. }) = self.take(slot) else { return Vec::new() };
        self.spare.push(operation);
        let mut frames = Vec::new();
        if let Some(key) = debt {
            if let Some(debt) = self.debts.get_mut(&key) {
                debt.again -= 1;
            }
            frames.extend(self.pay(key));
        }
        self.check_done(transfer);
        frames
    }

    fn take(&mut self, slot: SlotId) -> Option<Posted> {
        let posted = self.slots.take(slot)?;
        self.windows[posted.rail].give(1);
        self.rails.finish(posted.rail, posted.operation.bytes);
        if let Some(transfer) = self.transfers.get_mut(posted.transfer.0) {
            transfer.under_way -= 1;
        }
        Some(posted)
    }

    /// A rail gets nothing more for now: it is not connected yet, or about to be lost. What it has under way goes on.
    pub fn pause(&mut self, rail: usize) {
        self.rails.pause(rail);
        for transfer in self.transfers.values_mut() {
            if transfer.begun_on.take_if(|begun_on| *begun_on == rail).is_some() {
                transfer.plan.restart_page();
            }
        }
    }

    /// Gives a transfer up: nothing more of it is posted, and it is finished when what is under way is done. Where all of it is under way
    /// already, and no rail is lost meanwhile, it is whole all the same.
    pub fn abort(&mut self, id: TransferId) -> Vec<Frame> {
        let Some(transfer) = self.transfers.get_mut(id.0) else { return Vec::new() };
        transfer.is_given_up = true;
        let is_posted =
            transfer.plan.pages_left() == 0 && transfer.refused.is_empty() && transfer.again.is_empty();
        if is_posted {
            return Vec::new();
        }
        transfer.cut_short();
        let mut frames = Vec::new();
        for Again { debt, stake, .. } in std::mem::take(&mut transfer.again) {
            frames.extend(debt.and_then(|key| self.forgo(key, stake)));
        }
        self.check_done(id);
        frames
    }

    /// The transfers that have bytes under way on a rail.
    pub fn transfers_on(&self, rail: usize) -> Vec<TransferId> {
        let on_rail = self.slots.iter().filter(|(_, it)| it.rail == rail && it.operation.bytes > 0);
        let mut transfers: Vec<TransferId> = on_rail.map(|(_, it)| it.transfer).collect();
        transfers.sort_unstable();
        transfers.dedup();
        transfers
    }

    /// Whether something of a transfer is missing, and will be.
    pub fn is_short(&self, id: TransferId) -> bool {
        self.transfers.get(id.0).is_some_and(|transfer| transfer.is_short)
    }

    /// What was to be sent again for a debt is not.
    fn forgo(&mut self, key: (LinkId, CounterId), pages: u32) -> Option<Frame> {
        let debt = self.debts.get_mut(&key)?;
        debt.again -= 1;
        debt.forgone += u64::from(pages);
        self.pay(key)
    }

    /// A rail is lost. Its card has stopped, and every buffer that it had is back.
    pub fn lose(&mut self, rail: usize) -> Vec<Frame> {
        let link = self.settings[rail].link;
        let claimed: BTreeMap<CounterId, u64> = self.claims.lose(link).into_iter().collect();
        for (counter, pages) in &claimed {
            self.debts.entry((link, *counter)).or_default().claimed = *pages;
        }
        let lost: Vec<SlotId> =
            self.slots.iter().filter(|(_, posted)| posted.rail == rail).map(|(slot, _)| slot).collect();
        let mut frames = Vec::new();
        for slot in lost {
            let Some(posted) = self.take(slot) else { continue };
            frames.extend(self.send_again(link, posted));
        }
        self.pause(rail);
        self.rails.lose(rail);
        let ids: Vec<TransferId> = self.transfers.iter().map(|(id, _)| TransferId(id)).collect();
        for id in ids {
            self.owe_untold(link, rail, id);
            // Where it was a tick that was under way, and nobody is to be told any more.
            self.check_done(id);
        }
        let settle = |(link, counter): &(LinkId, CounterId)| Frame::Settle { link: *link, counter: *counter };
        frames.extend(self.debts.keys().filter(|(of, _)| *of == link).map(settle));
        frames
    }

    /// What was under way: it goes to another rail, and its pages are told of by a frame; unless its transfer was given up.
    fn send_again(&mut self, link: LinkId, posted: Posted) -> Option<Frame> {
        let Posted { transfer: id, operation, debt: old_debt, stake, .. } = posted;
        let transfer = self.transfers.get_mut(id.0)?;
        let (has_bytes, new_debt) =
            (operation.bytes > 0, (link, transfer.counter.unwrap_or(CounterId::NONE)));
        // Sent again already for another lost rail: that debt stays.
        let debt = old_debt.unwrap_or(new_debt);
        if old_debt.is_none() {
            self.debts.entry(debt).or_default().again += usize::from(has_bytes);
        }
        if transfer.is_given_up && has_bytes {
            transfer.cut_short();
            let frame = self.forgo(debt, stake);
            self.check_done(id);
            return frame;
        }
        // Also where there is nobody to be told: what was under way may land until the receiver has stopped it. If the transfer were done
        // by then, it would undo what is written next.
        Self::owe(&mut self.debts, new_debt, id, transfer);
        if has_bytes {
            transfer.again.push_back(Again { operation, debt: Some(debt), stake });
        }
        None
    }

    /// What was posted without a tick, or refused: nobody has told of it.
    fn owe_untold(&mut self, link: LinkId, rail: usize, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(id.0) else { return };
        let refused: Vec<Operation> = {
            let (mine, others) = transfer.refused.drain(..).partition::<Vec<_>, _>(|(of, _)| *of == rail);
            transfer.refused = others.into();
            mine.into_iter().map(|(_, operation)| operation).collect()
        };
        let untold = std::mem::take(&mut transfer.untold[rail]);
        let refused_pages: u32 = refused.iter().map(|operation| operation.pages).sum();
        let key = transfer.counter.map(|counter| (link, counter));
        if let Some(key) = key.filter(|_| untold + refused_pages > 0 || !refused.is_empty()) {
            let debt = self.debts.entry(key).or_default();
            debt.untold += u64::from(untold + refused_pages);
            debt.again += refused.len();
            Self::owe(&mut self.debts, key, id, transfer);
        }
        let again = |operation: Operation| Again { stake: operation.pages.max(1), operation, debt: key };
        transfer.again.extend(refused.into_iter().map(again));
    }

    fn owe(
        debts: &mut BTreeMap<(LinkId, CounterId), Debt>,
        key: (LinkId, CounterId),
        id: TransferId,
        transfer: &mut Transfer,
    ) {
        let debt = debts.entry(key).or_default();
        if !debt.creditors.contains(&id) {
            debt.creditors.push(id);
            transfer.debts += 1;
        }
    }

    /// The receiver has counted so many pages from a lost rail.
    pub fn settled(&mut self, link: LinkId, counter: CounterId, pages: u64) -> Vec<Frame> {
        if let Some(debt) = self.debts.get_mut(&(link, counter)) {
            debt.settled = Some(pages);
        }
        self.pay((link, counter)).into_iter().collect()
    }

    /// Tells the receiver of what it has not counted, when all of it is there.
    fn pay(&mut self, key: (LinkId, CounterId)) -> Option<Frame> {
        let debt = self.debts.get(&key)?;
        let settled = debt.settled.filter(|_| debt.again == 0)?;
        let debt = self.debts.remove(&key)?;
        for id in debt.creditors {
            if let Some(transfer) = self.transfers.get_mut(id.0) {
                transfer.debts -= 1;
            }
            self.check_done(id);
        }
        let owed = debt.claimed.saturating_sub(settled) + debt.untold;
        let pages = owed.saturating_sub(debt.forgone);
        (pages > 0).then_some(Frame::Add { counter: key.1, pages })
    }

    /// A rail is back, by a connection of another name.
    pub fn restore(&mut self, rail: usize, link: LinkId) {
        self.settings[rail].link = link;
        self.rails.restore(rail);
    }

    /// The receiver has closed a counter: nobody is told of what is left.
    pub fn forget(&mut self, counter: CounterId) {
        self.claims.forget(counter);
        let of_counter = self.transfers.iter_mut().filter(|(_, transfer)| transfer.counter == Some(counter));
        let ids: Vec<TransferId> = of_counter
            .map(|(id, transfer)| {
                transfer.counter = None;
                transfer.untold.fill(0);
                TransferId(id)
            })
            .collect();
        ids.into_iter().for_each(|id| self.check_done(id));
    }

    /// A transfer that is done since this was last asked: everything is sent, and everything that was lost is paid.
    pub fn finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    fn check_done(&mut self, id: TransferId) {
        let is_done = self.transfers.get(id.0).is_some_and(|transfer| {
            // Asked after every operation, and seldom so.
            if transfer.under_way > 0 {
                return false;
            }
            let is_posted = transfer.plan.pages_left() == 0
                && transfer.refused.is_empty()
                && transfer.again.is_empty()
                && transfer.untold.iter().all(|pages| *pages == 0);
            is_posted && transfer.debts == 0
        });
        if is_done && let Some(transfer) = self.transfers.take(id.0) {
            self.finished.push_back(Finished { transfer: id, is_whole: !transfer.is_short });
        }
    }

    /// The peer is gone, and every buffer is back: nothing is left to do.
    pub fn clear(&mut self) {
        *self = Self { next_transfer: self.next_transfer, ..Self::new(std::mem::take(&mut self.settings)) };
    }

    /// How many operations are under way.
    pub fn under_way(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.transfers.is_empty() && self.debts.is_empty()
    }
}
