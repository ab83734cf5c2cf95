//! Delivers the machine's events to the callers that wait for them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use farreach_proto::counter::{CounterId, Outcome};
use farreach_proto::error::{AtomicError, NotRevoked, OpenError, SendError};
use farreach_proto::ids::SharedCounterId;
use farreach_proto::machine::{Event, IdMap, OpId, OpenedMemory, PeerChange, PeerKey};
use farreach_rail::{Carrier, RevokeAnswer, TransferAnswer};

use crate::news::News;
use crate::progress::oneshot::Sender;
use crate::progress::wake_all;
use crate::shared_cell::SharedCell;
use crate::starts::Starts;
use crate::watch::{CounterCell, PeerCell};

/// The first operation id of this process that no thread has taken. A caller has the id before the
/// machine knows the operation.
static NEXT_OP: AtomicU64 = AtomicU64::new(0);

/// The ids that a thread takes at a time. One by one, threads on different engines would wait for each
/// other's cache line at each operation.
const OPS_PER_THREAD: u64 = 1024;

thread_local! {
    /// The ids that this thread has taken and not used.
    static OWN_OPS: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

pub(crate) fn next_op() -> OpId {
    OWN_OPS.with(|own| {
        let (next, end) = match own.get() {
            (next, end) if next < end => (next, end),
            _ => {
                // Relaxed: an id has to differ from all others, and publishes nothing.
                let first = NEXT_OP.fetch_add(OPS_PER_THREAD, Ordering::Relaxed);
                (first, first + OPS_PER_THREAD)
            }
        };
        own.set((next + 1, end));
        OpId(next)
    })
}

/// A caller that waits for the end of an operation.
#[derive(Debug)]
pub(crate) enum Waiter {
    Transfer(Sender<TransferAnswer>),
    /// The memory stays with the prepared transfer.
    Started(Sender<TransferAnswer>, Arc<Starts>),
    Atomic(Sender<Result<u64, AtomicError>>),
    Sent(Sender<Result<(), SendError>>),
    Revoked(Sender<RevokeAnswer>),
    PeerRevoked(Sender<Result<(), NotRevoked>>),
    Opened(Sender<Result<OpenedMemory, OpenError>>),
    CounterOpened(Sender<Result<CounterId, OpenError>>),
    Closed(Sender<()>),
}

/// The callers that wait, and the state of peers and counters that is read without a command.
///
/// Dropping it ends every wait: each caller gets an error that the engine has ended.
#[derive(Debug)]
pub(crate) struct Delivery {
    news: Arc<News>,
    waiters: IdMap<OpId, Waiter>,
    peers: IdMap<PeerKey, Arc<PeerCell>>,
    counters: IdMap<CounterId, Arc<CounterCell>>,
    shared: IdMap<SharedCounterId, Arc<SharedCell>>,
    /// The peers that raise a shared counter, by the counter of each.
    members: IdMap<CounterId, Member>,
}

/// A peer that raises a shared counter.
#[derive(Debug)]
struct Member {
    peer: PeerKey,
    cell: Arc<CounterCell>,
    shared: Arc<SharedCell>,
}

impl Delivery {
    pub(crate) fn new(news: Arc<News>) -> Self {
        Self {
            news,
            waiters: IdMap::default(),
            peers: IdMap::default(),
            counters: IdMap::default(),
            shared: IdMap::default(),
            members: IdMap::default(),
        }
    }

    /// Registers a waiter. Returns the id under which the machine is to run the operation.
    pub(crate) fn wait_for(&mut self, waiter: Waiter) -> OpId {
        let op = next_op();
        self.wait_by_name(op, waiter);
        op
    }

    /// Registers a waiter for an operation whose id exists already.
    pub(crate) fn wait_by_name(&mut self, op: OpId, waiter: Waiter) {
        self.waiters.insert(op, waiter);
    }

    pub(crate) fn add_peer(&mut self, key: PeerKey) -> Arc<PeerCell> {
        Arc::clone(self.peers.entry(key).or_default())
    }

    pub(crate) fn add_counter(&mut self, counter: CounterId) -> Arc<CounterCell> {
        Arc::clone(self.counters.entry(counter).or_default())
    }

    /// Handles the end of a watch. Returns `true` if the peer must be watched again.
    pub(crate) fn end_watch(&self, key: PeerKey) -> bool {
        self.peers.get(&key).is_some_and(|cell| cell.end_watch())
    }

    pub(crate) fn remove_counter(&mut self, counter: CounterId) {
        self.counters.remove(&counter);
    }

    pub(crate) fn add_shared_counter(&mut self, shared: SharedCounterId) -> Arc<SharedCell> {
        Arc::clone(self.shared.entry(shared).or_default())
    }

    pub(crate) fn remove_shared_counter(&mut self, shared: SharedCounterId) {
        let Some(cell) = self.shared.remove(&shared) else { return };
        // Later events of these peers find no member, and are dropped.
        self.members.retain(|_, member| !Arc::ptr_eq(&member.shared, &cell));
    }

    /// Handles a peer that has opened a shared counter. Returns `true` if the peer must be watched.
    pub(crate) fn join_counter(
        &mut self,
        shared: SharedCounterId,
        peer: PeerKey,
        counter: CounterId,
        wakers: &mut Vec<Waker>,
    ) -> bool {
        let (Some(shared), Some(peer_cell)) = (self.shared.get(&shared), self.peers.get(&peer)) else {
            return false;
        };
        let (shared, cell) = (Arc::clone(shared), Arc::default());
        let must_watch = shared.join(peer, Arc::clone(&cell), Arc::clone(peer_cell), wakers);
        self.members.insert(counter, Member { peer, cell, shared });
        must_watch
    }

    /// Returns the bytes that are held for a peer until its user takes them.
    pub(crate) fn peer_memory(&self, key: PeerKey) -> usize {
        self.peers.get(&key).map_or(0, |cell| cell.memory())
    }

    /// Delivers an event to its waiter, with the memory that the operation held. Wakers of tasks
    /// are pushed to `wakers`, and the caller has to run them.
    pub(crate) fn deliver(&mut self, event: Event, carrier: &mut Carrier, wakers: &mut Vec<Waker>) {
        match event {
            Event::Transfer(op, end) => {
                let mut answer = carrier.transfer_ended(op, end);
                match self.waiters.remove(&op) {
                    Some(Waiter::Transfer(sender)) => sender.send(answer, wakers),
                    Some(Waiter::Started(sender, starts)) => {
                        // The order matters. `Prepared::finish` takes the memory as soon as no
                        // start runs, so it must be released before; and a caller that has its
                        // result may finish at once.
                        drop(answer.held.take());
                        starts.end_one(wakers);
                        sender.send(answer, wakers);
                    }
                    _ => {}
                }
            }
            Event::Atomic(op, answer) => {
                if let Some(Waiter::Atomic(sender)) = self.waiters.remove(&op) {
                    sender.send(answer, wakers);
                }
            }
            Event::Sent(op, answer) => {
                if let Some(Waiter::Sent(sender)) = self.waiters.remove(&op) {
                    sender.send(answer, wakers);
                }
            }
            Event::Revoked(op, revoked) => match self.waiters.remove(&op) {
                Some(Waiter::PeerRevoked(sender)) => sender.send(revoked, wakers),
                // The memory leaves the carrier in any case. If nobody takes the answer, it is
                // freed with it.
                waiter => {
                    let answer = carrier.revoked(op, revoked);
                    if let Some(Waiter::Revoked(sender)) = waiter {
                        sender.send(answer, wakers);
                    }
                }
            },
            Event::Opened(op, answer) => {
                if let Some(Waiter::Opened(sender)) = self.waiters.remove(&op) {
                    sender.send(answer, wakers);
                }
            }
            Event::Closed(op) => {
                if let Some(Waiter::Closed(sender)) = self.waiters.remove(&op) {
                    sender.send((), wakers);
                }
            }
            Event::Reached(counter, reached) => {
                if let Some(cell) = self.counters.get(&counter) {
                    cell.raise(reached, wakers);
                } else if let Some(Member { cell, shared, .. }) = self.members.get(&counter) {
                    shared.raise(cell, reached, wakers);
                }
            }
            Event::CounterEnded(counter, outcome) => {
                if let Some(cell) = self.counters.get(&counter) {
                    return cell.end(outcome, wakers);
                }
                let Some(Member { peer, cell, shared }) = self.members.get(&counter) else { return };
                shared.end(*peer, cell, outcome, wakers);
                if outcome == Outcome::PeerLost {
                    // The machine has closed it.
                    self.members.remove(&counter);
                }
            }
            Event::CounterOpened(op, answer) => {
                if let Some(Waiter::CounterOpened(sender)) = self.waiters.remove(&op) {
                    sender.send(answer, wakers);
                }
            }
            // The driver handles it, because the machine may have to watch the peer.
            Event::CounterJoined { .. } => {}
            Event::Message(key, bytes) => {
                if let Some(cell) = self.peers.get(&key) {
                    cell.put_message(bytes, wakers);
                    self.news.inboxes.list(key, cell, wakers);
                }
            }
            // Handles of the program keep the cell, and with it the reason of the loss.
            Event::Peer(key, PeerChange::Forgotten) => drop(self.peers.remove(&key)),
            Event::Peer(key, change) => {
                let Some(cell) = self.peers.get(&key) else { return };
                // Compared with the state before the change: only the first rails of a peer are a
                // connection.
                let event = self.news.events.event_of(key, cell, &change);
                let is_lost = matches!(change, PeerChange::Lost(_));
                cell.change(change, wakers);
                if let Some(event) = event {
                    // After the change, so that who takes the event finds the peer in its new
                    // state.
                    self.news.events.put(event, wakers);
                }
                // Without it, waits for any peer of a closed engine would not learn that no peer is
                // left.
                if is_lost {
                    self.news.note_parting(wakers);
                }
            }
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let mut wakers = Vec::new();
        self.news.end(&mut wakers);
        // After a panic, tasks await their counters and peers. Each finds that the engine has ended.
        self.peers.values().for_each(|cell| cell.watch.notify(&mut wakers));
        self.counters.values().for_each(|cell| cell.watch.notify(&mut wakers));
        self.shared.values().for_each(|cell| cell.watch.notify(&mut wakers));
        for waiter in self.waiters.values() {
            if let Waiter::Started(_, starts) = waiter {
                starts.notify(&mut wakers);
            }
        }
        wake_all(wakers);
    }
}
