//! What became of an operation.

use std::fmt;
use std::mem::{self, ManuallyDrop, MaybeUninit};

use farreach_fabric_sys as sys;
use farreach_memory::Buffers;

use crate::Peer;
use crate::ep::slots::{InFlight, Taken};
use crate::error::meaning;

/// What a completion queue tells.
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
///         Event::Written(written) => println!("a peer has written, and says {:#x}", written.immediate),
///         Event::Unattributed(failure) => println!("{failure}; {}", failure.fix()),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum Event<'poller> {
    /// An operation of ours is done.
    Completed(Completion<'poller>),
    /// A peer has written to our memory, with immediate data. The bytes of that write are there.
    Written(Written),
    /// Something failed that is no operation of ours, or that the provider does not say the operation of.
    Unattributed(Box<Failure>),
}

impl Event<'_> {
    /// The same, to be kept for longer than until the next poll: see [`Completion::into_owned`].
    pub fn into_owned(self) -> Event<'static> {
        match self {
            Self::Completed(completion) => Event::Completed(completion.into_owned()),
            Self::Written(written) => Event::Written(written),
            Self::Unattributed(failure) => Event::Unattributed(failure),
        }
    }
}

/// A peer's write with immediate data, whose bytes are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The immediate data.
    #[doc(alias = "FI_REMOTE_CQ_DATA")]
    pub immediate: u64,
    /// How many bytes, where the provider says it; 0 otherwise.
    pub len: usize,
}

/// An operation that the provider is done with: how it went, and its buffers.
///
/// It is the proof that the provider has stopped: the buffers are the caller's again, whether it went well or not.
///
/// ```no_run
/// # use farreach_fabric::Completion;
/// use farreach_fabric::Proof;
///
/// fn slice_of(completion: Completion<'_>) -> farreach_memory::Buffers {
///     if let Ok(success) = completion.outcome() {
///         println!("{}", if success.proof == Proof::Delivered { "it is there" } else { "it has left" });
///     }
///     completion.into_buffers()
/// }
/// ```
///
/// The operation still lies in its endpoint's table, which has no room for another one there before this is gone.
pub struct Completion<'poller>(ManuallyDrop<Kind<'poller>>);

enum Kind<'poller> {
    /// The operation is in its table still.
    Placed {
        operation: Taken<'poller>,
        entry: Entry<'poller>,
        failure: Option<Box<Failure>>,
    },
    Owned(Box<Owned>),
}

/// The queue's entry: it stays until the poller goes on, which it cannot before this is gone.
#[derive(Clone, Copy)]
struct Entry<'poller>(&'poller sys::fi_cq_data_entry);

// SAFETY: an entry is numbers and pointers. The pointers are compared, and never followed, so that they may be on any thread; nobody writes to the entry while
// this borrows it.
unsafe impl Send for Entry<'_> {}
// SAFETY: as above: all that two threads can do with it is to read it.
unsafe impl Sync for Entry<'_> {}

/// An operation that was taken out of its table.
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
        // SAFETY: it is taken once: the completion was given away to this function, and in a `ManuallyDrop` its drop, which uses it up too, does not run.
        unsafe { ManuallyDrop::take(&mut completion.0) }
    }

    #[inline(always)]
    fn operation(&self) -> &InFlight {
        match &*self.0 {
            Kind::Placed { operation, .. } => operation,
            Kind::Owned(owned) => &owned.operation,
        }
    }

    /// The number that the caller gave the operation.
    #[inline(always)]
    pub fn tag(&self) -> u64 {
        self.operation().tag
    }

    /// What was asked for.
    #[inline(always)]
    pub fn kind(&self) -> OperationKind {
        self.operation().kind
    }

    /// The peer that it was for. A receive does not know.
    #[inline(always)]
    pub fn peer(&self) -> Option<&Peer> {
        self.operation().peer.as_ref()
    }

    /// How it went.
    #[inline(always)]
    pub fn outcome(&self) -> Result<Success, &Failure> {
        match &*self.0 {
            Kind::Placed { operation, entry, failure: None } => Ok(Success::of(operation, *entry)),
            Kind::Placed { failure: Some(failure), .. } => Err(failure),
            Kind::Owned(owned) => owned.outcome.as_ref().copied(),
        }
    }

    /// The buffers, which are the caller's again.
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

    /// How it went, and the buffers.
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

    /// The same, to be kept for longer than until the next poll: the operation is taken out of its table, where another one then may be.
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
        // SAFETY: a `Kind` has as many bytes as the words (asserted below), and a `MaybeUninit` may hold any. It is copied out of a field that nobody reads
        // again: a drop runs once, and not where `into_kind` has taken it.
        let [first, second, third, fourth] =
            unsafe { mem::transmute_copy::<Kind<'_>, [Word; WORDS]>(&self.0) };
        // SAFETY: the words are those of the field, copied whole, and are used only here.
        unsafe { drop_words(first, second, third, fourth) };
    }
}

/// Any bytes, also those of a pointer, and those that nobody has written.
type Word = MaybeUninit<*const u8>;
const WORDS: usize = 4;
const _: () = assert!(size_of::<Kind<'_>>() == size_of::<[Word; WORDS]>());

/// Drops a completion. By its words, so that one that may be dropped need not lie in memory, where this would be called with its address.
///
/// # Safety
///
/// They are those of a [`Kind`], which is not used any more.
#[cold]
#[inline(never)]
unsafe fn drop_words(first: Word, second: Word, third: Word, fourth: Word) {
    // SAFETY: the caller vouches that these are the words of a `Kind`, in their order.
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

/// What an operation asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperationKind {
    /// A message out.
    Send,
    /// Bytes into the peer's memory.
    Write,
    /// Bytes out of the peer's memory.
    Read,
    /// Fetch and add.
    FetchAdd,
    /// Compare and swap.
    CompareSwap,
    /// Room for a message, which has come.
    Receive,
}

impl OperationKind {
    /// Whether its buffers are written to.
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

/// What a completion proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The bytes have left: the buffers are free. Over tcp they may not have landed yet, nor ever land.
    Sent,
    /// The bytes are where they should be: in the peer's memory, or, of what brings bytes here, in the buffers.
    Delivered,
}

/// What is known of an operation that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Success {
    /// The bytes of the message that came; of other operations it means nothing.
    pub len: usize,
    /// The immediate data that came along with a message.
    pub immediate: Option<u64>,
    /// What the completion proves.
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

/// Why an operation failed. It displays as what the provider said; [`cause`](Self::cause) says what that means here.
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
/// assert!(failure.cause().contains("longer than the room"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was asked for, where the provider says which operation it was.
    pub operation: Option<OperationKind>,
    /// The error number of `fi_errno(3)`, above zero.
    pub errno: i32,
    /// What libfabric calls it.
    pub text: String,
    /// The provider's own number for it.
    #[doc(alias = "prov_errno")]
    pub provider_errno: i32,
    /// What the provider says to it.
    #[doc(alias = "fi_cq_strerror")]
    pub provider_text: String,
    /// How long the message was, where it was longer than the room for it and the provider says so.
    #[doc(alias = "olen")]
    pub message_len: Option<usize>,
}

impl Failure {
    /// What it means here.
    pub fn cause(&self) -> String {
        let known = match self.errno {
            sys::FI_ETRUNC => "the message is longer than the room that was posted for it",
            sys::FI_ECANCELED => {
                "the endpoint or its connection was closed, or the peer refused the operation"
            }
            sys::FI_ECONNREFUSED | sys::FI_EHOSTUNREACH | sys::FI_ENETUNREACH => {
                "nobody is at the peer's address"
            }
            sys::FI_ECONNRESET
            | sys::FI_ECONNABORTED
            | sys::FI_ENOTCONN
            | sys::FI_ESHUTDOWN
            | sys::FI_EIO => "the connection to the peer is lost",
            sys::FI_EACCES | sys::FI_EPERM | sys::FI_EKEYREJECTED => {
                "the peer's key does not allow it, or is dead"
            }
            sys::FI_ETIMEDOUT => "the peer does not answer",
            errno => match meaning(errno) {
                Some(known) => known,
                None => return self.provider_text.clone(),
            },
        };
        known.to_owned()
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        match self.errno {
            sys::FI_ETRUNC => "post more room, or send less",
            sys::FI_EACCES | sys::FI_EPERM | sys::FI_EKEYREJECTED => {
                "ask the peer for its region anew; on shm, both processes must be of one user"
            }
            _ => "see that the peer runs and uses the same provider; FI_LOG_LEVEL=warn lets the provider tell more",
        }
        .to_owned()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Some(operation) => write!(f, "{operation} failed: ")?,
            None => f.write_str("something without an operation failed: ")?,
        }
        write!(f, "{} ({})", self.text, self.errno)?;
        if self.provider_text != self.text && !self.provider_text.is_empty() {
            write!(f, ", the provider says: {} ({})", self.provider_text, self.provider_errno)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
