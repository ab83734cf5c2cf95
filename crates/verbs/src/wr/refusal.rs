//! Errors of posting.

use std::fmt;

use super::SendFlags;
use crate::cq::WorkKind;
use crate::error::Error;
use crate::qp::QueuePairState;

/// A work request that was not posted, with the reason. Nothing of it is in flight, except with
/// [`Refusal::InDoubt`].
///
/// ```
/// use farreach_memory::Memory;
/// use farreach_verbs::wr::{PostError, Refusal, SendRequest};
///
/// // A full queue is an ordinary result: the caller gets the work request back.
/// fn later(error: PostError<SendRequest>, waiting: &mut Vec<SendRequest>) {
///     match error.reason {
///         Refusal::QueueFull { .. } => waiting.push(error.request),
///         reason => println!("{reason}"),
///     }
/// }
/// let request = SendRequest::send(Memory::allocate(8)?);
/// let mut waiting = Vec::new();
/// later(PostError { reason: Refusal::QueueFull { depth: 128 }, request }, &mut waiting);
/// assert_eq!(waiting.len(), 1);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug)]
pub struct PostError<R> {
    /// The reason.
    pub reason: Refusal,
    /// The work request, with its buffers.
    pub request: R,
}

/// The reason why a work request was not posted.
///
/// ```
/// use farreach_verbs::wr::Refusal;
///
/// let refusal = Refusal::OutOfBounds { len: 4096, remote_len: 1024 };
/// assert_eq!(refusal.to_string(), "4096 bytes do not fit into the peer's range of 1024");
/// assert_eq!(refusal.fix(), "check the length of the peer's range");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The queue is full: poll its completion queue, then post again.
    QueueFull {
        /// The maximum number of work requests in flight.
        depth: u32,
    },
    /// A buffer's memory is not registered in the queue pair's protection domain.
    NotRegistered,
    /// More buffers than the queue pair allows in one work request.
    TooManyBuffers {
        /// The number of buffers.
        count: usize,
        /// The maximum number of buffers.
        max: u32,
    },
    /// More bytes than one buffer or message can have.
    TooLong {
        /// The number of bytes.
        len: usize,
        /// The maximum number of bytes.
        max: usize,
    },
    /// The bytes exceed the peer's range.
    OutOfBounds {
        /// The number of bytes.
        len: usize,
        /// The length of the range, in bytes.
        remote_len: u64,
    },
    /// An atomic operation needs eight bytes, aligned to eight.
    NotEightAlignedBytes,
    /// A buffer that the device writes to is shared with readers.
    SharedDestination,
    /// A window or a region belongs to another protection domain.
    OtherDomain,
    /// The operation does not support a flag.
    Flag {
        /// The kind of the work request.
        kind: WorkKind,
        /// The unsupported flags.
        flags: SendFlags,
    },
    /// Another queue pair is binding the window. The order in which the device executes both is
    /// undefined.
    WindowBusy,
    /// The queue pair was not created for this operation, or its type does not support it.
    Unsupported(&'static str),
    /// The queue pair is not ready to send, because it is in this state.
    NotReady(QueuePairState),
    /// The device or its library refused the work request.
    Engine(Error),
    /// The library failed without naming the work request as refused, so the device may have it.
    /// Its buffers stay in flight, and the work request is returned without them: the end of the
    /// queue pair returns them.
    InDoubt(Error),
}

impl Refusal {
    /// Constructs the error outside of the inlined path of a post, so that it costs nothing there.
    #[cold]
    #[inline(never)]
    pub(crate) fn not_registered() -> Self {
        Self::NotRegistered
    }

    /// As [`not_registered`](Self::not_registered).
    #[cold]
    #[inline(never)]
    pub(crate) fn too_long(len: usize, max: usize) -> Self {
        Self::TooLong { len, max }
    }

    /// As [`not_registered`](Self::not_registered).
    #[cold]
    #[inline(never)]
    pub(crate) fn too_many_buffers(count: usize, max: u32) -> Self {
        Self::TooManyBuffers { count, max }
    }

    /// As [`not_registered`](Self::not_registered).
    #[cold]
    #[inline(never)]
    pub(crate) fn out_of_bounds(len: usize, remote_len: u64) -> Self {
        Self::OutOfBounds { len, remote_len }
    }

    /// As [`not_registered`](Self::not_registered).
    #[cold]
    #[inline(never)]
    pub(crate) fn flag(kind: WorkKind, flags: SendFlags) -> Self {
        Self::Flag { kind, flags }
    }

    /// As [`not_registered`](Self::not_registered).
    #[cold]
    #[inline(never)]
    pub(crate) fn unsupported(what: &'static str) -> Self {
        Self::Unsupported(what)
    }

    /// Returns an instruction that resolves the refusal.
    pub fn fix(&self) -> String {
        match self {
            Self::QueueFull { .. } => "poll the completion queue and post again".to_owned(),
            Self::NotRegistered => "register it: ProtectionDomain::register(slice.memory())".to_owned(),
            Self::TooManyBuffers { .. } => "use fewer buffers, or create the queue pair for more".to_owned(),
            Self::TooLong { .. } => "split it into several work requests".to_owned(),
            Self::OutOfBounds { .. } => "check the length of the peer's range".to_owned(),
            Self::NotEightAlignedBytes => {
                "use eight bytes at an address that is a multiple of eight".to_owned()
            }
            Self::SharedDestination => "use a slice that is not shared".to_owned(),
            Self::OtherDomain => "create queue pair, window and region in one protection domain".to_owned(),
            Self::Flag { .. } => "post it without that flag".to_owned(),
            Self::WindowBusy => "wait for the completion of the other binding".to_owned(),
            Self::Unsupported(_) => "request the operation when the queue pair is built".to_owned(),
            Self::NotReady(_) => "connect the queue pair first: it can send in RTS".to_owned(),
            Self::Engine(error) => error.fix(),
            Self::InDoubt(_) => "destroy the queue pair, which returns its buffers".to_owned(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { depth } => write!(f, "the queue is full: {depth} work requests are in flight"),
            Self::NotRegistered => {
                f.write_str("a buffer is not registered in the protection domain of the queue pair")
            }
            Self::TooManyBuffers { count, max } => {
                write!(f, "{count} buffers exceed the maximum of {max} for a work request")
            }
            Self::TooLong { len, max } => write!(f, "{len} bytes exceed the maximum of {max}"),
            Self::OutOfBounds { len, remote_len } => {
                write!(f, "{len} bytes do not fit into the peer's range of {remote_len}")
            }
            Self::NotEightAlignedBytes => {
                f.write_str("an atomic operation needs eight bytes, aligned to eight")
            }
            Self::SharedDestination => f.write_str("a shared buffer cannot be written to"),
            Self::OtherDomain => f.write_str("a window or a region belongs to another protection domain"),
            Self::Flag { kind, flags } => {
                let names: Vec<_> = flags.iter_names().map(|(name, _)| name).collect();
                write!(f, "a work request of kind {kind:?} does not support {}", names.join(" or "))
            }
            Self::WindowBusy => f.write_str("another queue pair is binding this window"),
            Self::Unsupported(operation) => write!(f, "this queue pair does not support {operation}"),
            Self::NotReady(state) => write!(f, "the queue pair is not ready to send: it is in {state}"),
            Self::Engine(error) => fmt::Display::fmt(error, f),
            Self::InDoubt(error) => {
                write!(f, "{error}; it is unknown whether the device has the work request")
            }
        }
    }
}

impl<R: fmt::Debug> fmt::Display for PostError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not posted: {}", self.reason)
    }
}

impl<R: fmt::Debug> std::error::Error for PostError<R> {}
