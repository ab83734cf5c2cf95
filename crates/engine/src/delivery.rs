//! Delivers the machine's events to the callers that wait for them.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use farreach_proto::counter::CounterId;
use farreach_proto::error::{AtomicError, SendError};
use farreach_proto::machine::{Event, IdMap, OpId, PeerChange, PeerKey};
use farreach_rail::{Carrier, RevokeAnswer, TransferAnswer};

use crate::progress::oneshot::Sender;
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
    Atomic(Sender<Result<u64, AtomicError>>),
    Sent(Sender<Result<(), SendError>>),
    Revoked(Sender<RevokeAnswer>),
    Closed(Sender<()>),
}

/// The callers that wait, and the state of peers and counters that is read without a command.
///
/// Dropping it ends every wait: each caller gets an error that the engine has ended.
#[derive(Debug, Default)]
pub(crate) struct Delivery {
    waiters: IdMap<OpId, Waiter>,
    peers: IdMap<PeerKey, Arc<PeerCell>>,
    counters: IdMap<CounterId, Arc<CounterCell>>,
}

impl Delivery {
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

    /// Returns the bytes that are held for a peer until its user takes them.
    pub(crate) fn peer_memory(&self, key: PeerKey) -> usize {
        self.peers.get(&key).map_or(0, |cell| cell.memory())
    }

    /// Delivers an event to its waiter, with the memory that the operation held. Wakers of tasks
    /// are pushed to `wakers`, and the caller has to run them.
    pub(crate) fn deliver(&mut self, event: Event, carrier: &mut Carrier, wakers: &mut Vec<Waker>) {
        match event {
            Event::Transfer(op, end) => {
                let answer = carrier.transfer_ended(op, end);
                if let Some(Waiter::Transfer(sender)) = self.waiters.remove(&op) {
                    sender.send(answer, wakers);
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
            Event::Revoked(op, revoked) => {
                let answer = carrier.revoked(op, revoked);
                if let Some(Waiter::Revoked(sender)) = self.waiters.remove(&op) {
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
                }
            }
            Event::CounterEnded(counter, outcome) => {
                if let Some(cell) = self.counters.get(&counter) {
                    cell.end(outcome, wakers);
                }
            }
            Event::Message(key, bytes) => {
                if let Some(cell) = self.peers.get(&key) {
                    cell.put_message(bytes, wakers);
                }
            }
            Event::Peer(key, PeerChange::Forgotten) => drop(self.peers.remove(&key)),
            Event::Peer(key, change) => {
                if let Some(cell) = self.peers.get(&key) {
                    cell.change(change, wakers);
                }
            }
        }
    }
}
