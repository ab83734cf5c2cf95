//! Why a request was not posted.

use std::fmt;

use super::SendFlags;
use crate::cq::WorkKind;
use crate::error::Error;
use crate::qp::QueuePairState;

/// A request that was not posted, with the reason: nothing of it is in flight.
///
/// ```
/// use farreach_memory::Memory;
/// use farreach_verbs::wr::{PostError, Refusal, SendRequest};
///
/// // A full queue is an ordinary answer: the request is ours again, and may wait.
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
    /// Why.
    pub reason: Refusal,
    /// The request, with its buffers.
    pub request: R,
}

/// Why a request was not posted.
///
/// ```
/// use farreach_verbs::wr::Refusal;
///
/// let refusal = Refusal::OutOfBounds { len: 4096, remote_len: 1024 };
/// assert_eq!(refusal.to_string(), "4096 bytes do not fit into the peer's range of 1024");
/// assert_eq!(refusal.fix(), "check the peer's range, and what is left of it");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// As many requests are in flight as the queue holds: poll its completion queue, then try again.
    QueueFull {
        /// How many that is.
        depth: u32,
    },
    /// A buffer's memory is not registered in the queue pair's protection domain.
    NotRegistered,
    /// More buffers than the queue pair takes in one request.
    TooManyBuffers {
        /// How many there are.
        count: usize,
        /// How many it takes.
        max: u32,
    },
    /// More bytes than one buffer or message can have.
    TooLong {
        /// How many there are.
        len: usize,
        /// How many are possible.
        max: usize,
    },
    /// The bytes reach beyond the end of the peer's range.
    OutOfBounds {
        /// How many bytes.
        len: usize,
        /// How many the range has.
        remote_len: u64,
    },
    /// An atomic operation on anything but eight bytes, aligned to eight.
    NotEightAlignedBytes,
    /// A buffer that the card writes to is shared with readers.
    SharedDestination,
    /// A window or a region is of another protection domain.
    OtherDomain,
    /// A flag that the operation does not take.
    Flag {
        /// What was to be done.
        kind: WorkKind,
        /// What it does not take.
        flags: SendFlags,
    },
    /// Another queue pair is binding the window: in which order a device does both is not known.
    WindowBusy,
    /// The queue pair was not made for this operation, or its type does not have it.
    Unsupported(&'static str),
    /// The queue pair is not ready to send: this is the state that it is in.
    NotReady(QueuePairState),
    /// The card or its library refused it.
    Engine(Error),
    /// The library failed and does not say that the card has not got the request. Its buffers stay in flight, and the request is handed
    /// back without them: the end of the queue pair gives them back.
    InDoubt(Error),
}

impl Refusal {
    /// For the inlined path of a post: made out of its way, so that it costs nothing there.
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

    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::QueueFull { .. } => "poll the completion queue and post again".to_owned(),
            Self::NotRegistered => "register it: ProtectionDomain::register(slice.memory())".to_owned(),
            Self::TooManyBuffers { .. } => "use fewer buffers, or make the queue pair for more".to_owned(),
            Self::TooLong { .. } => "split it into several requests".to_owned(),
            Self::OutOfBounds { .. } => "check the peer's range, and what is left of it".to_owned(),
            Self::NotEightAlignedBytes => {
                "use eight bytes at an address that is a multiple of eight".to_owned()
            }
            Self::SharedDestination => "use a slice that is not shared".to_owned(),
            Self::OtherDomain => "make queue pair, window and region in one protection domain".to_owned(),
            Self::Flag { .. } => "post it without that flag".to_owned(),
            Self::WindowBusy => "wait for the completion of the other binding".to_owned(),
            Self::Unsupported(_) => "ask for the operation when the queue pair is built".to_owned(),
            Self::NotReady(_) => "connect the queue pair first: it sends from RTS on".to_owned(),
            Self::Engine(error) => error.fix(),
            Self::InDoubt(_) => "destroy the queue pair: that gives its buffers back".to_owned(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { depth } => write!(f, "the queue holds {depth} requests, and all are in flight"),
            Self::NotRegistered => {
                f.write_str("a buffer is not registered in the protection domain of the queue pair")
            }
            Self::TooManyBuffers { count, max } => {
                write!(f, "{count} buffers, and a request has {max} at most")
            }
            Self::TooLong { len, max } => write!(f, "{len} bytes, where {max} are the most"),
            Self::OutOfBounds { len, remote_len } => {
                write!(f, "{len} bytes do not fit into the peer's range of {remote_len}")
            }
            Self::NotEightAlignedBytes => {
                f.write_str("an atomic operation is on eight bytes, aligned to eight")
            }
            Self::SharedDestination => f.write_str("a shared buffer cannot be written to"),
            Self::OtherDomain => f.write_str("a window or a region is of another protection domain"),
            Self::Flag { kind, flags } => {
                let names: Vec<_> = flags.iter_names().map(|(name, _)| name).collect();
                write!(f, "a request of kind {kind:?} does not take {}", names.join(" or "))
            }
            Self::WindowBusy => f.write_str("another queue pair is binding this window"),
            Self::Unsupported(operation) => write!(f, "this queue pair does not do {operation}"),
            Self::NotReady(state) => write!(f, "the queue pair is not ready to send: it is in {state}"),
            Self::Engine(error) => fmt::Display::fmt(error, f),
            Self::InDoubt(error) => write!(f, "{error}; whether the card has the request is not known"),
        }
    }
}

impl<R: fmt::Debug> fmt::Display for PostError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not posted: {}", self.reason)
    }
}

impl<R: fmt::Debug> std::error::Error for PostError<R> {}
