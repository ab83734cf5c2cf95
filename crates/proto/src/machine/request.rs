//! Requests to the machine, as its user states them.

use crate::counter::CounterId;
use crate::plan::Plan;
use crate::rail::{RemoteSegment, WorkRequest};

/// Names a request to the machine, by a number of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpId(pub u64);

/// Names a peer of this engine. A peer that connects again gets another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerKey(pub u32);

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the peer.
    Write,
    /// From the peer.
    Read,
}

/// A transfer to begin.
#[derive(Debug)]
pub struct NewTransfer {
    /// The number of the request.
    pub op: OpId,
    /// The peer.
    pub peer: PeerKey,
    /// The direction.
    pub direction: Direction,
    /// The source and destination of the bytes.
    pub plan: Plan,
    /// The peer's grant.
    pub grant: u64,
    /// The offset in the grant of the range that the plan lies within.
    pub base: u64,
    /// The length of that range in bytes.
    pub len: u64,
    /// The peer's counter that counts the pages.
    pub counter: Option<CounterId>,
}

/// The operation of an atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOperation {
    /// Adds a number.
    FetchAdd {
        /// The number.
        add: u64,
    },
    /// Sets a value if the expected one is found.
    CompareSwap {
        /// The expected value.
        expected: u64,
        /// The new value.
        desired: u64,
    },
}

impl AtomicOperation {
    pub(super) fn on(self, target: RemoteSegment) -> WorkRequest<'static> {
        match self {
            Self::FetchAdd { add } => WorkRequest::FetchAdd { target, add },
            Self::CompareSwap { expected, desired } => WorkRequest::CompareSwap { target, expected, desired },
        }
    }
}

/// An atomic to begin.
#[derive(Debug, Clone, Copy)]
pub struct NewAtomic {
    /// The number of the request.
    pub op: OpId,
    /// The peer.
    pub peer: PeerKey,
    /// The peer's grant.
    pub grant: u64,
    /// The offset of the eight bytes in the grant.
    pub offset: u64,
    /// The operation.
    pub request: AtomicOperation,
}
