//! Errors of messages, of atomics, and of opening published memory and shared counters.

use std::time::Duration;

use farreach_text::Untrusted;

use crate::lost::LostReason;
use crate::rail::RailError;

/// Reasons for which a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The peer is lost.
    #[error("the peer is lost: {reason}")]
    PeerLost {
        /// The reason for which the peer is lost.
        reason: LostReason,
    },
    /// The message is longer than a message may be.
    #[error("a message of {len} bytes exceeds the maximum of {max} bytes: grant memory and write it instead")]
    TooLong {
        /// The length of the message in bytes.
        len: usize,
        /// The maximum length of a message in bytes.
        max: usize,
    },
    /// The peer's application does not take its messages. The message stays queued.
    #[error("the peer had no room for the message within {0:?}; the message stays queued")]
    TimedOut(Duration),
    /// The engine has ended.
    #[error("the engine has ended")]
    Ended,
}

/// Reasons for which published memory or a shared counter of a peer was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer is lost.
    #[error("the peer is lost: {reason}")]
    PeerLost {
        /// The reason for which the peer is lost.
        reason: LostReason,
    },
    /// The peer has refused it.
    #[error("the peer has refused it: {}", reason.shown())]
    Refused {
        /// The reason, as the peer tells it.
        reason: Untrusted,
    },
}

/// Reasons for which granted or published memory is not revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRevoked {
    /// There is no grant with this id, or it was revoked before.
    #[error("there is no such grant")]
    NoSuchGrant,
    /// There is no publication with this id, or it is being withdrawn already.
    #[error("there is no such publication")]
    NoSuchPublication,
    /// The grant was revoked again, and the later request gets the answer.
    #[error("a later revoke replaced this one")]
    Replaced,
    /// The user holds the handle again, because a wait timed out.
    #[error("the grant was returned to the user meanwhile")]
    WithUser,
    /// The deadline has passed, or no rail can tell. The peer loses its access in any case.
    #[error("it is not proven that the peer cannot access the memory any more")]
    NotProven,
}

/// Reasons for which an atomic failed, or its effect is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AtomicError {
    /// The peer is lost. It is unknown whether the atomic took effect.
    #[error("the peer is lost: {reason}")]
    PeerLost {
        /// The reason for which the peer is lost.
        reason: LostReason,
    },
    /// The memory was never granted for atomics, or its grant is being revoked.
    #[error("the memory is not granted for atomic operations, or the grant is being revoked")]
    NotGranted,
    /// The target is not eight bytes at a multiple of eight.
    #[error("an atomic needs 8 bytes at a multiple of 8: offset {offset} in memory of {len} bytes")]
    NotEightAlignedBytes {
        /// The offset of the target.
        offset: u64,
        /// The length of the memory in bytes.
        len: u64,
    },
    /// No rail to this peer supports atomics.
    #[error("no rail to the peer has atomic operations: `farreach devices` lists those that have them")]
    Unsupported,
    /// No link is ready.
    #[error("no link to the peer is ready: try again")]
    NoLink,
    /// Too many operations are in flight.
    #[error("too many operations are in flight: try again")]
    Full,
    /// The link was lost. It is unknown whether the atomic took effect.
    #[error("the link was lost: it is unknown whether the atomic took effect")]
    Unknown,
    /// No answer came in time. It is unknown whether the atomic took effect.
    #[error("no answer within {0:?}: it is unknown whether the atomic took effect")]
    TimedOut(Duration),
    /// The rail rejected the operation.
    #[error(transparent)]
    Rail(RailError),
    /// The engine has ended.
    #[error("the engine has ended")]
    Ended,
}
