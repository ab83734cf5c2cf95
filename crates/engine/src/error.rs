//! What can go wrong, and what to do about it.

use crate::provider::ProviderError;

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The peer is gone.
    #[error("the peer is lost: {reason}")]
    PeerLost {
        /// Why.
        reason: String,
    },
    /// A message has a bound.
    #[error("a message of {len} bytes, where {max} are the most: grant memory and write it instead")]
    TooLong {
        /// How long it is.
        len: usize,
        /// How long one may be.
        max: usize,
    },
    /// The peer's user does not take its messages.
    #[error("the peer had no room for the message in time")]
    TimedOut,
    /// The engine has ended.
    #[error("the engine has ended")]
    Ended,
}

/// Why a word was not changed, or is not known to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    /// The peer is gone. Whether the word was changed is not known.
    #[error("the peer is lost: {reason}")]
    PeerLost {
        /// Why.
        reason: String,
    },
    /// The memory is not granted for it, or not any more.
    #[error("the peer has not granted its memory for atomic operations, or wants it back")]
    NotGranted,
    /// Not eight bytes at a multiple of eight.
    #[error("no word of eight bytes at {offset} of {len}")]
    NotAWord {
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
    #[error("no answer in time: the word was changed, or not")]
    TimedOut,
    /// The rail said no.
    #[error(transparent)]
    Rail(ProviderError),
    /// The engine has ended.
    #[error("the engine has ended")]
    Ended,
}
