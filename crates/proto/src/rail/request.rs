//! Work requests.

use super::{RailError, RemoteSegment, RemoteSegments};

/// A work request for a card. All buffers that come with it are registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkRequest<'a> {
    /// Writes bytes to a peer's memory. A write without bytes delivers only its immediate.
    Write {
        /// The destination, of the same length. A write without bytes must name a place within a
        /// grant, too: libraries check the key.
        target: RemoteSegment,
        /// The immediate that the peer gets when the bytes have arrived.
        immediate: Option<u32>,
    },
    /// Writes to several segments of a peer's memory, filled one after the other: at most
    /// [`Limits::targets`](crate::plan::Limits::targets).
    WriteScattered {
        /// The destination: at least one segment, with the same number of bytes.
        targets: RemoteSegments<'a>,
        /// The immediate that the peer gets when the bytes have arrived.
        immediate: Option<u32>,
    },
    /// Reads bytes from a peer's memory into slices or lent parts.
    Read {
        /// The source, of the same length.
        target: RemoteSegment,
    },
    /// Reads from several segments of a peer's memory, one after the other, into slices or lent
    /// parts: at most [`Limits::targets`](crate::plan::Limits::targets).
    ReadGathered {
        /// The source: at least one segment, with the same number of bytes.
        targets: RemoteSegments<'a>,
    },
    /// Sends a message.
    Send,
    /// Adds to eight bytes. Stores the previous value in a slice of eight bytes.
    FetchAdd {
        /// Eight bytes, aligned to eight.
        target: RemoteSegment,
        /// The value to add.
        add: u64,
    },
    /// Replaces eight bytes if they have the expected value. Stores the previous value in a slice
    /// of eight bytes.
    CompareSwap {
        /// Eight bytes, aligned to eight.
        target: RemoteSegment,
        /// The expected value.
        expected: u64,
        /// The new value.
        desired: u64,
    },
}

/// Reasons for which a work request was not posted.
#[derive(Debug)]
pub enum Refusal {
    /// There is no room for it now.
    Full,
    /// The link can no longer be used.
    LinkDown(RailError),
    /// This card can never do it.
    Never(RailError),
}

/// Reasons for which a work request failed that its card had accepted: what fails with it.
///
/// A request fails alone, or with its key, only if the peer gets no immediate of it and nothing of it
/// lands any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Only this request fails: it would fail again.
    #[error(transparent)]
    Request(RailError),
    /// No request with this key succeeds over this link, for instance because this side cannot reach the
    /// memory. Requests with other keys go on.
    #[error(transparent)]
    Key(RailError),
    /// As [`Key`](Self::Key), because the peer has ended the key.
    #[error(transparent)]
    Revoked(RailError),
    /// The link can no longer be used, and must be closed.
    #[error(transparent)]
    Link(RailError),
}

impl RequestError {
    /// Returns the error of the rail.
    ///
    /// ```
    /// use farreach_proto::rail::{RailError, RequestError};
    ///
    /// let failed = RequestError::Key(RailError::new("write", "the memory is not mapped", "raise the limit"));
    /// assert_eq!(failed.error().cause, "the memory is not mapped");
    /// ```
    pub fn error(&self) -> &RailError {
        match self {
            Self::Request(error) | Self::Key(error) | Self::Revoked(error) | Self::Link(error) => error,
        }
    }

    /// Takes the error of the rail.
    pub fn into_error(self) -> RailError {
        match self {
            Self::Request(error) | Self::Key(error) | Self::Revoked(error) | Self::Link(error) => error,
        }
    }
}
