//! Why an operation was not posted.

use std::fmt;

use crate::{Error, Failure};

/// An operation that was not posted, with the reason: nothing of it is in flight.
///
/// ```
/// use farreach_fabric::{PostError, ReceiveRequest, Refusal};
/// use farreach_memory::Memory;
///
/// // A full queue is an ordinary answer: the request is ours again, and may wait.
/// fn later(error: PostError<ReceiveRequest>, waiting: &mut Vec<ReceiveRequest>) {
///     match error.reason {
///         Refusal::QueueFull { .. } => waiting.push(error.request),
///         reason => println!("{reason}: {}", reason.fix()),
///     }
/// }
/// let request = ReceiveRequest::new(Memory::allocate(8)?);
/// let mut waiting = Vec::new();
/// later(PostError { reason: Refusal::QueueFull { in_flight: 128 }, request }, &mut waiting);
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

/// Why an operation was not posted.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// As many operations are in flight as fit: poll the completion queue, then try again.
    #[doc(alias = "FI_EAGAIN")]
    QueueFull {
        /// How many are.
        in_flight: usize,
    },
    /// A buffer's memory is not registered in the endpoint's domain, which asks for it.
    NotRegistered,
    /// More buffers than the provider takes in one operation.
    TooManyBuffers {
        /// How many there are.
        count: usize,
        /// How many it takes.
        max: usize,
    },
    /// More ranges of the peer's memory than the provider takes in one operation.
    TooManyParts {
        /// How many there are.
        count: usize,
        /// How many it takes.
        max: usize,
    },
    /// Something is to be read into a buffer that others read at the same time.
    NotWritable,
    /// More bytes than one operation of this kind can have.
    TooLong {
        /// How many there are.
        len: usize,
        /// How many are possible.
        max: usize,
    },
    /// The bytes reach beyond the end of the peer's region.
    OutOfBounds {
        /// How many bytes.
        len: usize,
        /// How many the region has.
        remote_len: u64,
    },
    /// An atomic operation on anything but eight bytes, aligned to eight.
    NotEightAlignedBytes,
    /// The provider's immediate data has fewer bytes than this needs.
    ImmediateTooLarge {
        /// The value.
        immediate: u64,
        /// How many bytes there are.
        bytes: usize,
    },
    /// The peer is in another address vector than that of the endpoint.
    OtherAddressVector,
    /// The provider does not enforce keys, and nobody vouches for the region.
    NotVouched,
    /// The provider does not do this.
    Unsupported(&'static str),
    /// The provider refused it.
    Engine(Error),
    /// An error without an operation came while room was waited for: trying on would not end.
    Failed(Failure),
}

impl Refusal {
    /// What to do about it.
    pub fn fix(&self) -> String {
        match self {
            Self::QueueFull { .. } => "poll the completion queue and post again".to_owned(),
            Self::NotRegistered => "register it: Domain::register(slice.memory())".to_owned(),
            Self::TooManyBuffers { .. } => "use fewer buffers in one operation".to_owned(),
            Self::TooManyParts { .. } => "use fewer parts in one operation".to_owned(),
            Self::NotWritable => "read into a slice, or into parts of one that is lent".to_owned(),
            Self::TooLong { .. } => "split it into several operations".to_owned(),
            Self::OutOfBounds { .. } => "check the peer's region, and what is left of it".to_owned(),
            Self::NotEightAlignedBytes => {
                "use eight bytes at an address that is a multiple of eight".to_owned()
            }
            Self::ImmediateTooLarge { bytes, .. } => format!("use a value of {bytes} bytes"),
            Self::OtherAddressVector => {
                "insert the peer's address into the address vector of the endpoint".to_owned()
            }
            Self::NotVouched => {
                "vouch for it by RemoteRegion::vouched, if the peer keeps it exposed".to_owned()
            }
            Self::Unsupported(_) => "choose a provider that has it: Info tells".to_owned(),
            Self::Engine(error) => error.fix(),
            Self::Failed(failure) => failure.fix(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull { in_flight } => {
                write!(f, "the queue is full, with {in_flight} operations in flight")
            }
            Self::NotRegistered => f.write_str("a buffer is not registered in the domain of the endpoint"),
            Self::TooManyBuffers { count, max } => {
                write!(f, "{count} buffers, and an operation has {max} at most")
            }
            Self::TooManyParts { count, max } => {
                write!(f, "{count} parts of the peer's region, and an operation has {max} at most")
            }
            Self::NotWritable => f.write_str("a buffer to be read into is shared"),
            Self::TooLong { len, max } => write!(f, "{len} bytes, where {max} are the most"),
            Self::OutOfBounds { len, remote_len } => {
                write!(f, "{len} bytes do not fit into the peer's region of {remote_len}")
            }
            Self::NotEightAlignedBytes => {
                f.write_str("an atomic operation is on eight bytes, aligned to eight")
            }
            Self::ImmediateTooLarge { immediate, bytes } => {
                write!(f, "{immediate:#x} does not fit into {bytes} bytes of immediate data")
            }
            Self::OtherAddressVector => {
                f.write_str("the peer is in another address vector than that of the endpoint")
            }
            Self::NotVouched => {
                f.write_str("the provider does not enforce keys, and nobody vouches for the peer's region")
            }
            Self::Unsupported(operation) => write!(f, "this provider does not do {operation}"),
            Self::Engine(error) => fmt::Display::fmt(error, f),
            Self::Failed(failure) => fmt::Display::fmt(failure, f),
        }
    }
}

impl<R: fmt::Debug> fmt::Display for PostError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not posted: {}", self.reason)
    }
}

impl<R: fmt::Debug> std::error::Error for PostError<R> {}
