//! Completions of operations.

use std::fmt;
use std::mem::{self, ManuallyDrop, MaybeUninit};

use farreach_fabric_sys as sys;
use farreach_memory::Buffers;

use crate::Peer;
use crate::ep::slots::{InFlight, Taken};
use crate::error::meaning;

/// An event of a completion queue.
///
/// ```no_run
/// # use farreach_fabric::CompletionQueue;
/// use farreach_fabric::Event;
///
/// # fn poll(cq: &CompletionQueue) -> Result<(), farreach_fabric::Error> {
/// let mut poller = cq.poller();
/// for event in poller.poll()? {
///     match event {
///         Event::Completed(completion) => println!("{}: {:?}", completion.tag(), completion.outcome()),
///         Event::Written(written) => println!("a peer has written, with the immediate {:#x}", written.immediate),
///         Event::Unattributed(failure) => println!("{failure}; {}", failure.fix()),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum Event<'poller> {
    /// An operation of this side is completed.
    Completed(Completion<'poller>),
    /// A peer has written to memory of this side, with immediate data. The bytes of that write have
    /// arrived.
    Written(Written),
    /// A failure that belongs to no operation of this side, or whose operation the provider does
    /// not identify.
    Unattributed(Box<Failure>),
}

impl Event<'_> {
    /// Returns an event that can be kept after the next poll: see [`Completion::into_owned`].
    pub fn into_owned(self) -> Event<'static> {
        match self {
            Self::Completed(completion) => Event::Completed(completion.into_owned()),
            Self::Written(written) => Event::Written(written),
            Self::Unattributed(failure) => Event::Unattributed(failure),
        }
    }
}

/// A peer's write with immediate data, whose bytes have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The immediate data.
    #[doc(alias = "FI_REMOTE_CQ_DATA")]
    pub immediate: u64,
    /// The number of bytes, if the provider reports it; otherwise 0.
    pub len: usize,
}

/// A completed operation: its outcome and its buffers.
///
/// It is the proof that the provider has stopped: the buffers belong to the caller again, after
/// success or failure.
///
/// ```no_run
/// # use farreach_fabric::Completion;
/// use farreach_fabric::Proof;
///
/// fn slice_of(completion: Completion<'_>) -> farreach_memory::Buffers {
///     if let Ok(success) = completion.outcome() {
///         println!("{}", if success.proof == Proof::Delivered { "delivered" } else { "sent" });
///     }
///     completion.into_buffers()
/// }
/// ```
///
/// The operation stays in its endpoint's table until this value is dropped. Its place is not reused
/// before.
pub struct Completion<'poller>(ManuallyDrop<Kind<'poller>>);

enum Kind<'poller> {
    /// The operation is still in its table.
    Placed {
        operation: Taken<'poller>,
        entry: Entry<'poller>,
        failure: Option<Box<Failure>>,
    },
    Owned(Box<Owned>),
}

/// The queue's entry. It stays until the poller continues, which requires that this value is gone.
#[derive(Clone, Copy)]
struct Entry<'poller>(&'poller sys::fi_cq_data_entry);

// SAFETY: an entry consists of numbers and pointers. The pointers are compared and never
// dereferenced, so they may be on any thread, and nobody writes to the entry while it is borrowed.
unsafe impl Send for Entry<'_> {}
// SAFETY: as above. Two threads can only read it.
unsafe impl Sync for Entry<'_> {}

/// An operation that was moved out of its table.
struct Owned {
    operation: InFlight,
    outcome: Result<Success, Failure>,
}

impl<'poller> Completion<'poller> {
    #[inline(always)]
    pub(super) fn new(
        operation: Taken<'poller>,
        entry: &'poller sys::fi_cq_data_entry,
        failure: Option<Box<Failure>>,
    ) -> Self {
        let failure = failure.map(|mut failure| {
            failure.operation = Some(operation.kind);
            failure
        });
        Self(ManuallyDrop::new(Kind::Placed { operation, entry: Entry(entry), failure }))
    }

    #[inline(always)]
    fn into_kind(self) -> Kind<'poller> {
        let mut completion = ManuallyDrop::new(self);
        // SAFETY: it is taken once: the completion was moved into this function, and in a
        // `ManuallyDrop` its drop, which also takes it, does not run.
        unsafe { ManuallyDrop::take(&mut completion.0) }
    }

    #[inline(always)]
    fn operation(&self) -> &InFlight {
        match &*self.0 {
            Kind::Placed { operation, .. } => operation,
            Kind::Owned(owned) => &owned.operation,
        }
    }

    /// Returns the number that the caller gave the operation.
    #[inline(always)]
    pub fn tag(&self) -> u64 {
        self.operation().tag
    }

    /// Returns the kind of the operation.
    #[inline(always)]
    pub fn kind(&self) -> OperationKind {
        self.operation().kind
    }

    /// Returns the peer of the operation. A receive has none.
    #[inline(always)]
    pub fn peer(&self) -> Option<&Peer> {
        self.operation().peer.as_ref()
    }

    /// Returns the outcome.
    #[inline(always)]
    pub fn outcome(&self) -> Result<Success, &Failure> {
        match &*self.0 {
            Kind::Placed { operation, entry, failure: None } => Ok(Success::of(operation, *entry)),
            Kind::Placed { failure: Some(failure), .. } => Err(failure),
            Kind::Owned(owned) => owned.outcome.as_ref().copied(),
        }
    }

    /// Returns the buffers, which belong to the caller again.
    #[inline(always)]
    pub fn into_buffers(self) -> Buffers {
        match self.into_kind() {
            Kind::Placed { operation, failure, .. } => {
                drop(failure);
                operation.into_buffers()
            }
            Kind::Owned(owned) => owned.operation.buffers,
        }
    }

    /// Returns the outcome and the buffers.
    #[inline(always)]
    pub fn into_parts(self) -> (Result<Success, Failure>, Buffers) {
        match self.into_kind() {
            Kind::Placed { operation, entry, failure: None } => {
                let success = Success::of(&operation, entry);
                (Ok(success), operation.into_buffers())
            }
            Kind::Placed { operation, failure: Some(failure), .. } => {
                (Err(*failure), operation.into_buffers())
            }
            Kind::Owned(owned) => (owned.outcome, owned.operation.buffers),
        }
    }

    /// Returns a completion that can be kept after the next poll: the operation is moved out of its
    /// table, so that its place can be reused.
    pub fn into_owned(self) -> Completion<'static> {
        let owned = match self.into_kind() {
            Kind::Placed { operation, entry, failure } => {
                let outcome = match failure {
                    None => Ok(Success::of(&operation, entry)),
                    Some(failure) => Err(*failure),
                };
                Box::new(Owned { operation: operation.into_inner(), outcome })
            }
            Kind::Owned(owned) => owned,
        };
        Completion(ManuallyDrop::new(Kind::Owned(owned)))
    }
}

impl Drop for Completion<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: a `Kind` has as many bytes as the words (asserted below), and a `MaybeUninit` may
        // hold any. It is copied out of a field that is not read again: a drop runs once, and not
        // if `into_kind` has taken the field.
        let [first, second, third, fourth] =
            unsafe { mem::transmute_copy::<Kind<'_>, [Word; WORDS]>(&self.0) };
        // SAFETY: the words are a complete copy of the field, and are used only here.
        unsafe { drop_words(first, second, third, fourth) };
    }
}

/// Any bytes, including those of a pointer and uninitialised ones.
type Word = MaybeUninit<*const u8>;
const WORDS: usize = 4;
const _: () = assert!(size_of::<Kind<'_>>() == size_of::<[Word; WORDS]>());

/// Drops a completion, passed as words. A completion that may be dropped then need not be in
/// memory, as it would if its address were passed.
///
/// # Safety
///
/// They are the words of a [`Kind`], which is not used any more.
#[cold]
#[inline(never)]
unsafe fn drop_words(first: Word, second: Word, third: Word, fourth: Word) {
    // SAFETY: the caller guarantees that these are the words of a `Kind`, in their order.
    drop(unsafe { mem::transmute::<[Word; WORDS], Kind<'_>>([first, second, third, fourth]) });
}

impl fmt::Debug for Completion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("tag", &self.tag())
            .field("kind", &self.kind())
            .field("peer", &self.peer())
            .field("outcome", &self.outcome())
            .field("buffers", &self.operation().buffers)
            .finish()
    }
}

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// A message to a peer.
    Send,
    /// A write to the peer's memory.
    Write,
    /// A read from the peer's memory.
    Read,
    /// Fetch-and-add.
    FetchAdd,
    /// Compare-and-swap.
    CompareSwap,
    /// A receive of a message.
    Receive,
}

impl OperationKind {
    /// Returns `true` if its buffers are written to.
    #[inline]
    pub(crate) fn writes_buffers(self) -> bool {
        !matches!(self, Self::Send | Self::Write)
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::FetchAdd => "fetch and add",
            Self::CompareSwap => "compare and swap",
            Self::Receive => "receive",
        })
    }
}

/// The guarantee of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The bytes have left: the buffers are free. Over tcp the bytes may not have landed yet, and
    /// may never land.
    Sent,
    /// The bytes have arrived: in the peer's memory, or, for operations that fetch bytes, in the
    /// buffers.
    Delivered,
}

/// Properties of a successful operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Success {
    /// The length of the received message in bytes. It has no meaning for other operations.
    pub len: usize,
    /// The immediate data that came with a message.
    pub immediate: Option<u64>,
    /// The guarantee of the completion.
    pub proof: Proof,
}

impl Success {
    #[inline(always)]
    fn of(operation: &InFlight, Entry(entry): Entry<'_>) -> Self {
        let is_there = operation.kind.writes_buffers() || operation.is_delivery;
        let has_immediate = sys::FI_RECV | sys::FI_REMOTE_CQ_DATA;
        Self {
            len: entry.len,
            immediate: (entry.flags & has_immediate == has_immediate).then_some(entry.data),
            proof: if is_there { Proof::Delivered } else { Proof::Sent },
        }
    }
}

/// The reason for which an operation failed. It displays the provider's error;
/// [`cause`](Self::cause) explains it.
///
/// ```
/// use farreach_fabric::{Failure, OperationKind};
///
/// let failure = Failure {
///     operation: Some(OperationKind::Receive),
///     errno: 265,
///     text: "Truncation error".to_owned(),
///     provider_errno: 265,
///     provider_text: "Truncation error".to_owned(),
///     message_len: Some(9000),
/// };
/// assert_eq!(failure.to_string(), "receive failed: Truncation error (265)");
/// assert!(failure.cause().contains("longer than the buffers"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the operation, if the provider identifies the operation.
    pub operation: Option<OperationKind>,
    /// The error number of `fi_errno(3)`, above zero.
    pub errno: i32,
    /// The text of libfabric.
    pub text: String,
    /// The provider's own number.
    #[doc(alias = "prov_errno")]
    pub provider_errno: i32,
    /// The provider's own text.
    #[doc(alias = "fi_cq_strerror")]
    pub provider_text: String,
    /// The length of the message, if it was longer than its buffers and the provider reports that.
    #[doc(alias = "olen")]
    pub message_len: Option<usize>,
}

impl Failure {
    /// Returns the cause in this context.
    pub fn cause(&self) -> String {
        let known = match self.errno {
            sys::FI_ETRUNC => "the message is longer than the buffers that were posted for it",
            sys::FI_ECANCELED => {
                "the endpoint or its connection was closed, or the peer refused the operation"
            }
            sys::FI_ECONNREFUSED | sys::FI_EHOSTUNREACH | sys::FI_ENETUNREACH => {
                "no endpoint is at the peer's address"
            }
            sys::FI_ECONNRESET
            | sys::FI_ECONNABORTED
            | sys::FI_ENOTCONN
            | sys::FI_ESHUTDOWN
            | sys::FI_EIO => "the connection to the peer is lost",
            sys::FI_EACCES | sys::FI_EPERM | sys::FI_EKEYREJECTED => {
                "the peer's key does not allow it, or was ended"
            }
            sys::FI_ETIMEDOUT => "the peer does not answer",
            errno => match meaning(errno) {
                Some(known) => known,
                None => return self.provider_text.clone(),
            },
        };
        known.to_owned()
    }

    /// Returns a remedy.
    pub fn fix(&self) -> String {
        match self.errno {
            sys::FI_ETRUNC => "post larger buffers, or send less",
            sys::FI_EACCES | sys::FI_EPERM | sys::FI_EKEYREJECTED => {
                "ask the peer for its region again; with shm, both processes must run as the same user"
            }
            _ => "check that the peer runs and uses the same provider; set FI_LOG_LEVEL=warn for details",
        }
        .to_owned()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Some(operation) => write!(f, "{operation} failed: ")?,
            None => f.write_str("a failure without an operation: ")?,
        }
        write!(f, "{} ({})", self.text, self.errno)?;
        if self.provider_text != self.text && !self.provider_text.is_empty() {
            write!(f, "; provider: {} ({})", self.provider_text, self.provider_errno)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
