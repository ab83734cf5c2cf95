//! What the machine tells: what became of what was asked, and what has changed.

use farreach_proto::counter::{CounterId, Outcome};

use super::{Machine, PeerKey, TransferEnd};
use crate::rail::RailError;
use crate::{AtomicError, LostReason, SendError};

/// What was asked of the machine, by the number that the caller has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct OpId(pub(crate) u64);

/// Taken by [`Machine::poll_event`] after a step, or after whatever was asked.
#[derive(Debug)]
pub(crate) enum Event {
    Transfer(OpId, TransferEnd),
    Atomic(OpId, Result<u64, AtomicError>),
    Sent(OpId, Result<(), SendError>),
    /// Granted memory is back; or why not yet.
    Revoked(OpId, Result<(), &'static str>),
    /// All peers are gone.
    Closed(OpId),
    /// A counter has reached so much.
    Reached(CounterId, u64),
    /// A counter will reach nothing more.
    CounterEnded(CounterId, Outcome),
    Message(PeerKey, Vec<u8>),
    Peer(PeerKey, PeerChange),
}

/// What has changed of a peer.
#[derive(Debug)]
pub(crate) enum PeerChange {
    /// What it calls itself.
    Named(String),
    /// The rails that are ready, by the names of this side's.
    Rails(Vec<String>),
    /// It has told us of a grant or a counter.
    Offered,
    /// Something went wrong with a link of it.
    Note(RailError),
    /// It is lost, and why.
    Lost(LostReason),
    /// Nothing of it is left.
    Forgotten,
}

impl Machine {
    /// What is to be told, one thing at a time.
    #[inline]
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(super) fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(super) fn report_peer(&mut self, key: PeerKey, change: PeerChange) {
        self.report(Event::Peer(key, change));
    }

    /// A counter has risen. Pages arrive one by one, and who waits for them hears of them together.
    pub(super) fn report_reached(&mut self, counter: CounterId, reached: u64) {
        match self.events.back_mut() {
            Some(Event::Reached(last, value)) if *last == counter => *value = reached,
            _ => self.report(Event::Reached(counter, reached)),
        }
    }
}
