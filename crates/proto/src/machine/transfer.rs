//! Transfers: pages to a peer and from it.

use std::sync::Arc;

use super::in_flight::{InFlight, Requested};
use super::peer::{Granted, KeyRefusal, Peer, given_up};
use super::work::{Content, Post};
use super::{
    Direction, Event, GrantRange, Machine, NewTransfer, OpId, PeerKey, Regions, TransferEnd, TransferFault,
};
use crate::counter::CounterId;
use crate::ids::GrantId;
use crate::inflight::SlotId;
use crate::lost::LostReason;
use crate::outbox::{Posted, TransferId};
use crate::plan::Operation;
use crate::priority::Priority;
use crate::rail::{LinkKey, Refusal, RemoteSegment, RemoteSegments, RequestError, WorkRequest};
use crate::rights::Rights;
use crate::stats::TransferStats;
use crate::time::Time;

/// How long after an urgent transfer others keep less in flight, in nanoseconds. Who has urgent transfers
/// ten times a second does not wait for others; who has one now and then slows the others down for this
/// time.
const URGENT_FOR: u64 = 100_000_000;

/// A work request with pages, before it is built.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChosenPage {
    slot: SlotId,
    rail: usize,
    remote: RemotePages,
}

/// The remote side of a work request with pages.
#[derive(Debug, Clone, Copy)]
struct RemotePages {
    link: LinkKey,
    op: OpId,
    direction: Direction,
    /// The address of the range in the peer's memory, and its key.
    start: u64,
    key: u64,
    immediate: Option<u32>,
}

/// The range of a grant that a transfer accesses, and the counter that it raises.
#[derive(Debug, Clone, Copy)]
pub(super) struct GrantedRange {
    pub(super) direction: Direction,
    pub(super) range: GrantRange,
    pub(super) counter: Option<CounterId>,
}

/// Reasons for which no work request was chosen.
enum Unchosen {
    /// Nothing is left to post.
    Nothing,
    /// There is no room.
    Full,
    /// The transfer was aborted or parked instead.
    Skipped,
}

/// Reasons for which pages do not reach the peer's memory over a link.
#[derive(Clone, Copy)]
enum Unreached {
    /// The name of the counter, or the key, is not known yet.
    NotYet,
    /// The grant or the counter is gone.
    Gone,
}

impl Machine {
    /// Begins a transfer. Returns its id within its peer. A transfer that is not possible is
    /// answered at once, with an event.
    pub fn submit(&mut self, new: NewTransfer, now: Time) -> Option<TransferId> {
        self.now = now;
        let (op, key) = (new.op, new.peer);
        let may_transfer = self.may_transfer(key, new.direction, &new.regions, new.counter);
        let is_late = new.deadline.is_some_and(|deadline| deadline <= now);
        let may_begin =
            may_transfer.and_then(|()| if is_late { Err(TransferFault::DeadlinePassed) } else { Ok(()) });
        if let Err(fault) = may_begin {
            // Whether a deadline passes just before the transfer begins or after must not matter to the
            // receiver.
            if fault == TransferFault::DeadlinePassed
                && let Some(counter) = new.counter
            {
                self.send(key, given_up(counter));
            }
            let stats = TransferStats::begin(new.plan.pages() as u64, [], now);
            // No card has had the memory, so it is back.
            let end = TransferEnd { outcome: Err(fault), is_back: true, stats };
            self.report(Event::Transfer(op, end));
            return None;
        }
        // What `may_transfer` has just found.
        let peer = &mut self.peers[key];
        let regions = new.regions.as_slice();
        // The first one stands for all: `may_transfer` has refused different scopes.
        let scope = peer.granted.get(regions[0].grant).expect("its grants are there").scope();
        // Before anything is posted: a `Revoke` that comes now must wait for this transfer.
        regions.iter().for_each(|range| peer.granted.begin_use(range.grant));
        let rails = peer.links.iter().map(|link| Arc::clone(self.rails[link.rail()].name()));
        let (priority, deadline) = (new.priority, new.deadline);
        let id = peer.transfers.submit(new, scope, rails, now);
        if let Some(at) = deadline {
            self.deadlines.add(at, key, id);
        }
        if priority == Priority::Urgent {
            self.urgent_until = now.saturating_add(URGENT_FOR);
        }
        self.turns.wake(key, |of| of == priority);
        self.expect(key);
        // A plan without pages has finished already.
        self.collect_finished(key);
        Some(id)
    }

    /// Checks that a transfer may access these regions of the peer's memory, and raise the counter.
    pub fn may_transfer(
        &mut self,
        key: PeerKey,
        direction: Direction,
        regions: &Regions,
        counter: Option<CounterId>,
    ) -> Result<(), TransferFault> {
        let lost = |reason| TransferFault::PeerLost(Box::new(reason));
        let now = self.now;
        let peer = self.peer(key).ok_or_else(|| lost(LostReason::Gone))?;
        if let Some(is_lost) = &peer.lost {
            return Err(lost(is_lost.reason.clone()));
        }
        let mut scope = None;
        for range in regions.as_slice() {
            let granted = peer.granted_for(&GrantedRange { direction, range: *range, counter }, now)?;
            // Each transfer uses the links of one scope.
            if *scope.get_or_insert(granted.scope()) != granted.scope() {
                return Err(TransferFault::Scopes);
            }
        }
        // Without a range there is no memory to reach.
        scope.map(drop).ok_or(TransferFault::NoSuchGrant)
    }

    /// Aborts a transfer. It is answered when none of its operations is in flight.
    pub(super) fn abort(&mut self, key: PeerKey, id: TransferId, fault: &TransferFault, now: Time) {
        self.now = now;
        // Its user may abort it in the moment in which it ends, or its peer is forgotten.
        let frames = self.peer(key).and_then(|peer| peer.transfers.abort(id, fault.clone()));
        let Some(frames) = frames else { return };
        self.send_all(key, frames);
        self.collect_finished(key);
    }

    /// Aborts the transfer of this request.
    pub fn abort_op(&mut self, key: PeerKey, op: OpId, fault: &TransferFault, now: Time) {
        // As for `abort`: it may have ended.
        if let Some(id) = self.peer(key).and_then(|peer| peer.transfers.find(op)) {
            self.abort(key, id, fault, now);
        }
    }

    /// Aborts the transfers whose deadline has passed.
    pub(super) fn abort_late(&mut self) {
        let now = self.now;
        while let Some((key, id)) = self.deadlines.take_passed(now) {
            self.abort(key, id, &TransferFault::DeadlinePassed, now);
        }
    }

    /// Lets a peer post pages of all priorities that it has, also of parked transfers.
    pub(super) fn wake_pages(&mut self, key: PeerKey) {
        let peer = &mut self.peers[key];
        // What parked transfers wait for may have come.
        peer.transfers.resume();
        self.turns.wake(key, |priority| peer.transfers.may_post(priority));
    }

    /// Chooses the next work request with pages, from the peers in turn.
    pub(super) fn choose_page(&mut self) -> Option<ChosenPage> {
        while let Some((key, priority)) = self.turns.page_sender() {
            match self.choose_page_of(key, priority) {
                Ok(chosen) => return Some(chosen),
                Err(Unchosen::Nothing) => self.turns.rest(),
                // Costs a part of the turn, so that a round ends even if this happens to all transfers.
                Err(Unchosen::Skipped) => self.turns.spend(0),
                Err(Unchosen::Full) => self.turns.yield_turn(),
            }
        }
        None
    }

    fn choose_page_of(&mut self, key: PeerKey, priority: Priority) -> Result<ChosenPage, Unchosen> {
        let now = self.now;
        let peer = &mut self.peers[key];
        debug_assert!(!peer.is_lost(), "a lost peer has left the round");
        // Before `next_post`: what it yields would have to be put back.
        if !self.in_flight.has_room() {
            return Err(Unchosen::Full);
        }
        let is_urgent_lately = now < self.urgent_until;
        let Some(posted) = peer.transfers.next_post(priority, is_urgent_lately) else {
            return Err(Unchosen::Nothing);
        };
        if priority == Priority::Urgent {
            self.urgent_until = now.saturating_add(URGENT_FOR);
        }
        let (index, transfer) = (posted.link(), posted.transfer());
        let state = &peer.links[index];
        let rail = state.rail();
        if !self.rails[rail].has_room(state) {
            // Messages and atomics have used the room that was left for pages.
            peer.transfers.put_back(posted);
            return Err(Unchosen::Full);
        }
        let has_names = state.needs_names();
        let is_unnamed = has_names
            && posted
                .immediate()
                .is_some_and(|immediate| !peer.counters.is_named_on(state.id(), immediate.counter));
        let remote = match is_unnamed {
            true => Err(Unreached::NotYet),
            false => remote_of(peer, &posted, has_names),
        };
        let remote = match remote {
            Ok(remote) => remote,
            // A frame with the name or the key follows, or with the loss of the link. If the peer sends
            // neither, only this transfer waits.
            Err(Unreached::NotYet) => {
                peer.transfers.park(posted);
                return Err(Unchosen::Skipped);
            }
            // The peer's grant or counter may have ended since the transfer was checked.
            Err(Unreached::Gone) => {
                peer.transfers.put_back(posted);
                self.abort(key, transfer, &TransferFault::NoSuchGrant, now);
                return Err(Unchosen::Skipped);
            }
        };
        let it = InFlight::new(key, index, Requested::Pages(posted));
        let slot = self.in_flight.put(it);
        Ok(ChosenPage { slot, rail, remote })
    }

    /// Builds the work request.
    #[inline]
    pub(super) fn post_of_pages(&self, chosen: ChosenPage) -> Post<'_> {
        let ChosenPage { slot, rail, remote } = chosen;
        let InFlight { what: Requested::Pages(posted), .. } = self.in_flight.get(slot) else {
            unreachable!("pages were chosen");
        };
        let operation = posted.operation();
        let request = remote.request(operation);
        let content = Content::Pages { op: remote.op, extents: &operation.pieces, request };
        Post { rail, link: remote.link, slot, content }
    }

    /// Handles pages that no card accepted.
    pub(super) fn page_refused(&mut self, key: PeerKey, posted: Posted, reason: Refusal) {
        let (now, index, id) = (self.now, posted.link(), posted.transfer());
        self.peers[key].transfers.refused(posted);
        match reason {
            // It is tried again in its turn.
            Refusal::Full => {}
            Refusal::LinkDown(error) => self.fail_link(key, index, &error),
            Refusal::Never(error) => self.abort(key, id, &TransferFault::Rail(Box::new(error)), now),
        }
        self.turns.yield_turn();
    }

    /// Handles pages that were not moved, although their link goes on.
    pub(super) fn page_failed(&mut self, key: PeerKey, posted: Posted, error: RequestError) {
        let (now, index, id) = (self.now, posted.link(), posted.transfer());
        let peer = &mut self.peers[key];
        let region = posted.operation().region as usize;
        let range = peer.transfers.get_mut(id).and_then(|it| it.regions().as_slice().get(region).copied());
        // No immediate has counted them, as if no card had accepted them.
        peer.transfers.refused(posted);
        if let (RequestError::Key(_) | RequestError::Revoked(_), Some(range)) = (&error, range) {
            self.refuse_key(key, index, range.grant, &error);
        }
        self.abort(key, id, &TransferFault::of_request(&error), now);
        self.wake_pages(key);
    }

    /// Notes that a link cannot use the key of a grant, and aborts the transfers that need it.
    pub(super) fn refuse_key(&mut self, key: PeerKey, index: usize, grant: GrantId, error: &RequestError) {
        let (now, until) = (self.now, self.now.saturating_add(self.tuning.cool_down));
        let peer = &mut self.peers[key];
        // Of this connection: over the next one the key may be good again.
        let link = peer.links[index].id();
        peer.granted.refuse_key(grant, KeyRefusal { index, link, until, error: Box::new(error.clone()) });
        for user in peer.transfers.using(grant) {
            self.abort(key, user, &TransferFault::of_request(error), now);
        }
    }

    /// Handles a completion of pages. Pages of a failed operation are kept until their link is
    /// lost, and then go to another one.
    pub(super) fn page_done(&mut self, key: PeerKey, posted: Posted, is_ok: bool) {
        let peer = &mut self.peers[key];
        // Its outbox is dropped when everything is back, so nothing of it is accounted.
        if peer.is_lost() {
            return;
        }
        // Resending at once would be wrong: bytes of the failed operation may still land until the
        // link is stopped, and could overwrite later data.
        if !is_ok {
            peer.links[posted.link()].keep_failed(posted);
            return;
        }
        let frames = peer.transfers.complete(posted);
        // There is room for another one.
        self.turns.wake(key, |priority| peer.transfers.may_post(priority));
        let has_finished = peer.transfers.has_finished();
        if !frames.is_empty() {
            self.send_all(key, frames);
        }
        if has_finished {
            self.collect_finished(key);
        }
    }

    /// Reports the transfers that are finished.
    pub(super) fn collect_finished(&mut self, key: PeerKey) {
        let now = self.now;
        loop {
            let peer = &mut self.peers[key];
            // No more have finished.
            let Some((mut transfer, is_whole, frame)) = peer.transfers.take_finished() else { return };
            transfer.number_shares(peer.links.iter().map(|link| link.id().0));
            if let Some(at) = transfer.deadline() {
                self.deadlines.remove(at, key, transfer.id());
            }
            let (regions, is_kept) = (transfer.regions().clone(), transfer.is_kept());
            self.report(transfer.finish(is_whole, now));
            if let Some(frame) = frame {
                self.send(key, frame);
            }
            // Memory that a card has for good may be written at any time: the peer must never be
            // told that nothing of this grant is in flight.
            if !is_kept {
                regions.as_slice().iter().for_each(|range| self.release(key, range.grant));
            }
        }
    }
}

impl TransferFault {
    /// Returns the fault of a transfer one of whose requests has failed.
    #[cold]
    fn of_request(error: &RequestError) -> Self {
        match error {
            RequestError::Revoked(_) => Self::Revoked,
            error => Self::Rail(Box::new(error.error().clone())),
        }
    }
}

impl Peer {
    /// Returns the grant of a range, if a transfer may access the range and raise its counter.
    #[inline]
    pub(super) fn granted_for(&self, range: &GrantedRange, now: Time) -> Result<&Granted, TransferFault> {
        let GrantedRange { direction, range: GrantRange { grant, base, len }, counter } = *range;
        let granted = self.granted.get(grant).ok_or(TransferFault::NoSuchGrant)?;
        let right = match direction {
            Direction::Write => Rights::WRITE,
            Direction::Read => Rights::READ,
        };
        match () {
            () if granted.is_revoked() => Err(TransferFault::Revoked),
            () if !granted.rights().contains(right) => Err(TransferFault::NoRight),
            () if base.checked_add(len).is_none_or(|end| end > granted.len()) => {
                Err(TransferFault::OutOfBounds)
            }
            () if counter.is_some_and(|counter| !self.counters.knows(counter)) => {
                Err(TransferFault::NoSuchCounter)
            }
            () => match granted.key_refusal(&self.links, now) {
                Some(error) => Err(TransferFault::of_request(error)),
                None => Ok(granted),
            },
        }
    }
}

/// Returns the place in the peer's memory for a work request with pages. Adds the operation to the
/// share of its rail.
#[inline]
fn remote_of(peer: &mut Peer, posted: &Posted, has_names: bool) -> Result<RemotePages, Unreached> {
    let (index, gone) = (posted.link(), Unreached::Gone);
    let state = &peer.links[index];
    let immediate = match posted.immediate() {
        None => None,
        Some(immediate) => {
            // The caller has asked for the name, so only a counter that was closed is missing.
            Some(peer.counters.immediate_on(state.id(), immediate, has_names).ok_or(gone)?.to_bits())
        }
    };
    let transfer = peer.transfers.get_mut(posted.transfer()).expect("the outbox has the same transfers");
    // A plan and its regions are made together, and `submit` has counted a use of each grant.
    let range = transfer.regions().as_slice()[posted.operation().region as usize];
    let granted = peer.granted.get(range.grant).expect("a grant stays as long as it is used");
    // A bound key has a frame of its own, which follows. Other keys came with the grant, or never
    // will.
    let missing = if state.binds_keys() { Unreached::NotYet } else { gone };
    let (address, key) = granted.key_over(index, state).ok_or(missing)?;
    // The end of the key was checked when the peer has announced it, and the range lies within the grant.
    let start = address.checked_add(range.base).expect("a range that begins beyond the last address");
    let link = state.key().expect("a link that is ready has its end");
    let (op, direction) = (transfer.op(), transfer.direction());
    // After all that can fail: `put_back` and `park` take nothing from the share.
    transfer.add_to_share(posted);
    Ok(RemotePages { link, op, direction, start, key, immediate })
}

impl RemotePages {
    /// Builds the work request. Returns `None` if a segment of the peer's memory would end beyond
    /// the last address.
    #[inline]
    fn request(self, operation: &Operation) -> Option<WorkRequest<'_>> {
        let Self { start, key, immediate, direction, .. } = self;
        let request = match (operation.targets.as_slice(), direction) {
            _ if operation.bytes == 0 => {
                WorkRequest::Write { target: RemoteSegment { address: start, key, len: 0 }, immediate }
            }
            ([extent], direction) => {
                let address = start.checked_add(extent.offset)?;
                let target = RemoteSegment { address, key, len: extent.len };
                match direction {
                    Direction::Write => WorkRequest::Write { target, immediate },
                    Direction::Read => WorkRequest::Read { target },
                }
            }
            (several, direction) => {
                let targets = RemoteSegments::new(start, key, several)?;
                match direction {
                    Direction::Write => WorkRequest::WriteScattered { targets, immediate },
                    Direction::Read => WorkRequest::ReadGathered { targets },
                }
            }
        };
        Some(request)
    }
}
