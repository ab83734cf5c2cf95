//! What a card is asked to do.

use super::{RailError, RemoteSegments};

/// A range of a peer's memory, which is inside of what the peer has granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteSegment {
    /// Where it begins, in the peer's words.
    pub address: u64,
    /// The key.
    pub key: u64,
    /// Its bytes.
    pub len: u64,
}

/// What a card is asked to do with the buffers that it is handed. Every one of them is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkRequest<'a> {
    /// Bytes to a peer's memory. Without any, only the immediate arrives.
    Write {
        /// Where to: as many bytes. Without any, a place in what the peer has granted all the same: libraries look at the key.
        target: RemoteSegment,
        /// What the peer is told when the bytes are there.
        immediate: Option<u32>,
    },
    /// Bytes to several ranges of a peer's memory, filled one after the other: at most as many as [`Limits::targets`](crate::plan::Limits::targets).
    WriteScattered {
        /// Where to: as many bytes, and at least one range.
        targets: RemoteSegments<'a>,
        /// What the peer is told when the bytes are there.
        immediate: Option<u32>,
    },
    /// Bytes from a peer's memory, to slices or lent parts.
    Read {
        /// Where from: as many bytes.
        target: RemoteSegment,
    },
    /// Bytes from several ranges of a peer's memory, one after the other, to slices or lent parts: at most as many as [`Limits::targets`](crate::plan::Limits::targets).
    ReadGathered {
        /// Where from: as many bytes, and at least one range.
        targets: RemoteSegments<'a>,
    },
    /// A message.
    Send,
    /// Adds to eight bytes. What was there goes to a slice of eight bytes.
    FetchAdd {
        /// Eight bytes, aligned to eight.
        target: RemoteSegment,
        /// What is added.
        add: u64,
    },
    /// Replaces eight bytes if they are as expected. What was there goes to a slice of eight bytes.
    CompareSwap {
        /// Eight bytes, aligned to eight.
        target: RemoteSegment,
        /// What they must be.
        expected: u64,
        /// What they become.
        desired: u64,
    },
}

/// Why a request was not taken.
#[derive(Debug)]
pub enum Refusal {
    /// There is no room for it now.
    Full,
    /// The link is of no use any more.
    LinkDown(RailError),
    /// This card never does it.
    Never(RailError),
}
