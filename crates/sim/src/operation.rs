//! A work request in a simulated card.

use std::ops::Range;
use std::sync::Weak;

use farreach_memory::{Buffers, Exposed};
use farreach_proto::rights::Rights;
use farreach_rail::{RemoteSegment, WorkRequest};

use super::end::Failure;

/// A work request and its progress. It outlives its completion if bytes of it may still land.
pub(super) struct Operation {
    /// The number of the post, used in notes.
    pub(super) serial: u64,
    pub(super) card: usize,
    pub(super) end: usize,
    pub(super) peer: usize,
    pub(super) tag: u64,
    pub(super) kind: Kind,
    pub(super) target: Option<RemoteSegment>,
    pub(super) state: State,
    /// The buffers, until they are handed back.
    pub(super) buffers: Buffers,
    /// The bytes in transit between the two memories.
    pub(super) wire: Vec<u8>,
    pub(super) len: usize,
    pub(super) parts: u8,
    pub(super) departed: u8,
    pub(super) landed: u8,
    pub(super) answered: u8,
    /// Whether only the completions of earlier work requests are missing.
    pub(super) is_answered: bool,
    pub(super) failure: Option<Failure>,
    /// The number of actions that refer to it.
    pub(super) actions: u32,
    /// The memory that it has begun to access, if an ended key does not stop it.
    pub(super) grip: Option<Weak<Exposed>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Write { immediate: Option<u32> },
    Read,
    Send,
    FetchAdd { add: u64 },
    CompareSwap { expected: u64, desired: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    InFlight,
    /// Completed. Its bytes may still be in flight if a completion does not prove that they have
    /// landed.
    Completed,
    /// Abandoned by its side: closed, reset or killed.
    Abandoned,
}

impl Operation {
    /// Returns the bytes of a part. The parts are about equal.
    pub(super) fn range(&self, part: u8) -> Range<usize> {
        let bound = |part: usize| self.len * part / usize::from(self.parts);
        bound(part.into())..bound(usize::from(part) + 1)
    }

    /// Returns `true` if its bytes come from its own side.
    pub(super) fn carries_bytes(&self) -> bool {
        matches!(self.kind, Kind::Write { .. } | Kind::Send)
    }

    /// Returns the rights that it needs.
    pub(super) fn rights(&self) -> Rights {
        match self.kind {
            Kind::Write { .. } => Rights::WRITE,
            Kind::Read => Rights::READ,
            Kind::Send => Rights::empty(),
            Kind::FetchAdd { .. } | Kind::CompareSwap { .. } => Rights::ATOMIC,
        }
    }
}

impl Kind {
    /// Returns the kind and the target of a work request. Returns `None` if it has several remote
    /// segments, which no simulated card supports.
    pub(super) fn of(request: WorkRequest<'_>) -> Option<(Self, Option<RemoteSegment>)> {
        Some(match request {
            WorkRequest::Write { target, immediate } => (Self::Write { immediate }, Some(target)),
            WorkRequest::Read { target } => (Self::Read, Some(target)),
            WorkRequest::WriteScattered { .. } | WorkRequest::ReadGathered { .. } => return None,
            WorkRequest::Send => (Self::Send, None),
            WorkRequest::FetchAdd { target, add } => (Self::FetchAdd { add }, Some(target)),
            WorkRequest::CompareSwap { target, expected, desired } => {
                (Self::CompareSwap { expected, desired }, Some(target))
            }
        })
    }
}
