//! Collects the events of a machine, for drivers without an engine: histories and tests.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use farreach_proto::counter::{CounterId, Outcome};
use farreach_proto::error::{AtomicError, NotRevoked, OpenError, SendError};
use farreach_proto::ids::SharedCounterId;
use farreach_proto::lost::LostReason;
use farreach_proto::machine::{Event, IdMap, OpId, OpenedMemory, PeerChange, PeerKey};
use farreach_rail::{Carrier, RevokeAnswer, TransferAnswer};

use crate::end::NOT_MAPPED;

/// A slot for the result of a request, filled when the machine reports it.
#[derive(Debug)]
pub(crate) struct Answer<T>(Rc<RefCell<Option<T>>>);

impl<T> Answer<T> {
    /// Takes the result, if it was reported.
    pub(crate) fn take(&self) -> Option<T> {
        self.0.borrow_mut().take()
    }

    fn put(self, answer: T) {
        self.0.replace(Some(answer));
    }
}

/// A result that is awaited.
#[derive(Debug)]
pub(crate) enum Awaited {
    Transfer(Answer<TransferAnswer>),
    Atomic(Answer<Result<u64, AtomicError>>),
    Sent(Answer<Result<(), SendError>>),
    Revoked(Answer<RevokeAnswer>),
    /// A publication was withdrawn from a peer.
    PeerRevoked(Answer<Result<(), NotRevoked>>),
    Opened(Answer<Result<OpenedMemory, OpenError>>),
    CounterOpened(Answer<Result<CounterId, OpenError>>),
    Closed(Answer<()>),
}

/// The state of a counter, as reported by the machine.
#[derive(Debug, Default)]
pub(crate) struct CounterView {
    reached: Cell<u64>,
    end: Cell<Option<Outcome>>,
}

impl CounterView {
    pub(crate) fn reached(&self) -> u64 {
        self.reached.get()
    }

    /// Returns `true` if the peer has aborted a transfer that raises it.
    pub(crate) fn is_aborted(&self) -> bool {
        self.end.get() == Some(Outcome::Aborted)
    }

    /// Returns `true` if it will not rise any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.get().is_some()
    }
}

/// The state of a peer, as reported by the machine.
#[derive(Debug, Default)]
pub(crate) struct PeerView {
    rails: Cell<usize>,
    lost: RefCell<Option<LostReason>>,
    inbox: RefCell<VecDeque<Vec<u8>>>,
}

impl PeerView {
    /// Returns `true` if a rail is ready.
    pub(crate) fn has_rails(&self) -> bool {
        self.rails.get() > 0
    }

    /// Returns the reason for which it is lost, if it is.
    pub(crate) fn lost(&self) -> Option<LostReason> {
        self.lost.borrow().clone()
    }

    /// Returns the number of messages that were not taken.
    pub(crate) fn untaken(&self) -> usize {
        self.inbox.borrow().len()
    }

    /// Takes the next message.
    pub(crate) fn take_message(&self) -> Option<Vec<u8>> {
        self.inbox.borrow_mut().pop_front()
    }
}

/// Requests to one machine, and the events that it has reported.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    next_op: u64,
    awaited: IdMap<OpId, Awaited>,
    peers: IdMap<PeerKey, Rc<PeerView>>,
    counters: IdMap<CounterId, Rc<CounterView>>,
    /// The number of answers to requests that were not made, or were answered before.
    pub(crate) unasked: u64,
    /// Peers that have opened a shared counter since this was last taken.
    pub(crate) joined: Vec<Joined>,
}

/// A peer that has opened a shared counter, with its counter.
#[derive(Debug)]
pub(crate) struct Joined {
    pub(crate) shared: SharedCounterId,
    pub(crate) peer: PeerKey,
    pub(crate) counter: CounterId,
    pub(crate) view: Rc<CounterView>,
}

impl Answers {
    /// Assigns a number to a request that is about to be made. Returns the slot for its result.
    pub(crate) fn expect<T>(&mut self, awaited: fn(Answer<T>) -> Awaited) -> (OpId, Answer<T>) {
        let (op, cell) = (OpId(self.next_op), Rc::new(RefCell::new(None)));
        self.next_op += 1;
        self.awaited.insert(op, awaited(Answer(Rc::clone(&cell))));
        (op, Answer(cell))
    }

    pub(crate) fn add_peer(&mut self, key: PeerKey) -> Rc<PeerView> {
        Rc::clone(self.peers.entry(key).or_default())
    }

    pub(crate) fn add_counter(&mut self, counter: CounterId) -> Rc<CounterView> {
        Rc::clone(self.counters.entry(counter).or_default())
    }

    pub(crate) fn remove_counter(&mut self, counter: CounterId) {
        self.counters.remove(&counter);
    }

    /// Handles an event of the machine.
    pub(crate) fn tell(&mut self, event: Event, carrier: &mut Carrier) {
        let answered = match &event {
            Event::Transfer(op, _) | Event::Atomic(op, _) | Event::Sent(op, _) => Some(op),
            Event::Revoked(op, _) | Event::Opened(op, _) | Event::CounterOpened(op, _) => Some(op),
            _ => None,
        };
        self.unasked += u64::from(answered.is_some_and(|op| !self.awaited.contains_key(op)));
        match event {
            Event::Transfer(op, end) => {
                let answer = carrier.transfer_ended(op, end);
                if let Some(Awaited::Transfer(cell)) = self.awaited.remove(&op) {
                    cell.put(answer);
                }
            }
            Event::Atomic(op, answer) => {
                if let Some(Awaited::Atomic(cell)) = self.awaited.remove(&op) {
                    cell.put(answer);
                }
            }
            Event::Sent(op, answer) => {
                if let Some(Awaited::Sent(cell)) = self.awaited.remove(&op) {
                    cell.put(answer);
                }
            }
            Event::Revoked(op, revoked) => match self.awaited.remove(&op) {
                Some(Awaited::PeerRevoked(cell)) => cell.put(revoked),
                Some(Awaited::Revoked(cell)) => cell.put(carrier.revoked(op, revoked)),
                _ => {}
            },
            Event::Opened(op, answer) => {
                if let Some(Awaited::Opened(cell)) = self.awaited.remove(&op) {
                    cell.put(answer);
                }
            }
            Event::CounterOpened(op, answer) => {
                if let Some(Awaited::CounterOpened(cell)) = self.awaited.remove(&op) {
                    cell.put(answer);
                }
            }
            Event::CounterJoined { shared, peer, counter } => {
                let view = self.add_counter(counter);
                self.joined.push(Joined { shared, peer, counter, view });
            }
            Event::Closed(op) => {
                if let Some(Awaited::Closed(cell)) = self.awaited.remove(&op) {
                    cell.put(());
                }
            }
            Event::Reached(counter, reached) => {
                if let Some(view) = self.counters.get(&counter) {
                    view.reached.set(reached);
                }
            }
            Event::CounterEnded(counter, outcome) => {
                if let Some(view) = self.counters.get(&counter) {
                    view.end.set(Some(outcome));
                }
            }
            Event::Message(key, bytes) => {
                if let Some(view) = self.peers.get(&key) {
                    view.inbox.borrow_mut().push_back(bytes);
                }
            }
            Event::Peer(key, change) => self.peer_changed(key, change),
        }
    }

    fn peer_changed(&mut self, key: PeerKey, change: PeerChange) {
        let Some(view) = self.peers.get(&key) else { return };
        match change {
            PeerChange::Rails(rails) => view.rails.set(rails.len()),
            PeerChange::Lost(reason) => {
                // The first reason is kept.
                view.lost.borrow_mut().get_or_insert(reason);
            }
            PeerChange::Forgotten => drop(self.peers.remove(&key)),
            PeerChange::LinkLost { reason: Some(reason), .. } if reason.cause == NOT_MAPPED => {
                panic!("a link has ended, and only the memory of a key could not be mapped")
            }
            PeerChange::Named(_)
            | PeerChange::Offered
            | PeerChange::Note(_)
            | PeerChange::LinkLost { .. }
            | PeerChange::Unwatched => {}
        }
    }
}
