//! Requests to the machine, as its user states them.

use std::sync::Arc;

use crate::counter::CounterId;
use crate::ids::GrantId;
use crate::plan::Plan;
use crate::priority::Priority;
use crate::rail::{RemoteSegment, WorkRequest};
use crate::time::Time;

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

/// A range of a grant of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrantRange {
    /// The grant.
    pub grant: GrantId,
    /// The offset of the range in the grant.
    pub base: u64,
    /// The length of the range in bytes.
    pub len: u64,
}

/// The ranges of the peer's memory that a transfer accesses: the regions of its plan. There is at
/// least one.
#[derive(Debug, Clone)]
pub enum Regions {
    /// One range: that of pages.
    One(GrantRange),
    /// The regions of segments.
    List(Arc<[GrantRange]>),
}

impl Regions {
    /// Returns all of them.
    #[inline]
    pub fn as_slice(&self) -> &[GrantRange] {
        match self {
            Self::One(range) => std::slice::from_ref(range),
            Self::List(ranges) => ranges,
        }
    }
}

impl From<GrantRange> for Regions {
    fn from(range: GrantRange) -> Self {
        Self::One(range)
    }
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
    /// The ranges of the peer's memory that the plan lies within.
    pub regions: Regions,
    /// The peer's counter that counts the pages.
    pub counter: Option<CounterId>,
    /// Which transfers it is posted before.
    pub priority: Priority,
    /// The time at which it is aborted unless it is done. It has ended when none of its operations is in
    /// flight.
    pub deadline: Option<Time>,
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
    pub grant: GrantId,
    /// The offset of the eight bytes in the grant.
    pub offset: u64,
    /// The operation.
    pub request: AtomicOperation,
}
