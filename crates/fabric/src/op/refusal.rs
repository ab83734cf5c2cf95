//! Reasons for which an operation was not posted.

use std::fmt;

use crate::{Error, Failure};

/// An operation that was not posted, with the reason. Nothing of it is in flight.
///
/// ```
/// use farreach_fabric::{PostError, ReceiveRequest, Refusal};
/// use farreach_memory::Memory;
///
/// // A full queue is an ordinary result: the request is returned, and can be posted later.
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
    /// The reason.
    pub reason: Refusal,
    /// The request, with its buffers.
    pub request: R,
}

/// Reasons for which an operation was not posted.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// The queue is full: poll the completion queue, then try again.
    #[doc(alias = "FI_EAGAIN")]
    QueueFull {
        /// The number of operations in flight.
        in_flight: usize,
    },
    /// A buffer's memory is not registered in the endpoint's domain, which requires it.
    NotRegistered,
    /// There are more buffers than the provider supports in one operation.
    TooManyBuffers {
        /// The number of buffers.
        count: usize,
        /// The maximum.
        max: usize,
    },
    /// There are more ranges of the peer's memory than the provider supports in one operation.
    TooManyParts {
        /// The number of ranges.
        count: usize,
        /// The maximum.
        max: usize,
    },
    /// A read would write to a shared buffer.
    NotWritable,
    /// There are more bytes than one operation of this kind can have.
    TooLong {
        /// The number of bytes.
        len: usize,
        /// The maximum.
        max: usize,
    },
    /// The bytes end beyond the peer's region.
    OutOfBounds {
        /// The number of bytes.
        len: usize,
        /// The length of the region in bytes.
        remote_len: u64,
    },
    /// An atomic is not on eight bytes, aligned to eight.
    NotEightAlignedBytes,
    /// The immediate does not fit into the provider's immediate data.
    ImmediateTooLarge {
        /// The value.
        immediate: u64,
        /// The number of bytes of immediate data.
        bytes: usize,
    },
    /// The peer is in another address vector than that of the endpoint.
    OtherAddressVector,
    /// The provider does not enforce keys, and the region is not
    /// [vouched](crate::RemoteRegion::vouched) for.
    NotVouched,
    /// The provider does not support this.
    Unsupported(&'static str),
    /// The provider refused it.
    Engine(Error),
    /// An unattributed error came while waiting for room: further attempts would not succeed.
    Failed(Failure),
}

impl Refusal {
    /// Returns a remedy.
    pub fn fix(&self) -> String {
        match self {
            Self::QueueFull { .. } => "poll the completion queue and post again".to_owned(),
            Self::NotRegistered => "register it: Domain::register(slice.memory())".to_owned(),
            Self::TooManyBuffers { .. } => "use fewer buffers in one operation".to_owned(),
            Self::TooManyParts { .. } => "use fewer parts in one operation".to_owned(),
            Self::NotWritable => "read into a slice, or into parts of one that is lent".to_owned(),
            Self::TooLong { .. } => "split it into several operations".to_owned(),
            Self::OutOfBounds { .. } => "check the length of the peer's region".to_owned(),
            Self::NotEightAlignedBytes => {
                "use eight bytes at an address that is a multiple of eight".to_owned()
            }
            Self::ImmediateTooLarge { bytes, .. } => format!("use a value of {bytes} bytes"),
            Self::OtherAddressVector => {
                "insert the peer's address into the address vector of the endpoint".to_owned()
            }
            Self::NotVouched => "use RemoteRegion::vouched, if the peer keeps the region exposed".to_owned(),
            Self::Unsupported(_) => "choose a provider that supports it (see Info)".to_owned(),
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
                write!(f, "{count} buffers exceed the maximum of {max} in one operation")
            }
            Self::TooManyParts { count, max } => {
                write!(f, "{count} parts of the peer's region exceed the maximum of {max} in one operation")
            }
            Self::NotWritable => f.write_str("a read would write to a shared buffer"),
            Self::TooLong { len, max } => write!(f, "{len} bytes exceed the maximum of {max}"),
            Self::OutOfBounds { len, remote_len } => {
                write!(f, "{len} bytes do not fit into the peer's region of {remote_len}")
            }
            Self::NotEightAlignedBytes => {
                f.write_str("an atomic operation needs eight bytes, aligned to eight")
            }
            Self::ImmediateTooLarge { immediate, bytes } => {
                write!(f, "{immediate:#x} does not fit into {bytes} bytes of immediate data")
            }
            Self::OtherAddressVector => {
                f.write_str("the peer is in another address vector than that of the endpoint")
            }
            Self::NotVouched => {
                f.write_str("the provider does not enforce keys, and the peer's region is not vouched for")
            }
            Self::Unsupported(operation) => write!(f, "this provider does not support {operation}"),
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
