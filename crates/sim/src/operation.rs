//! A request that a card has.

use std::ops::Range;
use std::sync::Weak;

use farreach_memory::{Buffers, Exposed};
use farreach_proto::rights::Rights;
use farreach_rail::{RemoteSegment, WorkRequest};

use super::end::Failure;

/// A request, and what is under way of it. It outlives its completion where bytes of it may still land.
pub(super) struct Operation {
    /// Counts posts: what notes call it.
    pub(super) serial: u64,
    pub(super) card: usize,
    pub(super) end: usize,
    pub(super) peer: usize,
    pub(super) tag: u64,
    pub(super) kind: Kind,
    pub(super) target: Option<RemoteSegment>,
    pub(super) state: State,
    /// What the card was handed, until it is handed back.
    pub(super) buffers: Buffers,
    /// The bytes between the two memories.
    pub(super) wire: Vec<u8>,
    pub(super) len: usize,
    pub(super) parts: u8,
    pub(super) departed: u8,
    pub(super) landed: u8,
    pub(super) answered: u8,
    /// Nothing is missing but the completions of those before it.
    pub(super) is_answered: bool,
    pub(super) failure: Option<Failure>,
    /// Actions that name it.
    pub(super) actions: u32,
    /// The memory that it has begun to work on, where a dead key does not stop it.
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
    /// Completed; its bytes may still be under way where a completion does not prove that they have landed.
    Completed,
    /// Its side has given it up: closed, reset or killed.
    Abandoned,
}

impl Operation {
    /// The bytes of a part: the parts are about equal.
    pub(super) fn range(&self, part: u8) -> Range<usize> {
        let bound = |part: usize| self.len * part / usize::from(self.parts);
        bound(part.into())..bound(usize::from(part) + 1)
    }

    /// Whether its bytes come from its own side.
    pub(super) fn carries_bytes(&self) -> bool {
        matches!(self.kind, Kind::Write { .. } | Kind::Send)
    }

    /// What it needs the peer's word for.
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
    /// What a request is, and where; none where it has several ranges, which no simulated card takes.
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
