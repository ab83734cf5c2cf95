//! Events of the machine: results of requests, and changes of peers.

use super::{OpId, PeerKey};
use crate::counter::{CounterId, Outcome};
use crate::error::{AtomicError, NotRevoked, OpenError, SendError};
use crate::ids::{GrantId, SharedCounterId};
use crate::lost::LostReason;
use crate::rail::RailError;
use crate::rights::Rights;
use crate::stats::TransferStats;

/// An event. Returned by [`Machine::poll_event`](super::Machine::poll_event) after a step, or after
/// a request.
#[derive(Debug)]
pub enum Event {
    /// A transfer has ended.
    Transfer(OpId, TransferEnd),
    /// An atomic found this value, or failed.
    Atomic(OpId, Result<u64, AtomicError>),
    /// The peer's engine holds a message, or all messages before a flush; or the error.
    Sent(OpId, Result<(), SendError>),
    /// Granted memory was given back, or the reason for which it was not yet.
    Revoked(OpId, Result<(), NotRevoked>),
    /// Published memory of a peer was granted to this side, or the error.
    Opened(OpId, Result<OpenedMemory, OpenError>),
    /// This side may raise a shared counter of a peer, by this counter; or the error.
    CounterOpened(OpId, Result<CounterId, OpenError>),
    /// A peer has opened a shared counter of this side, and raises it by a counter of its own.
    CounterJoined {
        /// The shared counter.
        shared: SharedCounterId,
        /// The peer.
        peer: PeerKey,
        /// The counter of the peer.
        counter: CounterId,
    },
    /// All peers are gone.
    Closed(OpId),
    /// A counter has reached a value.
    Reached(CounterId, u64),
    /// A counter will not rise any more.
    CounterEnded(CounterId, Outcome),
    /// A message has arrived.
    Message(PeerKey, Vec<u8>),
    /// A peer has changed.
    Peer(PeerKey, PeerChange),
}

/// Published memory of a peer that was granted to this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedMemory {
    /// The grant.
    pub grant: GrantId,
    /// The length in bytes.
    pub len: u64,
    /// The rights of this side.
    pub rights: Rights,
}

/// The result of a transfer.
#[derive(Debug)]
pub struct TransferEnd {
    /// Whether all pages were moved.
    pub outcome: Result<(), TransferFault>,
    /// `true` if its memory is free; `false` if a card may still access a part of it.
    pub is_back: bool,
    /// The statistics of the transfer.
    pub stats: TransferStats,
}

/// Reasons for which pages were not moved, or not all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferFault {
    /// The peer is lost.
    PeerLost(Box<LostReason>),
    /// The user aborted it.
    Aborted,
    /// Its deadline passed, and it was aborted.
    DeadlinePassed,
    /// The peer has revoked the grant.
    Revoked,
    /// The peer has no such grant.
    NoSuchGrant,
    /// The grant does not allow the operation.
    NoRight,
    /// The range ends beyond the grant.
    OutOfBounds,
    /// Its regions were granted over rails of different scopes.
    Scopes,
    /// The peer has no such counter.
    NoSuchCounter,
    /// A rail refused it, or has failed.
    Rail(Box<RailError>),
}

/// A change of a peer.
#[derive(Debug)]
pub enum PeerChange {
    /// The name that the peer announced.
    Named(String),
    /// The rails with a ready link, by the names of this side.
    Rails(Vec<String>),
    /// The peer announced a grant or a counter.
    Offered,
    /// An error of the peer's links.
    Note(RailError),
    /// A link that was ready has ended, while the peer is not lost.
    LinkLost {
        /// The rail, by the name of this side.
        rail: String,
        /// The error, if one was reported. Without it, the rail was reset, or the link has failed with
        /// the rail of the peer.
        reason: Option<RailError>,
    },
    /// A [watch](super::Machine::watch) has ended.
    Unwatched,
    /// The peer is lost.
    Lost(LostReason),
    /// All state of the peer is gone.
    Forgotten,
}
