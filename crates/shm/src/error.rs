//! Why a link has ended, and why an operation failed.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::map::DescriptorError;
use crate::ring::Nonsense;

/// The reason for which a link has ended. Nothing can be posted to it any more.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The process of the peer has ended.
    #[error("the process of the peer has ended")]
    PeerEnded,
    /// The peer has closed the link.
    #[error("the peer has closed the link")]
    PeerClosed,
    /// This side has closed the link.
    #[error("this side has closed the link")]
    Closed,
    /// The peer wrote or sent something that this release never writes.
    #[error("{0}")]
    Nonsense(Nonsense),
    /// The peer does not receive what it is sent.
    #[error("the peer has left {packets} packets without receiving them")]
    Unread {
        /// The number of packets.
        packets: usize,
    },
    /// This process was forked from the one that opened the link.
    #[error("the link belongs to the process that this one was forked from")]
    Forked,
    /// A system call failed.
    #[error("{call}: {error}")]
    Call {
        /// Its name.
        call: &'static str,
        /// Its error.
        error: Arc<io::Error>,
    },
}

impl LinkError {
    pub(crate) fn call(call: &'static str, error: impl Into<io::Error>) -> Self {
        Self::Call { call, error: Arc::new(error.into()) }
    }

    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::PeerEnded | Self::PeerClosed => "start the peer again, and connect again",
            Self::Closed => "connect again",
            Self::Nonsense(_) => "run the same release on both sides",
            Self::Unread { .. } => "poll the peer's link, and connect again",
            Self::Forked => "open the link in the process that uses it",
            Self::Call { .. } => "see the cause",
        }
    }
}

impl From<Nonsense> for LinkError {
    fn from(nonsense: Nonsense) -> Self {
        Self::Nonsense(nonsense)
    }
}

/// An operation failed. The link can be used further, unless it has ended.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The peer has revoked the grant. Some bytes may have been written before.
    #[error("the peer has revoked the grant")]
    Revoked,
    /// The peer has revoked the grant while a word of it was changed: it is unknown whether the owner
    /// sees the change.
    #[error("the peer has revoked the grant meanwhile")]
    InDoubt,
    /// The peer has announced no such key.
    #[error("there is no key {key:#x}")]
    UnknownKey {
        /// The key.
        key: u64,
    },
    /// The range exceeds the grant.
    #[error("{len} bytes at offset {offset} exceed a grant of {granted} bytes")]
    OutOfBounds {
        /// The offset in the grant.
        offset: u64,
        /// The length in bytes.
        len: u64,
        /// The length of the grant in bytes.
        granted: u64,
    },
    /// The grant is for reading only.
    #[error("the grant is for reading only")]
    ReadOnly,
    /// The word of an atomic is not aligned to eight bytes, or the buffer has not eight bytes.
    #[error("an atomic needs eight bytes at an aligned offset, and a buffer of eight bytes")]
    NotAWord,
    /// The memory of the grant could not be mapped here.
    #[error("the granted memory cannot be mapped: {0}")]
    NotMapped(Arc<DescriptorError>),
    /// The link has ended.
    #[error("{0}")]
    Link(LinkError),
}

impl OperationError {
    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Revoked | Self::InDoubt | Self::UnknownKey { .. } => "ask the peer for a new grant",
            Self::OutOfBounds { .. } => "keep to the range of the grant",
            Self::ReadOnly => "ask the peer for a grant with the right to write",
            Self::NotAWord => "align the offset, and use a buffer of eight bytes",
            Self::NotMapped(error) => error.fix(),
            Self::Link(error) => error.fix(),
        }
    }
}

/// A work request was not posted.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// The link has as many operations in flight as it may have. Poll, and post again.
    #[error("the link has {max} operations in flight, the maximum")]
    Full {
        /// The maximum.
        max: usize,
    },
    /// The message is too long.
    #[error("a message of {len} bytes exceeds the maximum of {max}")]
    MessageTooLong {
        /// Its length in bytes.
        len: usize,
        /// The maximum in bytes.
        max: usize,
    },
    /// The buffers and the targets have different lengths, or there is no target.
    #[error("the buffers have {buffers} bytes, and the targets {targets}")]
    LengthsDiffer {
        /// The bytes of the buffers.
        buffers: u64,
        /// The bytes of the targets.
        targets: u64,
    },
    /// The result would be written to memory that others read.
    #[error("the buffers are shared, and cannot be written to")]
    NotWritable,
    /// The link has ended.
    #[error("{0}")]
    Link(LinkError),
}

impl PostError {
    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Full { .. } => "poll, and post again",
            Self::MessageTooLong { .. } => "divide the message, or write to granted memory",
            Self::LengthsDiffer { .. } => "name targets of as many bytes as the buffers have",
            Self::NotWritable => "use slices or lent parts",
            Self::Link(error) => error.fix(),
        }
    }
}

/// A grant could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// No other process can map the memory.
    #[error("{0}")]
    Memory(#[from] farreach_memory::BackingError),
    /// The memory can have no such key, or none now.
    #[error("{0}")]
    Key(#[from] farreach_memory::KeyError),
    /// The link has as many grants as it may have.
    #[error("the link has {max} grants, the maximum")]
    TooMany {
        /// The maximum.
        max: usize,
    },
    /// The link has ended.
    #[error("{0}")]
    Link(LinkError),
}

impl GrantError {
    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Memory(error) => error.fix(),
            Self::Key(error) => error.fix(),
            Self::TooMany { .. } => "revoke grants that are not needed, or grant larger ranges",
            Self::Link(error) => error.fix(),
        }
    }
}

/// Bytes in hexadecimal.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
