//! Transfers: pages to a peer and from it.

use farreach_core::counter::{CounterId, Immediate, LinkId};
use farreach_core::inflight::SlotId;
use farreach_core::outbox::{Finished, Post, TransferId};
use farreach_core::plan::{Extent, Plan};
use farreach_core::wire::Frame;
use farreach_memory::Buffers;

use super::carrier::Class;
use super::{Event, Held, Machine, OpId, POSTS_PER_STEP, PeerKey};
use crate::rail::{LinkKey, RailError, Refusal, RemoteSegment, RemoteSegments, WorkRequest};
use crate::{Explanation, LostReason, RailShare, Rights};

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the peer.
    Write,
    /// From the peer.
    Read,
}

/// Pages to be moved.
#[derive(Debug)]
pub(crate) struct NewTransfer {
    pub(crate) op: OpId,
    pub(crate) peer: PeerKey,
    pub(crate) direction: Direction,
    pub(crate) held: Held,
    pub(crate) plan: Plan,
    /// The peer's grant, and the range of it that the plan is within.
    pub(crate) grant: u64,
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) counter: Option<CounterId>,
}

/// What became of a transfer.
#[derive(Debug)]
pub(crate) struct TransferAnswer {
    pub(crate) outcome: Result<(), TransferFault>,
    /// The memory; none where a card may still have a part of it.
    pub(crate) held: Option<Held>,
    pub(crate) explanation: Explanation,
}

/// Why pages were not moved, or not all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TransferFault {
    PeerLost(LostReason),
    Aborted,
    Revoked,
    NoSuchGrant,
    NoRight,
    OutOfBounds,
    NoSuchCounter,
    Rail(RailError),
}

#[derive(Debug)]
pub(super) struct TransferState {
    id: TransferId,
    op: OpId,
    direction: Direction,
    grant: u64,
    base: u64,
    counter: Option<CounterId>,
    fault: Option<TransferFault>,
    /// A card has a part of its memory that will never be proven to be back.
    is_kept: bool,
    explanation: Explanation,
}

impl TransferState {
    pub(super) fn id(&self) -> TransferId {
        self.id
    }

    pub(super) fn op(&self) -> OpId {
        self.op
    }

    pub(super) fn grant(&self) -> u64 {
        self.grant
    }

    /// A card has a part of it for good.
    pub(super) fn keep_for_good(&mut self, fault: TransferFault) {
        self.is_kept = true;
        self.fault.get_or_insert(fault);
    }

    /// How it has ended, with its memory if that is back.
    pub(super) fn end(mut self, outcome: Result<(), TransferFault>, held: Option<Held>, now: u64) -> Event {
        self.explanation.finished_ns = now;
        let held = held.filter(|_| !self.is_kept);
        Event::Transfer(self.op, TransferAnswer { outcome, held, explanation: self.explanation })
    }
}

/// Why a counter does not reach what was promised.
const GIVEN_UP: &str = "the transfer was given up";

/// What a request is of is in two bits of its slot's index, of which there are never so many.
const CLASS_SHIFT: u32 = 30;

pub(super) fn tag(class: Class, slot: SlotId) -> u64 {
    slot.to_raw() | (class as u64) << CLASS_SHIFT
}

fn class_and_slot(tag: u64) -> (Class, SlotId) {
    let class = match (tag >> CLASS_SHIFT) & 3 {
        0 => Class::Pages,
        1 => Class::Message,
        _ => Class::Atomic,
    };
    (class, SlotId::from_raw(tag & !(3 << CLASS_SHIFT)))
}

enum Posted {
    Bytes(u64),
    Nothing,
    Full,
}

impl Machine {
    /// Takes a transfer: how it is named among its peer's. What cannot be done is answered at once.
    pub(crate) fn submit(&mut self, new: NewTransfer, now: u64) -> Option<TransferId> {
        self.now = now;
        let refusal = self.check(&new);
        let NewTransfer { op, peer: key, direction, held, plan, grant, base, counter, .. } = new;
        let pages = plan.pages() as u64;
        let mut explanation = Explanation { started_ns: now, pages, ..Explanation::default() };
        if let Some(fault) = refusal {
            let answer = TransferAnswer { outcome: Err(fault), held: Some(held), explanation };
            self.report(Event::Transfer(op, answer));
            return None;
        }
        self.carrier.hold(op, held);
        let peer = self.peer(key)?;
        explanation.rails = vec![RailShare::default(); peer.links.len()];
        if let Some(granted) = peer.granted.get_mut(&grant) {
            granted.users += 1;
        }
        let id = peer.outbox.submit(plan, counter);
        let state = TransferState {
            id,
            op,
            direction,
            grant,
            base,
            counter,
            fault: None,
            is_kept: false,
            explanation,
        };
        peer.transfers.put(id.index(), state);
        self.round_robin.wake(key.0);
        self.collect_finished(key);
        self.post_pages();
        Some(id)
    }

    fn check(&mut self, new: &NewTransfer) -> Option<TransferFault> {
        let Some(peer) = self.peer(new.peer) else {
            return Some(TransferFault::PeerLost(LostReason::Gone));
        };
        if let Some(lost) = &peer.lost {
            return Some(TransferFault::PeerLost(lost.reason.clone()));
        }
        let Some(granted) = peer.granted.get(&new.grant) else { return Some(TransferFault::NoSuchGrant) };
        let right = match new.direction {
            Direction::Write => Rights::WRITE,
            Direction::Read => Rights::READ,
        };
        match () {
            () if granted.is_revoked => Some(TransferFault::Revoked),
            () if !granted.rights.contains(right) => Some(TransferFault::NoRight),
            () if new.base.checked_add(new.len).is_none_or(|end| end > granted.len) => {
                Some(TransferFault::OutOfBounds)
            }
            () if new.counter.is_some_and(|counter| !peer.counters.contains_key(&counter)) => {
                Some(TransferFault::NoSuchCounter)
            }
            () => None,
        }
    }

    /// Gives a transfer up. It is answered when nothing of it is under way.
    pub(crate) fn abort(&mut self, key: PeerKey, id: TransferId, fault: &TransferFault, now: u64) {
        self.now = now;
        let Some(peer) = self.peer(key) else { return };
        let Some(state) = peer.transfers.get_mut(id.index()) else { return };
        state.fault.get_or_insert_with(|| fault.clone());
        let frames = peer.outbox.abort(id);
        self.send_all(key, frames);
        self.tell_if_short(key, id);
        self.collect_finished(key);
    }

    /// The receiver need not wait for what will not come.
    fn tell_if_short(&mut self, key: PeerKey, id: TransferId) {
        let Some(peer) = self.peer(key).filter(|peer| peer.outbox.is_incomplete(id)) else { return };
        let Some(state) = peer.transfers.get_mut(id.index()) else { return };
        if let Some(counter) = state.counter.take() {
            self.send(key, Frame::Abort { counter, reason: GIVEN_UP.to_owned() });
        }
    }

    /// Gives up the transfer of this name.
    pub(crate) fn abort_op(&mut self, key: PeerKey, op: OpId, fault: &TransferFault, now: u64) {
        let Some(peer) = self.peer(key) else { return };
        let found = peer.transfers.iter().find(|(_, state)| state.op == op).map(|(_, state)| state.id);
        if let Some(id) = found {
            self.abort(key, id, fault, now);
        }
    }

    /// Posts what there is room for, each peer in turn.
    pub(super) fn post_pages(&mut self) -> bool {
        let (mut budget, mut full) = (POSTS_PER_STEP, 0);
        while budget > 0 {
            let Some(key) = self.round_robin.current() else { break };
            match self.post_next(PeerKey(key)) {
                Posted::Bytes(bytes) => {
                    self.round_robin.spend(bytes.max(1));
                    budget -= 1;
                }
                Posted::Nothing => self.round_robin.rest(),
                Posted::Full => {
                    self.round_robin.yield_turn();
                    full += 1;
                    // Everybody may have been asked once by now; completions make room, or nothing does.
                    if full >= 4 {
                        break;
                    }
                }
            }
        }
        budget < POSTS_PER_STEP
    }

    fn post_next(&mut self, key: PeerKey) -> Posted {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else {
            return Posted::Nothing;
        };
        let Some(post) = peer.outbox.next_post() else { return Posted::Nothing };
        let state = &peer.links[post.link];
        if !self.rails[state.pair.0].has_room(state) {
            // Messages and atomics have taken what was left for pages.
            peer.outbox.refuse(post.slot);
            return Posted::Full;
        }
        let has_names = !self.rails[state.pair.0].properties().immediates_name_link;
        if has_names && post.immediate.is_some_and(|immediate| !peer.has_name_on(state.id, immediate)) {
            // The peer has lost its end, and we hear of that soon; or it takes nothing more over this link.
            peer.outbox.refuse(post.slot);
            peer.links[post.link].has_refused(now);
            return Posted::Full;
        }
        let Some(Built { link, op, extents, bytes, request }) = build(peer, post, has_names) else {
            peer.outbox.refuse(post.slot);
            let fault = TransferFault::NoSuchGrant;
            self.abort(key, post.transfer, &fault, now);
            return Posted::Bytes(0);
        };
        let rail = peer.links[post.link].pair.0;
        let has_immediate = post.immediate.is_some();
        match self.carrier.post_pages((rail, link, tag(Class::Pages, post.slot)), op, extents, request) {
            Ok(()) => {
                peer.links[post.link].took_one(now);
                if let Some(transfer) = peer.transfers.get_mut(post.transfer.index()) {
                    let share = &mut transfer.explanation.rails[post.link];
                    share.operations += 1;
                    share.bytes += bytes;
                    share.immediates += u64::from(has_immediate);
                }
                self.posted_to(key, rail);
                Posted::Bytes(bytes)
            }
            Err(reason) => {
                peer.outbox.refuse(post.slot);
                peer.links[post.link].has_refused(now);
                if let Some(transfer) = peer.transfers.get_mut(post.transfer.index()) {
                    transfer.explanation.refusals += 1;
                }
                self.refused(key, post, reason)
            }
        }
    }

    fn refused(&mut self, key: PeerKey, post: Post, reason: Refusal) -> Posted {
        let now = self.now;
        match reason {
            Refusal::Full => {}
            Refusal::LinkDown(error) => self.fail_link(key, post.link, &error),
            Refusal::Never(error) => self.abort(key, post.transfer, &TransferFault::Rail(error), now),
        }
        Posted::Full
    }

    /// A request is done with.
    pub(super) fn on_completed(
        &mut self,
        rail: usize,
        link: LinkKey,
        tag: u64,
        buffers: Buffers,
        outcome: Result<(), RailError>,
    ) {
        let now = self.now;
        let (class, slot) = class_and_slot(tag);
        let value = self.carrier.take_back(class, buffers);
        let Some(&(key, index)) = self.rails[rail].links.get(&link) else { return };
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else { return };
        let state = &mut peer.links[index];
        state.in_flight = state.in_flight.saturating_sub(1);
        state.moved_at = now;
        let is_ok = outcome.is_ok();
        if let Err(error) = outcome {
            state.is_quiet = false;
            let peer_is_lost = peer.is_lost();
            if !peer_is_lost {
                self.failing.push((key, index, error));
            }
        }
        match class {
            Class::Pages if is_ok => self.page_done(key, slot),
            Class::Pages => {}
            Class::Message => self.message_done(key, index, slot, is_ok),
            Class::Atomic => self.atomic_done(key, slot, value.filter(|_| is_ok)),
        }
    }

    fn page_done(&mut self, key: PeerKey, slot: SlotId) {
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else { return };
        if peer.is_lost() {
            return;
        }
        let frames = peer.outbox.complete(slot);
        if !frames.is_empty() {
            self.send_all(key, frames);
        }
        self.round_robin.wake(key.0);
        self.collect_finished(key);
    }

    /// Answers the transfers that are done.
    pub(super) fn collect_finished(&mut self, key: PeerKey) {
        let now = self.now;
        loop {
            let Some(peer) = self.peer(key) else { return };
            let Some(Finished { transfer, is_whole }) = peer.outbox.finished() else { return };
            let Some(mut state) = peer.transfers.take(transfer.index()) else { continue };
            let names: Vec<(usize, u64)> = peer.links.iter().map(|link| (link.pair.0, link.id.0)).collect();
            let grant = state.grant;
            for ((rail, link), share) in names.into_iter().zip(&mut state.explanation.rails) {
                share.rail.clone_from(&self.rails[rail].properties().name);
                share.link = link;
            }
            let is_kept = state.is_kept;
            let missed = state.counter.take().filter(|_| !is_whole);
            let outcome = state.fault.take().filter(|_| !is_whole).map_or(Ok(()), Err);
            let held = self.carrier.release(state.op);
            let end = state.end(outcome, held, now);
            self.report(end);
            if let Some(counter) = missed {
                self.send(key, Frame::Abort { counter, reason: GIVEN_UP.to_owned() });
            }
            // What a card has for good may land at any time: the peer never hears that nothing is under way.
            if !is_kept {
                self.release(key, grant);
            }
        }
    }
}

/// An operation as it is posted.
struct Built<'a> {
    link: LinkKey,
    op: OpId,
    /// The parts of this side's memory.
    extents: &'a [Extent],
    bytes: u64,
    request: WorkRequest<'a>,
}

/// Builds an operation; none where the peer's memory is not to be had over this link.
fn build(peer: &super::peer::Peer, post: Post, has_names: bool) -> Option<Built<'_>> {
    let state = &peer.links[post.link];
    let link = state.key?;
    let operation = peer.outbox.operation(post.slot)?;
    let transfer = peer.transfers.get(post.transfer.index())?;
    let immediate = match post.immediate {
        None => None,
        Some(immediate) => Some(immediate_on(peer, state.id, immediate, has_names)?.to_bits()),
    };
    let (address, key) = (*peer.granted.get(&transfer.grant)?.keys.get(state.pair.1)?)?;
    let start = address.checked_add(transfer.base)?;
    let request = match (operation.targets.as_slice(), transfer.direction) {
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
    Some(Built { link, op: transfer.op, extents: &operation.pieces, bytes: operation.bytes, request })
}

impl super::peer::Peer {
    /// Whether a counter that it has, or has closed, has a name on a link.
    fn has_name_on(&self, link: LinkId, immediate: Immediate) -> bool {
        self.counters.get(&immediate.counter).is_none_or(|names| names.iter().any(|(id, _)| *id == link))
    }
}

/// An immediate with the name that its counter has on a link. Where counters have names of their own on it, one without would count for nobody.
fn immediate_on(
    peer: &super::peer::Peer,
    link: LinkId,
    immediate: Immediate,
    has_names: bool,
) -> Option<Immediate> {
    let names = peer.counters.get(&immediate.counter)?;
    if !has_names {
        return Some(immediate);
    }
    let (_, name) = names.iter().find(|(id, _)| *id == link)?;
    Immediate::new(*name, immediate.pages())
}
