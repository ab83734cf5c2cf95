//! Requests in the card's words, and back.

use farreach_memory::{Buffers, Slice};
use farreach_verbs::mr::RemoteKey;
use farreach_verbs::wr::{RemoteRange, SendRequest};

use crate::provider::{ProviderError, Request, Target};

/// A request without its buffers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Write { target: Target, immediate: Option<u32> },
    Read { target: Target },
    Send,
    FetchAdd { target: Target, add: u64 },
    CompareSwap { target: Target, expected: u64, desired: u64 },
}

impl Shape {
    #[inline]
    pub(super) fn of(request: Request) -> (Self, Buffers) {
        match request {
            Request::Write { pieces, target, immediate } => (Self::Write { target, immediate }, pieces),
            Request::Read { pieces, target } => (Self::Read { target }, pieces),
            // Those of several ranges were refused before.
            Request::WriteScattered { pieces, .. }
            | Request::ReadGathered { pieces, .. }
            | Request::Send { pieces } => (Self::Send, pieces),
            Request::FetchAdd { into, target, add } => (Self::FetchAdd { target, add }, into),
            Request::CompareSwap { into, target, expected, desired } => {
                (Self::CompareSwap { target, expected, desired }, into)
            }
        }
    }

    /// The request again.
    pub(super) fn with(self, buffers: Buffers) -> Request {
        match self {
            Self::Write { target, immediate } => Request::Write { pieces: buffers, target, immediate },
            Self::Read { target } => Request::Read { pieces: buffers, target },
            Self::Send => Request::Send { pieces: buffers },
            Self::FetchAdd { target, add } => Request::FetchAdd { into: buffers, target, add },
            Self::CompareSwap { target, expected, desired } => {
                Request::CompareSwap { into: buffers, target, expected, desired }
            }
        }
    }

    /// As the card takes it. What it never takes is handed back, with the reason.
    #[inline]
    pub(super) fn to_card(self, buffers: Buffers) -> Result<SendRequest, (ProviderError, Buffers)> {
        let remote = match self.remote() {
            Ok(remote) => remote,
            Err(error) => return Err((error, buffers)),
        };
        Ok(match self {
            Self::Write { immediate: None, .. } => SendRequest::write(buffers, remote),
            Self::Write { immediate: Some(immediate), .. } => {
                SendRequest::write(buffers, remote).immediate(immediate)
            }
            Self::Read { .. } => SendRequest::read_into(buffers, remote),
            Self::Send => SendRequest::send(buffers),
            Self::FetchAdd { add, .. } => SendRequest::fetch_add(answer(buffers)?, remote, add),
            Self::CompareSwap { expected, desired, .. } => {
                SendRequest::compare_swap(answer(buffers)?, remote, expected, desired)
            }
        })
    }

    #[inline]
    fn remote(self) -> Result<RemoteRange, ProviderError> {
        let target = match self {
            Self::Write { target, .. }
            | Self::Read { target }
            | Self::FetchAdd { target, .. }
            | Self::CompareSwap { target, .. } => target,
            Self::Send => Target { address: 0, key: 0, len: 0 },
        };
        match u32::try_from(target.key) {
            Ok(key) => Ok(RemoteRange::new(target.address, target.len, RemoteKey(key))),
            Err(_) => Err(never("a key with more than 32 bits is no card's")),
        }
    }
}

/// Where the old value of an atomic goes.
fn answer(into: Buffers) -> Result<Slice, (ProviderError, Buffers)> {
    into.into_slice().map_err(|other| (never("the old value of an atomic goes to one slice"), other))
}

/// A request that no card does.
#[cold]
pub(super) fn never(cause: impl Into<String>) -> ProviderError {
    ProviderError::new("post a request", cause, "ask the rail's properties what it does")
}
