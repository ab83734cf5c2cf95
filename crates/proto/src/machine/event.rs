//! What the machine tells: what became of what was asked, and what has changed.

use super::{PeerKey, TransferEnd};
use crate::counter::{CounterId, Outcome};
use crate::error::{AtomicError, SendError};
use crate::lost::LostReason;
use crate::rail::RailError;

/// What was asked of the machine, by the number that the caller has given it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpId(pub u64);

/// Taken by [`Machine::poll_event`](super::Machine::poll_event) after a step, or after whatever was asked.
#[derive(Debug)]
pub enum Event {
    /// A transfer has ended.
    Transfer(OpId, TransferEnd),
    /// An atomic has found this value, or was not done.
    Atomic(OpId, Result<u64, AtomicError>),
    /// The peer's engine holds a message, or all messages before a flush; or will not.
    Sent(OpId, Result<(), SendError>),
    /// Granted memory is back; or why not yet.
    Revoked(OpId, Result<(), &'static str>),
    /// All peers are gone.
    Closed(OpId),
    /// A counter has reached so much.
    Reached(CounterId, u64),
    /// A counter will reach nothing more.
    CounterEnded(CounterId, Outcome),
    /// A message has come.
    Message(PeerKey, Vec<u8>),
    /// Something of a peer has changed.
    Peer(PeerKey, PeerChange),
}

/// What has changed of a peer.
#[derive(Debug)]
pub enum PeerChange {
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
