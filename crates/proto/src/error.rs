//! Why a message was not sent, or an atomic not changed.

use std::time::Duration;

use crate::lost::LostReason;
use crate::rail::RailError;

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The peer is gone.
    #[error("the peer is lost: {reason}")]
    PeerLost {
        /// Why.
        reason: LostReason,
    },
    /// A message has a bound.
    #[error("a message of {len} bytes, where {max} are the most: grant memory and write it instead")]
    TooLong {
        /// How long it is.
        len: usize,
        /// How long one may be.
        max: usize,
    },
    /// The peer's user does not take its messages. It is still on its way.
    #[error("the peer had no room for the message within {0:?}; it goes on")]
    TimedOut(Duration),
    /// The engine has ended.
    #[error("the engine has ended")]
    Ended,
}

/// Why a word was not changed, or is not known to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AtomicError {
    /// The peer is gone. Whether the word was changed is not known.
    #[error("the peer is lost: {reason}")]
    PeerLost {
        /// Why.
        reason: LostReason,
    },
    /// The memory is not granted for it, or not any more.
    #[error("the peer has not granted its memory for atomic operations, or wants it back")]
    NotGranted,
    /// Not eight bytes at a multiple of eight.
    #[error("no word of eight bytes at {offset} of {len}")]
    NotEightAlignedBytes {
        /// Where it would be.
        offset: u64,
        /// How long the memory is.
        len: u64,
    },
    /// No rail to this peer has it.
    #[error("no rail to the peer has atomic operations: `farreach devices` tells which have")]
    Unsupported,
    /// No link is ready.
    #[error("no link to the peer is ready: try again")]
    NoLink,
    /// Too many are under way.
    #[error("too many operations are under way: try again")]
    Full,
    /// Its link was lost. Whether the word was changed is not known.
    #[error("the link was lost: the word was changed, or not")]
    Unknown,
    /// It took too long. Whether the word was changed is not known.
    #[error("no answer within {0:?}: the word was changed, or not")]
    TimedOut(Duration),
    /// The rail said no.
    #[error(transparent)]
    Rail(RailError),
    /// The engine has ended.
    #[error("the engine has ended")]
    Ended,
}
