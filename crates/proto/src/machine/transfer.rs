//! Transfers: pages to a peer and from it.

use super::in_flight::{InFlight, Requested};
use super::peer::{Link, Peer};
use super::work::{Content, Post};
use super::{Event, Machine, OpId, PeerKey};
use crate::counter::CounterId;
use crate::explain::Explanation;
use crate::inflight::SlotId;
use crate::lost::LostReason;
use crate::outbox::{Posted, TransferId};
use crate::plan::{Operation, Plan};
use crate::rail::{LinkKey, RailError, Refusal, RemoteSegment, RemoteSegments, WorkRequest};
use crate::rights::Rights;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Write,
    /// From the peer.
    Read,
}

/// Pages to be moved.
#[derive(Debug)]
pub struct NewTransfer {
    /// The number of what is asked.
    pub op: OpId,
    /// The peer.
    pub peer: PeerKey,
    /// To the peer or from it.
    pub direction: Direction,
    /// Which bytes go where.
    pub plan: Plan,
    /// The peer's grant.
    pub grant: u64,
    /// Where the range begins in the grant that the plan is within.
    pub base: u64,
    /// How long that range is.
    pub len: u64,
    /// The peer's counter that counts the pages.
    pub counter: Option<CounterId>,
}

/// What became of a transfer.
#[derive(Debug)]
pub struct TransferEnd {
    /// Whether all pages were moved.
    pub outcome: Result<(), TransferFault>,
    /// Whether its memory is back; else a card may still have a part of it.
    pub is_back: bool,
    /// How it went.
    pub explanation: Explanation,
}

/// Why pages were not moved, or not all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferFault {
    /// The peer is lost.
    PeerLost(LostReason),
    /// The user has aborted it.
    Aborted,
    /// The peer has revoked the grant.
    Revoked,
    /// The peer has not granted this.
    NoSuchGrant,
    /// The grant does not allow it.
    NoRight,
    /// The range ends behind the grant.
    OutOfBounds,
    /// The peer has no such counter.
    NoSuchCounter,
    /// A rail refused it, or has failed.
    Rail(RailError),
}

/// A request with pages, before it is built.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChosenPage {
    slot: SlotId,
    rail: usize,
    remote: RemotePages,
}

/// Where pages go to, or come from.
#[derive(Debug, Clone, Copy)]
struct RemotePages {
    link: LinkKey,
    op: OpId,
    direction: Direction,
    /// Where the range of the peer's memory begins, and its key.
    start: u64,
    key: u64,
    immediate: Option<u32>,
}

/// Why no request could be chosen.
enum Unchosen {
    /// There is nothing to be posted.
    Nothing,
    /// There is no room.
    Full,
    /// The transfer was given up instead.
    GivenUp,
}

impl Machine {
    /// Takes a transfer: how it is named among its peer's. What cannot be done is answered at once.
    pub fn submit(&mut self, new: NewTransfer, now: u64) -> Option<TransferId> {
        self.now = now;
        let (op, key, grant) = (new.op, new.peer, new.grant);
        if let Some(fault) = self.check(&new) {
            let explanation = Explanation::begin(new.plan.pages() as u64, 0, now);
            let end = TransferEnd { outcome: Err(fault), is_back: true, explanation };
            self.report(Event::Transfer(op, end));
            return None;
        }
        let peer = self.peer(key)?;
        peer.granted.begin_use(grant);
        let id = peer.transfers.submit(new, peer.links.len(), now);
        self.turns.wake(key);
        self.collect_finished(key);
        Some(id)
    }

    fn check(&mut self, new: &NewTransfer) -> Option<TransferFault> {
        let Some(peer) = self.peer(new.peer) else {
            return Some(TransferFault::PeerLost(LostReason::Gone));
        };
        if let Some(lost) = &peer.lost {
            return Some(TransferFault::PeerLost(lost.reason.clone()));
        }
        let Some(granted) = peer.granted.get(new.grant) else { return Some(TransferFault::NoSuchGrant) };
        let right = match new.direction {
            Direction::Write => Rights::WRITE,
            Direction::Read => Rights::READ,
        };
        match () {
            () if granted.is_revoked() => Some(TransferFault::Revoked),
            () if !granted.rights().contains(right) => Some(TransferFault::NoRight),
            () if new.base.checked_add(new.len).is_none_or(|end| end > granted.len()) => {
                Some(TransferFault::OutOfBounds)
            }
            () if new.counter.is_some_and(|counter| !peer.counters.knows(counter)) => {
                Some(TransferFault::NoSuchCounter)
            }
            () => None,
        }
    }

    /// Gives a transfer up. It is answered when nothing of it is under way.
    pub fn abort(&mut self, key: PeerKey, id: TransferId, fault: &TransferFault, now: u64) {
        self.now = now;
        let Some(peer) = self.peer(key) else { return };
        let Some(frames) = peer.transfers.abort(id, fault.clone()) else { return };
        self.send_all(key, frames);
        self.collect_finished(key);
    }

    /// Gives up the transfer of this name.
    pub fn abort_op(&mut self, key: PeerKey, op: OpId, fault: &TransferFault, now: u64) {
        let Some(peer) = self.peer(key) else { return };
        if let Some(id) = peer.transfers.find(op) {
            self.abort(key, id, fault, now);
        }
    }

    /// The next request with pages, each peer in turn.
    pub(super) fn choose_page(&mut self) -> Option<ChosenPage> {
        while let Some(key) = self.turns.page_sender() {
            match self.choose_page_of(key) {
                Ok(chosen) => return Some(chosen),
                Err(Unchosen::Nothing) => self.turns.rest(),
                Err(Unchosen::GivenUp) => self.turns.spend(0),
                Err(Unchosen::Full) => self.turns.yield_turn(),
            }
        }
        None
    }

    fn choose_page_of(&mut self, key: PeerKey) -> Result<ChosenPage, Unchosen> {
        let now = self.now;
        let Some(peer) = self.peers.get_mut(key) else {
            return Err(Unchosen::Nothing);
        };
        if !self.in_flight.has_room() {
            return Err(Unchosen::Full);
        }
        let Some(posted) = peer.transfers.next_post() else { return Err(Unchosen::Nothing) };
        let (index, transfer) = (posted.link(), posted.transfer());
        let state = &peer.links[index];
        let rail = state.rail();
        if !self.rails[rail].has_room(state) {
            // Messages and atomics have taken what was left for pages.
            peer.transfers.put_back(posted);
            return Err(Unchosen::Full);
        }
        let has_names = !self.rails[rail].properties().immediates_name_link;
        if has_names
            && posted
                .immediate()
                .is_some_and(|immediate| !peer.counters.is_named_on(state.id(), immediate.counter))
        {
            // The peer has lost its end, and we hear of that soon; or it takes nothing more over this link.
            peer.transfers.put_back(posted);
            peer.links[index].has_refused(now);
            return Err(Unchosen::Full);
        }
        let Some(remote) = remote_of(peer, &posted, has_names) else {
            peer.transfers.put_back(posted);
            self.abort(key, transfer, &TransferFault::NoSuchGrant, now);
            return Err(Unchosen::GivenUp);
        };
        let it = InFlight::new(key, index, Requested::Pages(posted));
        let slot = self.in_flight.put(it).ok_or(Unchosen::Full)?;
        Ok(ChosenPage { slot, rail, remote })
    }

    /// The request as it is posted.
    #[inline]
    pub(super) fn post_of_pages(&self, chosen: ChosenPage) -> Option<Post<'_>> {
        let ChosenPage { slot, rail, remote } = chosen;
        let Some(InFlight { what: Requested::Pages(posted), .. }) = self.in_flight.get(slot) else {
            return None;
        };
        let operation = posted.operation();
        let request = remote.request(operation);
        let content = Content::Pages { op: remote.op, extents: &operation.pieces, request };
        Some(Post { rail, link: remote.link, slot, content })
    }

    /// No card has them.
    pub(super) fn page_refused(&mut self, key: PeerKey, posted: Posted, reason: Refusal) {
        let (now, index, id) = (self.now, posted.link(), posted.transfer());
        if let Some(peer) = self.peer(key) {
            peer.transfers.refused(posted);
            peer.links[index].has_refused(now);
        }
        match reason {
            Refusal::Full => {}
            Refusal::LinkDown(error) => self.fail_link(key, index, &error),
            Refusal::Never(error) => self.abort(key, id, &TransferFault::Rail(error), now),
        }
        self.turns.yield_turn();
    }

    /// A card is done with pages. Those of a request that failed are kept until their link is lost, and go to another one then.
    pub(super) fn page_done(&mut self, key: PeerKey, posted: Posted, is_ok: bool) {
        let Some(peer) = self.peers.get_mut(key) else { return };
        if peer.is_lost() {
            return;
        }
        if !is_ok {
            peer.links[posted.link()].keep_failed(posted);
            return;
        }
        let frames = peer.transfers.complete(posted);
        if !frames.is_empty() {
            self.send_all(key, frames);
        }
        self.turns.wake(key);
        self.collect_finished(key);
    }

    /// Answers the transfers that are done.
    pub(super) fn collect_finished(&mut self, key: PeerKey) {
        let now = self.now;
        loop {
            let Some(peer) = self.peers.get_mut(key) else { return };
            let Some((mut transfer, is_whole, frame)) = peer.transfers.take_finished() else { return };
            let names = |link: &Link| (&self.rails[link.rail()].properties().name, link.id().0);
            transfer.name_shares(peer.links.iter().map(names));
            let (grant, is_kept) = (transfer.grant(), transfer.is_kept());
            self.report(transfer.finish(is_whole, now));
            if let Some(frame) = frame {
                self.send(key, frame);
            }
            // What a card has for good may land at any time: the peer never hears that nothing is under way.
            if !is_kept {
                self.release(key, grant);
            }
        }
    }
}

/// The place in the peer's memory that a request with pages is for; none where that is not to be had over this link.
/// It is in the share of its rail from now on.
#[inline]
fn remote_of(peer: &mut Peer, posted: &Posted, has_names: bool) -> Option<RemotePages> {
    let state = &peer.links[posted.link()];
    let immediate = match posted.immediate() {
        None => None,
        Some(immediate) => Some(peer.counters.immediate_on(state.id(), immediate, has_names)?.to_bits()),
    };
    let transfer = peer.transfers.get_mut(posted.transfer())?;
    let (address, key) = peer.granted.get(transfer.grant())?.key_over(state.peer_rail())?;
    let start = address.checked_add(transfer.base())?;
    let (link, op, direction) = (state.key()?, transfer.op(), transfer.direction());
    transfer.add_to_share(posted);
    Some(RemotePages { link, op, direction, start, key, immediate })
}

impl RemotePages {
    /// None where a range of the peer's memory would end behind the last address.
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
