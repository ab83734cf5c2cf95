//! The sender's queue for one peer: takes transfers, and yields operations for the peer's links.
//!
//! Invariant: each page is counted once at the receiver, even if links are lost on the way.
//!
//! The caller owns the cards and the table of operations in flight. It asks for the
//! [next](Outbox::next_post) operation, posts it, and hands it back when its bytes have arrived. An
//! operation that is only *sent* is not done: its link may be lost before it lands, and then it
//! must be sent again.
//!
//! When a link is lost, the caller first stops its card and takes every buffer back, and then calls
//! [`lose`](Outbox::lose). Operations that were in flight on the link go to the other links,
//! without immediates. The receiver is asked how many pages it has counted from the lost link. Once
//! it has answered and the resent operations are delivered, it gets the difference in a
//! [`Frame::Add`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;

use crate::ascending::Ascending;
use crate::counter::{CounterId, IMMEDIATE_PAGES_MAX, Immediate, LinkId, Reported};
use crate::credit::Credits;
use crate::plan::{Limits, Operation, Plan};
use crate::priority::{Priority, Share};
use crate::rail::Scope;
use crate::route::Links;
use crate::sequence::Sequence;
use crate::wire::Frame;

/// The maximum length of an operation that joins adjacent pages, in bytes. Longer operations would
/// be no cheaper, and links could not share them.
const JOINED_MAX: u64 = 256 * 1024;

/// Why a transfer is there: it has something in flight or to post, or waits for a reconciliation.
const UNFINISHED: &str = "a transfer stays until it is done";

/// All scopes, each at the place of its discriminant.
const SCOPES: [Scope; 2] = [Scope::Host, Scope::Network];

/// Settings of one link to the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSettings {
    /// The id of its connection.
    pub id: LinkId,
    /// The limits of one operation on it.
    pub limits: Limits,
    /// The number of operations that it may have in flight.
    pub window: u32,
    /// Its share of the bytes, relative to the other links.
    pub weight: u32,
    /// The scope of its rail.
    pub scope: Scope,
}

/// Names a transfer of one outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransferId(u64);

impl TransferId {
    /// Returns the number of transfers that the outbox had before.
    pub fn index(self) -> u64 {
        self.0
    }
}

/// A posted operation. The caller holds it until the card is done with it, and then hands it back
/// to the outbox.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the outbox waits until it is handed back"]
pub struct Posted {
    link: usize,
    transfer: TransferId,
    operation: Operation,
    immediate: Option<Immediate>,
    /// The entry of `Outbox::owed` for which it is resent.
    owed: Option<(LinkId, CounterId)>,
    /// The number of pages that are incomplete without it.
    pages: u32,
}

impl Posted {
    /// Returns the index of its link.
    pub fn link(&self) -> usize {
        self.link
    }

    /// Returns the transfer of its pages.
    pub fn transfer(&self) -> TransferId {
        self.transfer
    }

    /// Returns the immediate that it carries.
    pub fn immediate(&self) -> Option<Immediate> {
        self.immediate
    }

    /// Returns the bytes to move. An operation without bytes carries only its immediate.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }
}

/// The transfers of one peer that are not finished, and their operations.
#[derive(Debug)]
pub struct Outbox {
    links: Links,
    settings: Vec<LinkSettings>,
    windows: Vec<Credits>,
    transfers: Sequence<Transfer>,
    /// The transfers of each priority over links of each scope that may have something to post. One that
    /// has nothing left is removed when it is visited.
    postable: [[Ascending; SCOPES.len()]; Priority::ALL.len()],
    /// The number of transfers of each priority.
    counts: [usize; Priority::ALL.len()],
    /// For each link, the bytes of each priority that are in flight.
    pending: Vec<[u64; Priority::ALL.len()]>,
    /// The place in [`SCOPES`] of the one whose transfers post next.
    next_scope: usize,
    next_transfer: u64,
    reported: Reported,
    owed: BTreeMap<(LinkId, CounterId), Owed>,
    /// The number of entries of `owed` about which the receiver was asked and has not answered.
    unanswered: usize,
    finished: VecDeque<Finished>,
    /// Completed operations, kept so that their allocations are reused.
    spare: Vec<Operation>,
    /// The maximum number of them: no more are in flight than all windows have room for.
    spare_max: usize,
}

/// A finished transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The transfer.
    pub transfer: TransferId,
    /// `true` if all of its pages have arrived. Pages can be missing only if it was
    /// [aborted](Outbox::abort).
    pub is_whole: bool,
    /// The bytes that are known to have arrived.
    pub delivered: u64,
}

impl Outbox {
    /// Creates an outbox for these links.
    pub fn new(settings: Vec<LinkSettings>) -> Self {
        let weights: Vec<u32> = settings.iter().map(|link| link.weight).collect();
        let windows: Vec<Credits> = settings.iter().map(|link| Credits::new(link.window)).collect();
        Self {
            links: Links::new(&weights),
            // The windows allow no more operations at a time.
            spare_max: settings.iter().map(|link| link.window as usize).sum(),
            pending: vec![[0; Priority::ALL.len()]; settings.len()],
            settings,
            windows,
            transfers: Sequence::new(),
            postable: Default::default(),
            counts: [0; Priority::ALL.len()],
            next_scope: 0,
            next_transfer: 0,
            reported: Reported::new(),
            owed: BTreeMap::new(),
            unanswered: 0,
            finished: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Returns the bytes of memory that it holds: transfers with their lists of pages, and
    /// operations.
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
            + self.postable.iter().flatten().map(Ascending::memory).sum::<usize>()
            + self.pending.capacity() * size_of::<[u64; Priority::ALL.len()]>()
            + lists
    }

    /// Adds a transfer over links of this scope. Its pages raise `counter` of the receiver.
    pub fn submit(
        &mut self,
        plan: Plan,
        counter: Option<CounterId>,
        scope: Scope,
        priority: Priority,
    ) -> TransferId {
        let id = TransferId(self.next_transfer);
        self.next_transfer += 1;
        let transfer = Transfer {
            plan,
            counter,
            scope,
            priority,
            in_flight: 0,
            delivered: 0,
            repeated: 0,
            begun_on: None,
            unreported: Vec::new(),
            refused: VecDeque::new(),
            resends: VecDeque::new(),
            owed: 0,
            is_parked: false,
            is_aborted: false,
            is_incomplete: false,
        };
        self.transfers.put(id.0, transfer);
        self.postable[priority as usize][scope as usize].insert(id.0);
        self.counts[priority as usize] += 1;
        // A plan may have no pages.
        self.check_done(id);
        id
    }

    /// Returns the next operation that a link has room for, of the priority that goes first. The
    /// operation is in flight from then on.
    pub fn next_post(&mut self) -> Option<Posted> {
        Priority::ALL.into_iter().find_map(|priority| self.next_post_of(priority, false))
    }

    /// Returns the next operation of this priority that a link has room for. It has less room if
    /// `is_urgent_lately`: if there are or were urgent transfers.
    pub fn next_post_of(&mut self, priority: Priority, is_urgent_lately: bool) -> Option<Posted> {
        for _ in SCOPES {
            let scope = SCOPES[self.next_scope];
            // In turn: transfers of one scope must not wait for those of the other.
            self.next_scope = (self.next_scope + 1) % SCOPES.len();
            if self.postable[priority as usize][scope as usize].is_empty() {
                continue;
            }
            let share = Share::of(priority, scope, is_urgent_lately);
            if let Some(post) = self.next_over(scope, priority, share) {
                return Some(post);
            }
        }
        None
    }

    fn next_over(&mut self, scope: Scope, priority: Priority, share: &Share) -> Option<Posted> {
        let mut from = 0;
        loop {
            let id = self.postable[priority as usize][scope as usize].first_from(from)?;
            let post = self.next_of(TransferId(id), priority, share);
            if !self.transfers.get(id).is_some_and(Transfer::has_posts) {
                self.postable[priority as usize][scope as usize].remove(id);
            }
            if post.is_some() {
                return post;
            }
            // If no link has room, no other transfer needs to be visited.
            let mut links = 0..self.settings.len();
            if !links.any(|link| self.settings[link].scope == scope && self.is_open(link, priority, share)) {
                return None;
            }
            // A transfer that must wait for one link does not block later ones.
            from = id + 1;
        }
    }

    /// Returns `true` if a transfer of this priority may have something to post.
    #[inline]
    pub fn may_post(&self, priority: Priority) -> bool {
        !self.postable[priority as usize].iter().all(Ascending::is_empty)
    }

    /// Returns `true` if there is a transfer of this priority, or of one that goes first.
    #[inline]
    pub fn has_any_before(&self, priority: Priority) -> bool {
        self.counts[..=priority as usize].iter().any(|count| *count > 0)
    }

    fn next_of(&mut self, id: TransferId, priority: Priority, share: &Share) -> Option<Posted> {
        // The order matters: lost pages first, because transfers wait for their reconciliation, and
        // the notification last, because it reports pages of the steps before it.
        // It may have finished since it was listed: the list is cleaned when it is visited.
        let transfer = self.transfers.get(id.0)?;
        if !transfer.is_only_planned() {
            let again =
                self.next_resend(id, priority, share).or_else(|| self.next_refused(id, priority, share));
            if again.is_some() {
                return again;
            }
        }
        self.next_planned(id, priority, share).or_else(|| self.next_notification(id))
    }

    /// Returns an operation that was in flight on a lost link.
    fn next_resend(&mut self, id: TransferId, priority: Priority, share: &Share) -> Option<Posted> {
        let transfer = self.transfers.get(id.0).expect(UNFINISHED);
        let (bytes, scope) = (transfer.resends.front()?.operation.bytes, transfer.scope);
        let link = self.pick_within(bytes, scope, priority, share)?;
        let transfer = self.transfers.get_mut(id.0).expect(UNFINISHED);
        let Resend { operation, owed, pages } = transfer.resends.pop_front().expect("it is the first one");
        // The new link may have narrower limits than the lost one.
        let mut parts = operation.split(&self.settings[link].limits);
        let first = parts.remove(0);
        if let Some(owed) = owed {
            // Each part completes alone, and the `Add` has to wait for all of them.
            self.owed.get_mut(&owed).expect("it waits for what is sent again").resends += parts.len();
        }
        for part in parts.into_iter().rev() {
            // Each part stands for all pages: without it, none of them is complete.
            transfer.resends.push_front(Resend { operation: part, owed, pages });
        }
        // Without an immediate: these pages are counted by `Settle` and `Add`.
        Some(self.post(id, link, first, None, owed, pages))
    }

    fn next_refused(&mut self, id: TransferId, priority: Priority, share: &Share) -> Option<Posted> {
        let transfer = self.transfers.get(id.0)?;
        // A refused operation stays on its link: its pages are accounted to that link's next
        // immediate.
        let place = transfer
            .refused
            .iter()
            .position(|(link, _)| self.is_open(*link, priority, share) && self.links.is_alive(*link))?;
        let transfer = self.transfers.get_mut(id.0).expect(UNFINISHED);
        let (link, operation) = transfer.refused.remove(place).expect("it was found there");
        Some(self.post_counted(id, link, operation))
    }

    fn next_planned(&mut self, id: TransferId, priority: Priority, share: &Share) -> Option<Posted> {
        let transfer = self.transfers.get(id.0).expect(UNFINISHED);
        if transfer.plan.pages_left() == 0 {
            return None;
        }
        let page_len = transfer.plan.page_len();
        // The rest of a page follows its beginning on the same link, or it could be counted before
        // the beginning has arrived.
        let link = match transfer.begun_on {
            Some(link) => Some(link).filter(|link| self.is_open(*link, priority, share)),
            None => self.pick_within(page_len, transfer.scope, priority, share),
        }?;
        let mut limits = self.settings[link].limits;
        if transfer.begun_on.is_some() && transfer.must_wait(&limits) {
            return None;
        }
        // One immediate must be able to report the whole operation.
        limits.pages = limits.pages.min(IMMEDIATE_PAGES_MAX);
        // The limit on joining must not split a page.
        limits.bytes = limits.bytes.min(JOINED_MAX.max(page_len));
        // Unlike the limit on joining, a share may split a page, so that others wait for less.
        share.limit(&mut limits);
        // One that was used before has room for its extents, so a post allocates nothing.
        let mut operation = self.spare.pop().unwrap_or_default();
        let transfer = self.transfers.get_mut(id.0).expect(UNFINISHED);
        let has_more = transfer.plan.next(&limits, &mut operation);
        debug_assert!(has_more, "a plan with pages left has yielded nothing within {limits:?}");
        transfer.begun_on = transfer.plan.is_in_page().then_some(link);
        Some(self.post_counted(id, link, operation))
    }

    /// Returns a write without bytes for a link that has unreported pages and gets no more of this
    /// transfer.
    fn next_notification(&mut self, id: TransferId) -> Option<Posted> {
        let transfer = self.transfers.get(id.0).expect(UNFINISHED);
        // Nobody counts its pages.
        transfer.counter?;
        // Later operations can still report these pages.
        if transfer.plan.pages_left() > 0 || !transfer.refused.is_empty() {
            return None;
        }
        let is_due = |link: &usize| transfer.unreported(*link) > 0 && self.has_room(*link);
        let link = (0..self.settings.len()).find(is_due)?;
        Some(self.post_counted(id, link, Operation::default()))
    }

    fn has_room(&self, link: usize) -> bool {
        self.windows[link].free() > 0 && self.links.is_alive(link)
    }

    /// Returns the link of this scope that has room for an operation and would finish it first.
    #[inline]
    pub fn pick(&self, bytes: u64, scope: Scope) -> Option<usize> {
        self.links.pick(bytes, |link| self.windows[link].free() > 0 && self.settings[link].scope == scope)
    }

    /// As [`pick`](Self::pick), where less than the share of the priority is in flight.
    #[inline]
    fn pick_within(&self, bytes: u64, scope: Scope, priority: Priority, share: &Share) -> Option<usize> {
        self.links
            .pick(bytes, |link| self.settings[link].scope == scope && self.is_open(link, priority, share))
    }

    /// Returns whether a link has room for an operation of this priority.
    #[inline]
    fn is_open(&self, link: usize, priority: Priority, share: &Share) -> bool {
        let [_, normal, bulk] = self.pending[link];
        let bytes = match priority {
            _ if share.is_joint => normal + bulk,
            Priority::Bulk => bulk,
            // For urgent operations the number does not matter: their share has no limit.
            Priority::Urgent | Priority::Normal => normal,
        };
        share.has_room(bytes, self.windows[link].free(), self.settings[link].window)
    }

    /// Posts an operation whose pages must be reported. On a link that keeps no order, its own
    /// immediate reports them. On an ordered link the last operation of the transfer reports all of
    /// them, or an earlier one where an immediate can count no more pages.
    fn post_counted(&mut self, id: TransferId, link: usize, operation: Operation) -> Posted {
        let limits = self.settings[link].limits;
        let transfer = self.transfers.get_mut(id.0).expect(UNFINISHED);
        let pages = transfer.unreported(link) + operation.pages;
        let is_last = transfer.plan.pages_left() == 0 && transfer.refused.is_empty();
        // The pages of the next operation might not fit into the same immediate.
        let is_full = pages + limits.pages.min(IMMEDIATE_PAGES_MAX) > IMMEDIATE_PAGES_MAX;
        let tells = !limits.is_ordered || is_last || is_full;
        let immediate = transfer.counter.filter(|_| tells).and_then(|counter| Immediate::new(counter, pages));
        // Without a counter nothing is ever reported.
        // If no immediate tells of them, the pages wait for the next one over this link.
        let is_owed = immediate.is_none() && transfer.counter.is_some();
        transfer.set_unreported(link, if is_owed { pages } else { 0 });
        if let Some(immediate) = immediate {
            self.reported.add(self.settings[link].id, immediate);
        }
        // An operation with a part of a page must be resent as if it had the whole page.
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
    ) -> Posted {
        let took = self.windows[link].take(1);
        debug_assert!(took, "only a link with room is picked");
        self.links.charge(link, operation.bytes);
        let of = self.transfers.get_mut(transfer.0).expect(UNFINISHED);
        of.in_flight += 1;
        self.pending[link][of.priority as usize] += operation.bytes;
        Posted { link, transfer, operation, immediate, owed, pages }
    }

    /// Accounts an operation that was performed at once and was never in flight: its bytes have
    /// arrived, and the receiver gets the immediate unless the link is lost.
    pub fn performed(&mut self, link: usize, bytes: u64, immediate: Option<Immediate>) {
        self.links.charge(link, bytes);
        // It is in flight for no time, but counts for the share of its link.
        self.links.finish(link, bytes);
        if let Some(immediate) = immediate {
            self.reported.add(self.settings[link].id, immediate);
        }
    }

    /// Takes back an operation that the card had no room for. It is not in flight, and is returned
    /// again by [`next_post`](Self::next_post).
    pub fn refuse(&mut self, posted: Posted) {
        self.take(&posted);
        let Posted { link, transfer, operation, immediate, owed, pages } = posted;
        let of = self.transfers.get_mut(transfer.0).expect(UNFINISHED);
        // `next_over` has removed the transfer if this was all that it had to post.
        self.postable[of.priority as usize][of.scope as usize].insert(transfer.0);
        // No immediate accounts for these pages, so they may go to any link of its scope.
        if owed.is_some() || (immediate.is_none() && of.counter.is_none()) {
            of.resends.push_front(Resend { operation, owed, pages });
            return;
        }
        // Pages that its immediate would have reported are unreported again, except its own: those
        // are counted when it is posted again.
        let told = immediate.map_or(of.unreported(link), Immediate::pages);
        of.set_unreported(link, told.saturating_sub(operation.pages));
        if let Some(immediate) = immediate {
            self.reported.remove(self.settings[link].id, immediate);
        }
        // A notification is built again from `unreported`.
        if operation.bytes > 0 {
            of.refused.push_front((link, operation));
        }
    }

    /// Posts nothing of a transfer until it is [resumed](Self::resume): what it needs is not there yet.
    /// Others do not wait for it.
    pub fn park(&mut self, id: TransferId) {
        let of = self.transfers.get_mut(id.0).expect("the operation that cannot be posted is to be posted");
        // Not counted while it is parked: short transfers must not wait for a name that may never
        // come.
        self.counts[of.priority as usize] -= usize::from(!of.is_parked);
        of.is_parked = true;
        // Not listed either, or each round would visit it in vain.
        self.postable[of.priority as usize][of.scope as usize].remove(id.0);
    }

    /// Continues a parked transfer.
    pub fn resume(&mut self, id: TransferId) {
        // It may have been aborted meanwhile. It is listed twice if an operation of it came back and had to
        // wait again.
        let Some(of) = self.transfers.get_mut(id.0).filter(|of| of.is_parked) else { return };
        of.is_parked = false;
        self.counts[of.priority as usize] += 1;
        self.postable[of.priority as usize][of.scope as usize].insert(id.0);
    }

    /// Takes back an operation whose bytes have arrived and whose buffers are free. (A failed
    /// operation is not complete: its link must be stopped, and then [lost](Self::lose).)
    pub fn complete(&mut self, posted: Posted) -> Vec<Frame> {
        let of = self.take(&posted);
        let Posted { transfer, owed, operation, .. } = posted;
        of.delivered += operation.bytes;
        let (may_be_done, is_aborted) = (of.in_flight == 0, of.is_aborted);
        // A notification has nothing to reuse.
        if operation.bytes > 0 && self.spare.len() < self.spare_max {
            self.spare.push(operation);
        }
        let mut frames = Vec::new();
        if let Some(key) = owed {
            self.owed.get_mut(&key).expect("it waits for what is sent again").resends -= 1;
            // It may have been the last resent operation of that loss.
            frames.extend(self.reconcile(key));
        }
        if may_be_done && is_aborted {
            self.release_aborted(transfer);
        } else if may_be_done {
            self.check_done(transfer);
        }
        frames
    }

    /// Ends the accounting of an operation in flight. Returns its transfer.
    #[inline]
    fn take(&mut self, posted: &Posted) -> &mut Transfer {
        self.windows[posted.link].give(1);
        self.links.finish(posted.link, posted.operation.bytes);
        let transfer = self.transfers.get_mut(posted.transfer.0).expect(UNFINISHED);
        debug_assert!(transfer.in_flight > 0, "an operation comes back once");
        transfer.in_flight -= 1;
        self.pending[posted.link][transfer.priority as usize] -= posted.operation.bytes;
        transfer
    }

    /// Stops posting to a link that is not connected yet or about to be lost. Its operations in
    /// flight continue.
    pub fn pause(&mut self, link: usize) {
        self.links.pause(link);
        for transfer in self.transfers.values_mut() {
            // The beginning of the page may be lost with the link, so the whole page is planned
            // again.
            if transfer.begun_on.take_if(|begun_on| *begun_on == link).is_some() {
                transfer.repeated += transfer.plan.restart_page();
            }
        }
    }

    /// Aborts a transfer: posts nothing more of it. It is finished when its operations in flight
    /// are done. If all of it is in flight already, and no link is lost meanwhile, it still
    /// completes.
    pub fn abort(&mut self, id: TransferId) -> Vec<Frame> {
        // Its user may abort it in the moment in which it is done.
        let Some(transfer) = self.transfers.get_mut(id.0) else { return Vec::new() };
        transfer.is_aborted = true;
        let is_posted =
            transfer.plan.pages_left() == 0 && transfer.refused.is_empty() && transfer.resends.is_empty();
        // Everything is in flight, so the transfer completes by itself.
        if is_posted {
            self.release_aborted(id);
            return Vec::new();
        }
        transfer.abort_rest();
        let mut frames = Vec::new();
        // Nobody sends them again, so their pages are subtracted from the `Add`.
        for Resend { owed, pages, .. } in std::mem::take(&mut transfer.resends) {
            frames.extend(owed.and_then(|key| self.abort_resend(key, pages)));
        }
        self.release_aborted(id);
        frames
    }

    /// Returns `true` if a part of a transfer is missing for good.
    pub fn is_incomplete(&self, id: TransferId) -> bool {
        self.transfers.get(id.0).is_some_and(|transfer| transfer.is_incomplete)
    }

    /// Returns the bytes of a transfer that are known to have arrived.
    pub fn delivered(&self, id: TransferId) -> u64 {
        self.transfers.get(id.0).map_or(0, Transfer::delivered)
    }

    /// Drops an operation that was to be resent, because its transfer was aborted.
    fn abort_resend(&mut self, key: (LinkId, CounterId), pages: u32) -> Option<Frame> {
        let owed = self.owed.get_mut(&key).expect("it waits for what is sent again");
        owed.resends -= 1;
        owed.aborted += u64::from(pages);
        self.reconcile(key)
    }

    /// Has [`lose`](Self::lose) ask about a link on which no pages were in flight: something else of this
    /// side may still land.
    pub fn ask_about(&mut self, link: usize) {
        self.owed.entry((self.settings[link].id, CounterId::NONE)).or_default();
    }

    /// Handles the loss of a link. The caller has stopped its card and taken every buffer back;
    /// `lost` are the operations that were in flight on the link or have failed.
    pub fn lose(&mut self, link: usize, lost: impl IntoIterator<Item = Posted>) -> Vec<Frame> {
        let link_id = self.settings[link].id;
        let reported: BTreeMap<CounterId, u64> = self.reported.lose(link_id).into_iter().collect();
        // The receiver may have counted none, some or all of these.
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
        debug_assert_eq!(self.pending[link], [0; Priority::ALL.len()], "the caller has some of link {link}");
        let ids: Vec<TransferId> = self.transfers.iter().map(|(id, _)| TransferId(id)).collect();
        for id in ids {
            self.owe_unreported(link_id, link, id);
            // The last operation in flight may have been an immediate that need not be reported any
            // more.
            self.check_done(id);
        }
        // One question for each counter with pages on this link. `CounterId::NONE` stands for pages
        // without a counter.
        for ((_, counter), owed) in self.owed.iter_mut().filter(|((of, _), _)| *of == link_id) {
            self.unanswered += usize::from(!std::mem::replace(&mut owed.is_asked, true));
            frames.push(Frame::Settle { link: link_id, counter: *counter });
        }
        frames
    }

    /// Queues an operation that was in flight for another link. A frame reports its pages later.
    /// Drops it if its transfer was aborted.
    fn resend(&mut self, link_id: LinkId, posted: Posted) -> Option<Frame> {
        let Posted { transfer: id, operation, owed: old_owed, pages, .. } = posted;
        let transfer = self.transfers.get_mut(id.0).expect(UNFINISHED);
        let (has_bytes, new_owed) =
            (operation.bytes > 0, (link_id, transfer.counter.unwrap_or(CounterId::NONE)));
        // It was resent already for another lost link: the entry of that link stays.
        let owed = old_owed.unwrap_or(new_owed);
        if old_owed.is_none() {
            self.owed.entry(owed).or_default().resends += usize::from(has_bytes);
        }
        // It was aborted when all was in flight, and would have been whole. This operation is
        // missing now.
        if transfer.is_aborted && has_bytes {
            transfer.abort_rest();
            let frame = self.abort_resend(owed, pages);
            self.check_done(id);
            return frame;
        }
        // This is necessary even without a counter: bytes that were in flight may land until the
        // receiver has stopped the link. If the transfer were done before, they could overwrite
        // later writes.
        Self::add_owed(&mut self.owed, new_owed, id, transfer);
        if has_bytes {
            self.postable[transfer.priority as usize][transfer.scope as usize].insert(id.0);
            transfer.resends.push_back(Resend { operation, owed: Some(owed), pages });
        }
        None
    }

    /// Accounts for pages that were posted without an immediate, or refused: they were never
    /// reported.
    fn owe_unreported(&mut self, link_id: LinkId, link: usize, id: TransferId) {
        let transfer = self.transfers.get_mut(id.0).expect(UNFINISHED);
        let refused: Vec<Operation> = {
            let (mine, others) = transfer.refused.drain(..).partition::<Vec<_>, _>(|(of, _)| *of == link);
            transfer.refused = others.into();
            mine.into_iter().map(|(_, operation)| operation).collect()
        };
        let unreported = transfer.unreported(link);
        transfer.set_unreported(link, 0);
        let refused_pages: u32 = refused.iter().map(|operation| operation.pages).sum();
        let key = transfer.counter.map(|counter| (link_id, counter));
        // A refused part of a page counts no page, and has to be sent again all the same.
        if let Some(key) = key.filter(|_| unreported + refused_pages > 0 || !refused.is_empty()) {
            let owed = self.owed.entry(key).or_default();
            owed.unreported += u64::from(unreported + refused_pages);
            owed.resends += refused.len();
            Self::add_owed(&mut self.owed, key, id, transfer);
        }
        let resends = |operation: Operation| Resend { pages: operation.pages.max(1), operation, owed: key };
        transfer.resends.extend(refused.into_iter().map(resends));
        self.postable[transfer.priority as usize][transfer.scope as usize].insert(id.0);
    }

    fn add_owed(
        owed: &mut BTreeMap<(LinkId, CounterId), Owed>,
        key: (LinkId, CounterId),
        id: TransferId,
        transfer: &mut Transfer,
    ) {
        let owed = owed.entry(key).or_default();
        // Once for each loss: `reconcile` subtracts one.
        if !owed.transfers.contains(&id) {
            owed.transfers.push(id);
            transfer.owed += 1;
        }
    }

    /// Handles the receiver's answer: it has counted `pages` from a lost link.
    pub fn settled(&mut self, link_id: LinkId, counter: CounterId, pages: u64) -> Vec<Frame> {
        // The receiver may answer what nobody has asked, as often as it likes: that costs a look.
        let Some(owed) = self.owed.get_mut(&(link_id, counter)) else { return Vec::new() };
        self.unanswered -= usize::from(owed.is_asked && owed.settled.is_none());
        owed.settled = Some(pages);
        let waiting = owed.transfers.clone();
        let frame = self.reconcile((link_id, counter));
        for id in waiting {
            if self.transfers.get(id.0).is_some_and(|transfer| transfer.is_aborted) {
                self.release_aborted(id);
            }
        }
        frame.into_iter().collect()
    }

    /// Ends the wait of an aborted transfer for links that have stopped. Their pages are reported when others
    /// that share a counter with it have sent theirs again, which may never be.
    fn release_aborted(&mut self, id: TransferId) {
        let Some(transfer) = self.transfers.get_mut(id.0) else { return };
        let is_left = transfer.in_flight > 0 || transfer.has_posts();
        for owed in self.owed.values_mut().filter(|owed| owed.settled.is_some() && !is_left) {
            let before = owed.transfers.len();
            owed.transfers.retain(|it| *it != id);
            if owed.transfers.len() < before {
                transfer.owed -= 1;
                // Not all of its pages are counted.
                transfer.is_incomplete = true;
            }
        }
        self.check_done(id);
    }

    /// Reports the pages that the receiver has not counted, once all of them have arrived.
    fn reconcile(&mut self, key: (LinkId, CounterId)) -> Option<Frame> {
        // The receiver may answer what nobody has asked.
        let owed = self.owed.get(&key)?;
        // An `Add` before the resent pages have arrived would count pages that are not there.
        let settled = owed.settled.filter(|_| owed.resends == 0)?;
        let owed = self.owed.remove(&key).expect("it was just found");
        for id in owed.transfers {
            self.transfers.get_mut(id.0).expect(UNFINISHED).owed -= 1;
            self.check_done(id);
        }
        // The receiver counted `settled` of the reported pages. It must add the rest, and the pages
        // that no immediate reported.
        // `saturating_sub`: a lying peer may claim to have counted more than was reported.
        let missing = owed.reported.saturating_sub(settled) + owed.unreported;
        let pages = missing.saturating_sub(owed.aborted);
        (pages > 0).then_some(Frame::Add { counter: key.1, pages })
    }

    /// Restores a link with the id of its new connection.
    pub fn restore(&mut self, link: usize, link_id: LinkId) {
        self.settings[link].id = link_id;
        self.links.restore(link);
    }

    /// Handles a counter that the receiver has closed: nothing more is reported to it.
    pub fn forget(&mut self, counter: CounterId) {
        self.reported.forget(counter);
        let of_counter = self.transfers.iter_mut().filter(|(_, transfer)| transfer.counter == Some(counter));
        let ids: Vec<TransferId> = of_counter
            .map(|(id, transfer)| {
                transfer.counter = None;
                // No notification is made without a counter, so these pages would keep the transfer
                // for ever.
                transfer.unreported.fill(0);
                TransferId(id)
            })
            .collect();
        ids.into_iter().for_each(|id| self.check_done(id));
    }

    /// Returns a transfer that has finished since the last call: everything is delivered, and all
    /// lost pages are reconciled.
    #[inline]
    pub fn finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Returns `true` if [`finished`](Self::finished) returns a transfer.
    #[inline]
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    fn check_done(&mut self, id: TransferId) {
        // Several events of one call may finish it, such as the loss of a link with all of its operations.
        let Some(transfer) = self.transfers.get(id.0) else { return };
        // This runs after every operation, and most transfers fail this first check.
        if transfer.in_flight == 0 && !transfer.has_posts() && transfer.owed == 0 {
            let (is_whole, delivered) = (!transfer.is_incomplete, transfer.delivered());
            self.counts[transfer.priority as usize] -= usize::from(!transfer.is_parked);
            self.transfers.remove(id.0);
            self.finished.push_back(Finished { transfer: id, is_whole, delivered });
        }
    }

    /// Drops all transfers of a lost peer. Every buffer must be back.
    pub fn clear(&mut self) {
        // Ids continue, so that the id of a dropped transfer never names a new one.
        *self = Self { next_transfer: self.next_transfer, ..Self::new(std::mem::take(&mut self.settings)) };
    }

    /// Returns the number of operations in flight.
    pub fn in_flight(&self) -> usize {
        self.transfers.iter().map(|(_, transfer)| transfer.in_flight).sum()
    }

    /// Returns the number of questions about lost links that the receiver has not answered.
    ///
    /// ```
    /// let outbox = farreach_proto::outbox::Outbox::new(Vec::new());
    /// assert_eq!(outbox.unanswered(), 0);
    /// ```
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Iterates over the numbers of its transfers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u64> {
        self.transfers.iter().map(|(id, _)| id)
    }

    /// Returns the id of a link if operations are posted to it.
    pub(crate) fn posts_over(&self, link: usize) -> Option<LinkId> {
        self.links.is_alive(link).then(|| self.settings[link].id)
    }

    /// Returns `true` if a transfer of this priority has something to post over links that are all ready
    /// and have nothing in flight: a call of [`next_post_of`](Self::next_post_of) yields something then.
    pub(crate) fn could_post(&self, priority: Priority) -> bool {
        let is_free = |scope: Scope| {
            let mut links = (0..self.settings.len()).filter(|link| self.settings[*link].scope == scope);
            let is_any = links.clone().next().is_some();
            is_any && links.all(|link| self.links.is_alive(link) && self.windows[link].used() == 0)
        };
        let waits = |id: u64| self.transfers.get(id).is_some_and(Transfer::has_posts);
        SCOPES.into_iter().any(|scope| {
            let mut postable = self.postable[priority as usize][scope as usize].iter();
            is_free(scope) && postable.any(waits)
        })
    }

    /// Checks its accounting against the operations that the caller holds: all that are in flight, or have
    /// failed on links that are not lost yet.
    pub(crate) fn check(&self, peer: &dyn Debug, held: &[&Posted], is_parked: impl Fn(TransferId) -> bool) {
        for link in 0..self.settings.len() {
            let of_link = || held.iter().filter(|posted| posted.link == link);
            let name = (peer, link);
            assert_eq!(self.windows[link].used() as usize, of_link().count(), "credits: pages on {name:?}");
            let bytes: u64 = of_link().map(|posted| posted.operation.bytes).sum();
            let counted = (self.pending[link].iter().sum::<u64>(), self.links.pending(link));
            assert_eq!(counted, (bytes, bytes), "credits: bytes in flight on {name:?}");
        }
        for (id, transfer) in self.transfers.iter() {
            let in_flight = held.iter().filter(|posted| posted.transfer.0 == id).count();
            assert_eq!(transfer.in_flight, in_flight, "credits: transfer {id} of {peer:?}");
            let owed = self.owed.values().filter(|owed| owed.transfers.contains(&TransferId(id))).count();
            assert_eq!(transfer.owed, owed, "reconciliation: transfer {id} of {peer:?}");
            assert!(
                !transfer.is_parked || is_parked(TransferId(id)),
                "parked: nothing resumes {id} of {peer:?}"
            );
            let postable = &self.postable[transfer.priority as usize][transfer.scope as usize];
            let is_listed = postable.first_from(id) == Some(id);
            let must_post = transfer.has_posts() && !transfer.is_parked;
            assert!(is_listed || !must_post, "postable: {id} of {peer:?} has pages that are not posted");
        }
        for priority in Priority::ALL {
            let counts = |of: &&Transfer| of.priority == priority && !of.is_parked;
            let count = self.transfers.iter().map(|(_, transfer)| transfer).filter(counts).count();
            assert_eq!(self.counts[priority as usize], count, "transfers: {priority:?} of {peer:?}");
        }
        for (key, owed) in &self.owed {
            let queued = self.transfers.iter().flat_map(|(_, transfer)| &transfer.resends);
            let queued = queued.filter(|resend| resend.owed == Some(*key)).count();
            let resends = queued + held.iter().filter(|posted| posted.owed == Some(*key)).count();
            assert_eq!(owed.resends, resends, "reconciliation: operations sent again of {key:?}, {peer:?}");
            assert!(owed.is_asked, "reconciliation: {peer:?} was not asked about {key:?}");
            let is_over = owed.resends == 0 && owed.settled.is_some();
            assert!(!is_over, "reconciliation: all of {key:?} has arrived, and {peer:?} was not told");
        }
        let unanswered = self.owed.values().filter(|owed| owed.settled.is_none()).count();
        assert_eq!(self.unanswered, unanswered, "reconciliation: questions to {peer:?}");
    }

    /// Returns `true` if nothing is left to do.
    pub fn is_idle(&self) -> bool {
        self.transfers.is_empty() && self.owed.is_empty()
    }
}

/// An operation that was in flight on a lost link.
#[derive(Debug)]
struct Resend {
    operation: Operation,
    owed: Option<(LinkId, CounterId)>,
    pages: u32,
}

#[derive(Debug)]
struct Transfer {
    plan: Plan,
    counter: Option<CounterId>,
    /// The scope of the links that it may use.
    scope: Scope,
    priority: Priority,
    in_flight: usize,
    /// The bytes of completed operations.
    delivered: u64,
    /// The bytes of operations of which the same bytes were planned again: at most so many were
    /// delivered twice.
    repeated: u64,
    /// The link on which a page was begun. The rest must follow there: on another link it could
    /// overtake the beginning. On a link without order, its last part [waits](Self::must_wait).
    begun_on: Option<usize>,
    /// For each link, the number of posted pages that no immediate has reported yet. Links at the
    /// end may be left out: they have none.
    unreported: Vec<u32>,
    /// Operations that their link had no room for.
    refused: VecDeque<(usize, Operation)>,
    /// Operations that were in flight on a lost link.
    resends: VecDeque<Resend>,
    /// The number of entries of `Outbox::owed` that must be reconciled before the transfer is done.
    owed: usize,
    /// Whether it is [parked](Outbox::park).
    is_parked: bool,
    /// Nothing more is posted than what is in flight.
    is_aborted: bool,
    /// A part was not posted, or not resent, because of the abort.
    is_incomplete: bool,
}

/// Pages that the receiver may not have counted after the loss of a link.
#[derive(Debug, Default)]
struct Owed {
    /// Pages reported by immediates over the lost link.
    reported: u64,
    /// Pages that were never reported.
    unreported: u64,
    /// Whether the receiver was asked.
    is_asked: bool,
    /// The number of reported pages that the receiver has counted.
    settled: Option<u64>,
    /// The number of resent operations that are not delivered yet.
    resends: usize,
    /// Pages that are not resent, because their transfer was aborted. Pages that had arrived
    /// nevertheless are included, so the receiver may count fewer pages than have arrived, but
    /// never more.
    aborted: u64,
    transfers: Vec<TransferId>,
}

impl Transfer {
    /// Returns the number of pages posted to a link that no immediate has reported yet.
    #[inline]
    fn unreported(&self, link: usize) -> u32 {
        self.unreported.get(link).copied().unwrap_or(0)
    }

    #[inline]
    fn set_unreported(&mut self, link: usize, pages: u32) {
        match self.unreported.get_mut(link) {
            Some(unreported) => *unreported = pages,
            None if pages == 0 => {}
            None => {
                self.unreported.resize(link + 1, 0);
                self.unreported[link] = pages;
            }
        }
    }

    /// Returns the bytes that are known to have arrived.
    fn delivered(&self) -> u64 {
        self.delivered.saturating_sub(self.repeated)
    }

    /// Returns `true` if the next part of a page would be its last one, which tells the receiver of the
    /// page, and could overtake the parts before it. It waits until they have arrived.
    fn must_wait(&self, limits: &Limits) -> bool {
        let is_free = self.in_flight == 0 && self.refused.is_empty() && self.resends.is_empty();
        let tells = self.counter.is_some() && self.plan.left_in_page() <= limits.bytes;
        !limits.is_ordered && tells && !is_free
    }

    /// Returns `true` if nothing is to be posted again.
    #[inline]
    fn is_only_planned(&self) -> bool {
        self.resends.is_empty() && self.refused.is_empty()
    }

    /// Returns `true` if something of it is not posted.
    fn has_posts(&self) -> bool {
        self.plan.pages_left() > 0
            || !self.refused.is_empty()
            || !self.resends.is_empty()
            || self.unreported.iter().any(|pages| *pages > 0)
    }

    /// Drops everything that is not posted.
    fn abort_rest(&mut self) {
        self.plan.abort();
        (self.is_incomplete, self.begun_on) = (true, None);
        self.refused.clear();
        self.unreported.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Pages;

    /// An outbox with one link, whose operations have up to four bytes, and a transfer of a page of ten.
    fn of_long_page(counter: Option<CounterId>, is_ordered: bool) -> Outbox {
        let limits = Limits { bytes: 4, pieces: 1, targets: 1, pages: 1, is_ordered };
        let link = LinkSettings { id: LinkId(1), limits, window: 9, weight: 1, scope: Scope::Network };
        let mut outbox = Outbox::new(vec![link]);
        let page = || (Pages::contiguous(1, 10), 10);
        outbox.submit(Plan::new(10, page(), page()).unwrap(), counter, Scope::Network, Priority::Normal);
        outbox
    }

    fn posts(outbox: &mut Outbox) -> VecDeque<Posted> {
        std::iter::from_fn(|| outbox.next_post()).collect()
    }

    #[test]
    fn the_end_of_a_counted_page_waits_for_its_beginning_where_nothing_keeps_the_order() {
        let counter = Some(CounterId::from_raw(5 << 8));
        let lens = |posts: &VecDeque<Posted>| -> Vec<u64> {
            posts.iter().map(|post| post.operation().bytes).collect()
        };
        for (counter, is_ordered) in [(counter, true), (None, true), (None, false)] {
            let posts = posts(&mut of_long_page(counter, is_ordered));
            assert_eq!(lens(&posts), [4, 4, 2]);
            assert!(posts.iter().take(2).all(|post| post.immediate().is_none()));
        }

        let mut outbox = of_long_page(counter, false);
        let mut parts = posts(&mut outbox);
        assert_eq!(lens(&parts), [4, 4]);
        let [first, second] = [(); 2].map(|()| parts.pop_front().unwrap());
        assert_eq!(outbox.complete(second), []);
        assert!(
            outbox.next_post().is_none() && outbox.may_post(Priority::Normal),
            "the first part may arrive later"
        );
        // A part that the card had no room for is posted again, and waited for.
        outbox.refuse(first);
        let mut again = posts(&mut outbox);
        assert_eq!(lens(&again), [4]);
        assert_eq!(outbox.complete(again.pop_front().unwrap()), []);
        let mut last = posts(&mut outbox);
        assert_eq!(lens(&last), [2]);
        let last = last.pop_front().unwrap();
        assert_eq!(last.immediate().map(Immediate::pages), Some(1));
        assert_eq!(outbox.complete(last), []);
        assert!(outbox.finished().is_some_and(|finished| finished.is_whole) && outbox.is_idle());
    }

    #[test]
    fn an_aborted_transfer_does_not_wait_for_what_another_sends_again() {
        let counter = CounterId::from_raw(5 << 8);
        let mut outbox = of_long_page(Some(counter), false);
        let page = || (Pages::contiguous(1, 10), 10);
        let plan = Plan::new(10, page(), page()).unwrap();
        let second = outbox.submit(plan, Some(counter), Scope::Network, Priority::Normal);
        let parts = posts(&mut outbox);
        outbox.lose(0, parts);
        assert_eq!(outbox.abort(second), []);
        assert!(outbox.finished().is_none(), "the receiver has not stopped the lost link");
        // No link is left for the first one.
        assert_eq!(outbox.settled(LinkId(1), counter, 0), []);
        let finished = outbox.finished().expect("it is over");
        assert_eq!((finished.transfer, finished.is_whole), (second, false));
        assert!(outbox.finished().is_none());
        // What comes first and what comes last makes no difference.
        let mut outbox = of_long_page(Some(counter), false);
        let plan = Plan::new(10, page(), page()).unwrap();
        let second = outbox.submit(plan, Some(counter), Scope::Network, Priority::Normal);
        let parts = posts(&mut outbox);
        outbox.lose(0, parts);
        outbox.settled(LinkId(1), counter, 0);
        assert_eq!(outbox.abort(second), []);
        assert_eq!(outbox.finished().map(|it| it.transfer), Some(second));
    }

    #[test]
    fn a_page_whose_link_is_lost_between_its_parts_begins_again() {
        let mut outbox = of_long_page(Some(CounterId::from_raw(5 << 8)), false);
        let mut parts = posts(&mut outbox);
        assert_eq!(outbox.complete(parts.pop_front().unwrap()), []);
        let asked = outbox.lose(0, parts);
        assert_eq!(asked.len(), 1);
        outbox.restore(0, LinkId(2));
        let again = posts(&mut outbox);
        // The lost part, and the page without its last part.
        assert_eq!(again.len(), 3);
        assert!(again.iter().all(|post| post.immediate().is_none()));
        again.into_iter().for_each(|post| assert_eq!(outbox.complete(post), []));
        let last = outbox.next_post().unwrap();
        assert_eq!((last.operation().bytes, last.immediate().map(Immediate::pages)), (2, Some(1)));
        assert_eq!(outbox.complete(last), []);
        assert!(outbox.finished().is_none(), "the receiver has not stopped the lost link");
        let counter = CounterId::from_raw(5 << 8);
        assert_eq!(outbox.settled(LinkId(1), counter, 0), []);
        let finished = outbox.finished().expect("it is done");
        assert_eq!((finished.is_whole, finished.delivered), (true, 10), "what was sent twice counts once");
    }
}
