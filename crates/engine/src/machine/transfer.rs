//! Transfers: pages to a peer and from it.

use farreach_core::counter::{CounterId, LinkId, Tick};
use farreach_core::inflight::SlotId;
use farreach_core::outbox::{Finished, Post, TransferId};
use farreach_core::plan::{Extent, Plan};
use farreach_core::wire::Frame;
use farreach_memory::{Buffer, Buffers, Lent, Shared};

use super::{Machine, POSTS_PER_STEP, PeerKey};
use crate::helm::Promise;
use crate::provider::{LinkKey, ProviderError, Refusal, Refused, Request, Target, Targets};
use crate::{Explanation, RailShare, Rights};

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the peer.
    Write,
    /// From the peer.
    Read,
}

/// This side's memory of a transfer, while it is under way.
#[derive(Debug)]
pub(crate) enum Held {
    /// Read by cards.
    Shared(Shared),
    /// Written by cards, or read, and nobody else's.
    Lent(Lent),
}

impl Held {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Shared(shared) => shared.len() as u64,
            Self::Lent(lent) => lent.len() as u64,
        }
    }

    #[inline]
    fn part(&self, extent: Extent) -> Option<Buffer> {
        let start = extent.offset as usize;
        let range = start..start + extent.len as usize;
        match self {
            Self::Shared(shared) => shared.get(range).map(Buffer::Shared),
            Self::Lent(lent) => lent.get(range).map(Buffer::Lent),
        }
    }
}

/// Pages to be moved.
#[derive(Debug)]
pub(crate) struct Order {
    /// Its name among all of this engine's.
    pub(crate) number: u64,
    pub(crate) peer: PeerKey,
    pub(crate) direction: Direction,
    pub(crate) held: Held,
    pub(crate) plan: Plan,
    /// The peer's grant, and the range of it that the plan is within.
    pub(crate) grant: u64,
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) counter: Option<CounterId>,
    pub(crate) promise: Promise<TransferAnswer>,
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
    PeerLost(String),
    Aborted,
    Revoked,
    NoSuchGrant,
    NoRight,
    OutOfBounds,
    NoSuchCounter,
    Rail(ProviderError),
}

#[derive(Debug)]
pub(super) struct TransferState {
    id: TransferId,
    number: u64,
    direction: Direction,
    held: Held,
    grant: u64,
    base: u64,
    counter: Option<CounterId>,
    promise: Promise<TransferAnswer>,
    fault: Option<TransferFault>,
    /// A card has a part of its memory that will never be proven to be back.
    is_kept: bool,
    explanation: Explanation,
}

impl TransferState {
    pub(super) fn id(&self) -> TransferId {
        self.id
    }

    pub(super) fn grant(&self) -> u64 {
        self.grant
    }

    /// A card has a part of it for good.
    pub(super) fn keep_for_good(&mut self, fault: TransferFault) {
        self.is_kept = true;
        self.fault.get_or_insert(fault);
    }

    pub(super) fn answer(mut self, outcome: Result<(), TransferFault>, is_back: bool, now: u64) {
        self.explanation.finished_ns = now;
        let held = (is_back && !self.is_kept).then_some(self.held);
        self.promise.keep(TransferAnswer { outcome, held, explanation: self.explanation });
    }
}

/// Why a counter does not reach what was promised.
const GIVEN_UP: &str = "the transfer was given up";

/// What kind of request a tag is of: two bits of its slot's index, of which there are never so many.
const CLASS_SHIFT: u32 = 30;
pub(super) const PAGES: u64 = 0;
pub(super) const MESSAGE: u64 = 1;
pub(super) const WORD: u64 = 2;

pub(super) fn tag(class: u64, slot: SlotId) -> u64 {
    slot.to_raw() | class << CLASS_SHIFT
}

enum Posted {
    Bytes(u64),
    Nothing,
    Full,
}

impl Machine {
    /// Takes a transfer: how it is named among its peer's. What cannot be done is answered at once.
    pub(crate) fn submit(&mut self, order: Order, now: u64) -> Option<TransferId> {
        self.now = now;
        let refusal = self.check(&order);
        let Order { number, peer: key, direction, held, plan, grant, base, counter, promise, .. } = order;
        let pages = plan.pages() as u64;
        let mut explanation = Explanation { started_ns: now, pages, ..Explanation::default() };
        if let Some(fault) = refusal {
            promise.keep(TransferAnswer { outcome: Err(fault), held: Some(held), explanation });
            return None;
        }
        let peer = self.peer(key)?;
        explanation.rails = vec![RailShare::default(); peer.links.len()];
        if let Some(granted) = peer.granted.get_mut(&grant) {
            granted.users += 1;
        }
        let id = peer.outbox.submit(plan, counter);
        let state = TransferState {
            id,
            number,
            direction,
            held,
            grant,
            base,
            counter,
            promise,
            fault: None,
            is_kept: false,
            explanation,
        };
        peer.transfers.put(id.index(), state);
        self.turns.wake(key.0);
        self.collect_finished(key);
        self.post_pages();
        Some(id)
    }

    fn check(&mut self, order: &Order) -> Option<TransferFault> {
        let Some(peer) = self.peer(order.peer) else {
            return Some(TransferFault::PeerLost("it is gone".to_owned()));
        };
        if peer.is_lost() {
            return Some(TransferFault::PeerLost(peer.cell.lost().unwrap_or_default().to_owned()));
        }
        let Some(granted) = peer.granted.get(&order.grant) else { return Some(TransferFault::NoSuchGrant) };
        let right = match order.direction {
            Direction::Write => Rights::WRITE,
            Direction::Read => Rights::READ,
        };
        match () {
            () if granted.is_revoked => Some(TransferFault::Revoked),
            () if !granted.rights.contains(right) => Some(TransferFault::NoRight),
            () if order.base.checked_add(order.len).is_none_or(|end| end > granted.len) => {
                Some(TransferFault::OutOfBounds)
            }
            () if order.counter.is_some_and(|counter| !peer.counters.contains_key(&counter)) => {
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
        let Some(peer) = self.peer(key).filter(|peer| peer.outbox.is_short(id)) else { return };
        let Some(state) = peer.transfers.get_mut(id.index()) else { return };
        if let Some(counter) = state.counter.take() {
            self.send(key, Frame::Abort { counter, reason: GIVEN_UP.to_owned() });
        }
    }

    /// Gives up the transfer of this name.
    pub(crate) fn abort_numbered(&mut self, key: PeerKey, number: u64, fault: &TransferFault, now: u64) {
        let Some(peer) = self.peer(key) else { return };
        let found =
            peer.transfers.iter().find(|(_, state)| state.number == number).map(|(_, state)| state.id);
        if let Some(id) = found {
            self.abort(key, id, fault, now);
        }
    }

    /// Posts what there is room for, each peer in turn.
    pub(super) fn post_pages(&mut self) -> bool {
        let (mut budget, mut full) = (POSTS_PER_STEP, 0);
        while budget > 0 {
            let Some(key) = self.turns.current() else { break };
            match self.post_next(PeerKey(key)) {
                Posted::Bytes(bytes) => {
                    self.turns.spend(bytes.max(1));
                    budget -= 1;
                }
                Posted::Nothing => self.turns.rest(),
                Posted::Full => {
                    self.turns.yield_turn();
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
        let state = &peer.links[post.rail];
        if !self.rails[state.pair.0].has_room(state) {
            // Messages and words have taken what was left for pages.
            peer.outbox.refuse(post.slot);
            return Posted::Full;
        }
        let has_names = !self.rails[state.pair.0].properties().ticks_name_link;
        if has_names && post.tick.is_some_and(|tick| !peer.has_name_on(state.id, tick)) {
            // The peer has lost its end, and we hear of that soon; or it takes nothing more over this link.
            peer.outbox.refuse(post.slot);
            peer.links[post.rail].has_refused(now);
            return Posted::Full;
        }
        let list = self.lists.pop();
        let Some((link, bytes, request)) = build(peer, post, list, has_names) else {
            peer.outbox.refuse(post.slot);
            let fault = TransferFault::NoSuchGrant;
            self.abort(key, post.transfer, &fault, now);
            return Posted::Bytes(0);
        };
        let rail = peer.links[post.rail].pair.0;
        let has_tick = post.tick.is_some();
        match self.rails[rail].provider().post(link, tag(PAGES, post.slot), request) {
            Ok(()) => {
                peer.links[post.rail].took_one(now);
                if let Some(transfer) = peer.transfers.get_mut(post.transfer.index()) {
                    let share = &mut transfer.explanation.rails[post.rail];
                    share.operations += 1;
                    share.bytes += bytes;
                    share.immediates += u64::from(has_tick);
                }
                self.posted_to(key, rail);
                Posted::Bytes(bytes)
            }
            Err(Refused { reason, request }) => {
                peer.outbox.refuse(post.slot);
                peer.links[post.rail].has_refused(now);
                if let Some(transfer) = peer.transfers.get_mut(post.transfer.index()) {
                    transfer.explanation.refusals += 1;
                }
                self.recycle(request.into_buffers());
                self.refused(key, post, reason)
            }
        }
    }

    fn refused(&mut self, key: PeerKey, post: Post, reason: Refusal) -> Posted {
        let now = self.now;
        match reason {
            Refusal::Full => {}
            Refusal::LinkDown(error) => self.fail_link(key, post.rail, &error),
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
        outcome: Result<(), ProviderError>,
    ) {
        let now = self.now;
        let Some(&(key, index)) = self.rails[rail].links.get(&link) else {
            self.recycle(buffers);
            return;
        };
        let Some(peer) = self.peers.get_mut(key.0 as usize).and_then(Option::as_deref_mut) else { return };
        let state = &mut peer.links[index];
        state.in_flight = state.in_flight.saturating_sub(1);
        state.moved_at = now;
        let class = (tag >> CLASS_SHIFT) & 3;
        let slot = SlotId::from_raw(tag & !(3 << CLASS_SHIFT));
        let is_ok = outcome.is_ok();
        if let Err(error) = outcome {
            state.is_quiet = false;
            let peer_is_lost = peer.is_lost();
            if !peer_is_lost {
                self.failing.push((key, index, error));
            }
        }
        match class {
            PAGES => {
                self.recycle(buffers);
                if is_ok {
                    self.page_done(key, slot);
                }
            }
            MESSAGE => self.message_done(key, index, slot, buffers, is_ok),
            _ => self.word_done(key, slot, buffers, is_ok),
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
        self.turns.wake(key.0);
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
            state.answer(outcome, true, now);
            if let Some(counter) = missed {
                self.send(key, Frame::Abort { counter, reason: GIVEN_UP.to_owned() });
            }
            // What a card has for good may land at any time: the peer never hears that nothing is under way.
            if !is_kept {
                self.release(key, grant);
            }
        }
    }

    /// Lets go of the parts of slices, and keeps the list.
    pub(super) fn recycle(&mut self, buffers: Buffers) {
        if let Buffers::List(mut list) = buffers {
            list.clear();
            self.lists.push(list);
        }
    }
}

/// The request of an operation; none where the peer's memory is not to be had over this link.
fn build(
    peer: &super::peer::Peer,
    post: Post,
    list: Option<Vec<Buffer>>,
    has_names: bool,
) -> Option<(LinkKey, u64, Request)> {
    let link = &peer.links[post.rail];
    let key = link.key?;
    let operation = peer.outbox.operation(post.slot)?;
    let transfer = peer.transfers.get(post.transfer.index())?;
    let immediate = match post.tick {
        None => None,
        Some(tick) => Some(tick_on(peer, link.id, tick, has_names)?.to_bits()),
    };
    let pieces = pieces_of(&transfer.held, &operation.pieces, list)?;
    let (address, remote_key) = (*peer.granted.get(&transfer.grant)?.keys.get(link.pair.1)?)?;
    let start = address.checked_add(transfer.base)?;
    if operation.bytes == 0 {
        let target = Target { address: start, key: remote_key, len: 0 };
        return Some((key, 0, Request::Write { pieces, target, immediate }));
    }
    let request = match (operation.targets.as_slice(), transfer.direction) {
        ([extent], direction) => {
            let address = start.checked_add(extent.offset)?;
            let target = Target { address, key: remote_key, len: extent.len };
            match direction {
                Direction::Write => Request::Write { pieces, target, immediate },
                Direction::Read => Request::Read { pieces, target },
            }
        }
        (several, direction) => {
            let mut targets = Targets::new(remote_key);
            for extent in several {
                targets.push(start.checked_add(extent.offset)?, extent.len).then_some(())?;
            }
            match direction {
                Direction::Write => Request::WriteScattered { pieces, targets, immediate },
                Direction::Read => Request::ReadGathered { pieces, targets },
            }
        }
    };
    Some((key, operation.bytes, request))
}

impl super::peer::Peer {
    /// Whether a counter that it has, or has closed, has a name on a link.
    fn has_name_on(&self, link: LinkId, tick: Tick) -> bool {
        self.counters.get(&tick.counter).is_none_or(|names| names.iter().any(|(id, _)| *id == link))
    }
}

/// A tick in the words of a link. Where counters have names of their own on it, one without would count for nobody.
fn tick_on(peer: &super::peer::Peer, link: LinkId, tick: Tick, has_names: bool) -> Option<Tick> {
    let names = peer.counters.get(&tick.counter)?;
    if !has_names {
        return Some(tick);
    }
    let (_, name) = names.iter().find(|(id, _)| *id == link)?;
    Tick::new(*name, tick.pages())
}

fn pieces_of(held: &Held, extents: &[Extent], list: Option<Vec<Buffer>>) -> Option<Buffers> {
    match extents {
        [] => Some(Buffers::None),
        [one] => held.part(*one).map(Buffers::One),
        several => {
            let mut list = list.unwrap_or_default();
            for extent in several {
                list.push(held.part(*extent)?);
            }
            Some(Buffers::List(list))
        }
    }
}
