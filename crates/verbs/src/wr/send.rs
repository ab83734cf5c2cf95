//! What a queue pair can be asked to do.

use std::ops::Range;
use std::sync::Arc;

use bitflags::bitflags;
use farreach_memory::Slice;
use farreach_verbs_sys as sys;

use super::{Buffers, RemoteRange};
use crate::ah::AddressHandle;
use crate::imm::ImmediateData;
use crate::mr::{AccessFlags, RemoteKey};
use crate::mw::MemoryWindow;
use crate::region::ExposedRegion;

/// A request to a send queue: an operation, the buffers that it takes along, and how it is to be done.
///
/// ```
/// use farreach_memory::Memory;
/// use farreach_verbs::wr::SendRequest;
///
/// let mut slice = Memory::allocate(64)?;
/// slice[..5].copy_from_slice(b"hello");
/// let request = SendRequest::send(slice).immediate(7).solicited().tag(1);
/// assert_eq!(request.buffers().len(), 64);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[doc(alias = "ibv_send_wr")]
#[derive(Debug)]
pub struct SendRequest {
    pub(crate) operation: Operation,
    pub(crate) buffers: Buffers,
    pub(crate) flags: SendFlags,
    pub(crate) tag: u64,
    pub(crate) extra: Extra,
}

/// What is to be done.
///
/// ```
/// use farreach_memory::Memory;
/// use farreach_verbs::wr::{Operation, SendRequest};
///
/// let request = SendRequest::send(Memory::allocate(64)?);
/// assert_eq!(request.operation(), Operation::Send);
/// assert_eq!(request.immediate(7).operation(), Operation::SendImmediate(7.into()));
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A message, into a buffer of the receiver's choice.
    #[doc(alias = "IBV_WR_SEND")]
    Send,
    /// A message with immediate data.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    SendImmediate(ImmediateData),
    /// A message whose arrival ends one of the receiver's keys.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    SendInvalidate(RemoteKey),
    /// Bytes into the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    Write(RemoteRange),
    /// Bytes into the peer's memory, and a completion there.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    WriteImmediate(RemoteRange, ImmediateData),
    /// Bytes out of the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    Read(RemoteRange),
    /// Replaces eight bytes if they are as expected; the buffer gets what was there.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    CompareSwap {
        /// The eight bytes.
        remote: RemoteRange,
        /// What they must be.
        expected: u64,
        /// What they become.
        desired: u64,
    },
    /// Adds to eight bytes; the buffer gets what was there.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    FetchAdd {
        /// The eight bytes.
        remote: RemoteRange,
        /// What is added.
        add: u64,
    },
    /// Writes eight bytes at once.
    #[doc(alias = "IBV_WR_ATOMIC_WRITE")]
    AtomicWrite {
        /// The eight bytes.
        remote: RemoteRange,
        /// What they become.
        value: u64,
    },
    /// Makes earlier writes visible or lasting at the peer.
    #[doc(alias = "IBV_WR_FLUSH")]
    Flush(RemoteRange, Flush),
    /// Gives a window a part of a region.
    #[doc(alias = "IBV_WR_BIND_MW")]
    BindWindow,
    /// Ends a key of this side's: a type 2 window's, or a region's.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    LocalInvalidate(RemoteKey),
}

/// How far a flush goes.
///
/// ```
/// use farreach_verbs::mr::RemoteKey;
/// use farreach_verbs::wr::{Flush, FlushLevel, FlushPlacement, RemoteRange, SendRequest};
///
/// // What was written to this range outlives a power cut when the request has completed.
/// let remote = RemoteRange::new(0x7f00_0000_0000, 4096, RemoteKey(0x1234));
/// let flush = Flush { placement: FlushPlacement::Persistent, level: FlushLevel::Range };
/// let request = SendRequest::flush(remote, flush);
/// assert!(request.buffers().is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flush {
    /// To where.
    pub placement: FlushPlacement,
    /// Of what.
    pub level: FlushLevel,
}

/// Where flushed bytes have arrived.
///
/// ```
/// use farreach_verbs::wr::FlushPlacement;
///
/// // Other processors see them; a power cut may take them.
/// assert_ne!(FlushPlacement::Global, FlushPlacement::Persistent);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushPlacement {
    /// Visible to all.
    Global,
    /// In memory that outlives a power cut.
    Persistent,
}

/// Which bytes are flushed.
///
/// ```
/// use farreach_verbs::wr::{Flush, FlushLevel, FlushPlacement};
///
/// let whole_region = Flush { placement: FlushPlacement::Global, level: FlushLevel::Region };
/// assert_ne!(whole_region.level, FlushLevel::Range);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushLevel {
    /// The range.
    Range,
    /// The whole region that the range is in.
    Region,
}

bitflags! {
    /// How a request is done.
    ///
    /// ```
    /// use farreach_verbs::wr::SendFlags;
    ///
    /// assert!(SendFlags::default().contains(SendFlags::SIGNALED));
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// It has a completion of its own.
        const SIGNALED = sys::IBV_SEND_SIGNALED;
        /// It waits for the reads and atomics before it: on reliable connections.
        const FENCE = sys::IBV_SEND_FENCE;
        /// The receiver is woken where it waits for solicited events only: by messages, and by writes with immediate data.
        const SOLICITED = sys::IBV_SEND_SOLICITED;
        /// The bytes are copied into the request when it is posted: those of messages and writes.
        const INLINE = sys::IBV_SEND_INLINE;
    }
}

impl Operation {
    /// The flags that the operation takes; no device says what another one would do to it. A READ that is posted inline makes Soft-RoCE's
    /// library take the bytes of the buffer for the list of its buffers.
    #[inline(always)]
    pub(crate) const fn flags(self) -> SendFlags {
        let any = SendFlags::SIGNALED.union(SendFlags::FENCE);
        match self {
            Self::Send | Self::SendImmediate(_) | Self::SendInvalidate(_) | Self::WriteImmediate(..) => {
                any.union(SendFlags::INLINE).union(SendFlags::SOLICITED)
            }
            Self::Write(_) => any.union(SendFlags::INLINE),
            Self::Read(_)
            | Self::CompareSwap { .. }
            | Self::FetchAdd { .. }
            | Self::AtomicWrite { .. }
            | Self::Flush(..)
            | Self::BindWindow
            | Self::LocalInvalidate(_) => any,
        }
    }
}

impl Default for SendFlags {
    fn default() -> Self {
        Self::SIGNALED
    }
}

/// What some requests need besides.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    pub(crate) datagram: Option<Datagram>,
    /// The shared receive queue, of an XRC receiver, that takes it.
    pub(crate) shared_queue: Option<u32>,
    pub(crate) binding: Option<Binding>,
}

/// Where a datagram goes.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) ah: AddressHandle,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

/// What a window is bound to.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) window: MemoryWindow,
    pub(crate) region: Arc<ExposedRegion>,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) access: AccessFlags,
}

impl SendRequest {
    #[inline]
    fn new(operation: Operation, buffers: Buffers) -> Self {
        Self { operation, buffers, flags: SendFlags::default(), tag: 0, extra: Extra::default() }
    }

    /// A message.
    #[inline]
    pub fn send(buffers: impl Into<Buffers>) -> Self {
        Self::new(Operation::Send, buffers.into())
    }

    /// A message whose arrival ends one of the receiver's keys.
    #[inline]
    pub fn send_invalidate(buffers: impl Into<Buffers>, key: RemoteKey) -> Self {
        Self::new(Operation::SendInvalidate(key), buffers.into())
    }

    /// Bytes to the beginning of `remote`.
    #[inline]
    pub fn write(buffers: impl Into<Buffers>, remote: RemoteRange) -> Self {
        Self::new(Operation::Write(remote), buffers.into())
    }

    /// Bytes from the beginning of `remote`, into a slice.
    #[inline]
    pub fn read(into: Slice, remote: RemoteRange) -> Self {
        Self::new(Operation::Read(remote), into.into())
    }

    /// Bytes from the beginning of `remote`, into several slices, one after the other.
    #[inline]
    pub fn read_scattered(into: Vec<Slice>, remote: RemoteRange) -> Self {
        Self::new(Operation::Read(remote), Buffers::of_slices(into))
    }

    /// Bytes from the beginning of `remote`, into whatever buffers a device may write to: slices, or parts that are
    /// [lent](farreach_memory::Lent) to several requests. Shared ones are refused when it is posted.
    ///
    /// ```
    /// use farreach_memory::{Buffers, Memory};
    /// use farreach_verbs::mr::RemoteKey;
    /// use farreach_verbs::wr::{RemoteRange, SendRequest};
    ///
    /// // Two pages that lie apart here, and beside each other at the peer.
    /// let remote = RemoteRange::new(0x7f00_0000_0000, 8192, RemoteKey(0x1234));
    /// let pages = Memory::allocate(4 * 4096)?.lend();
    /// let parts = [pages.get(..4096), pages.get(8192..12288)].map(|page| page.expect("it is inside").into());
    /// let request = SendRequest::read_into(Buffers::List(parts.into()), remote);
    /// assert_eq!(request.buffers().len(), 8192);
    /// # Ok::<(), farreach_memory::AllocateError>(())
    /// ```
    #[inline]
    pub fn read_into(into: Buffers, remote: RemoteRange) -> Self {
        Self::new(Operation::Read(remote), into)
    }

    /// Replaces the eight bytes of `remote` by `desired` if they are `expected`. `into`, eight bytes, gets what was there.
    #[inline]
    pub fn compare_swap(into: Slice, remote: RemoteRange, expected: u64, desired: u64) -> Self {
        Self::new(Operation::CompareSwap { remote, expected, desired }, into.into())
    }

    /// Adds to the eight bytes of `remote`. `into`, eight bytes, gets what was there.
    #[inline]
    pub fn fetch_add(into: Slice, remote: RemoteRange, add: u64) -> Self {
        Self::new(Operation::FetchAdd { remote, add }, into.into())
    }

    /// Writes the eight bytes of `remote` at once. The queue pair must have been made for it.
    #[inline]
    pub fn atomic_write(remote: RemoteRange, value: u64) -> Self {
        Self::new(Operation::AtomicWrite { remote, value }, Buffers::None)
    }

    /// Makes earlier writes visible or lasting at the peer. The queue pair must have been made for it.
    #[inline]
    pub fn flush(remote: RemoteRange, flush: Flush) -> Self {
        Self::new(Operation::Flush(remote, flush), Buffers::None)
    }

    /// Ends a key of this side's.
    #[inline]
    pub fn local_invalidate(key: RemoteKey) -> Self {
        Self::new(Operation::LocalInvalidate(key), Buffers::None)
    }

    /// Binds a window to a part of a region, of which peers then have `access` by the window's own key. When it is done,
    /// [`MemoryWindow::remote`] says what to tell them.
    ///
    /// The window keeps the region until it is bound elsewhere or revoked. The region must be made with
    /// [`AccessFlags::MW_BIND`]; it needs no other right itself.
    pub fn bind(
        window: &MemoryWindow,
        region: &Arc<ExposedRegion>,
        range: Range<usize>,
        access: AccessFlags,
    ) -> Self {
        let (window, region) = (window.clone(), Arc::clone(region));
        let (offset, len) = (range.start, range.end.saturating_sub(range.start));
        let mut request = Self::new(Operation::BindWindow, Buffers::None);
        request.extra.binding = Some(Binding { window, region, offset, len, access });
        request
    }

    /// With immediate data: a message's, or a write's, which then completes at the peer too. Other operations have none, and stay
    /// as they are.
    #[inline]
    pub fn immediate(mut self, immediate: impl Into<ImmediateData>) -> Self {
        let immediate = immediate.into();
        self.operation = match self.operation {
            Operation::Send | Operation::SendImmediate(_) => Operation::SendImmediate(immediate),
            Operation::Write(remote) | Operation::WriteImmediate(remote, _) => {
                Operation::WriteImmediate(remote, immediate)
            }
            other => other,
        };
        self
    }

    /// A number of the caller's, which the completion has too.
    #[inline]
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Without a completion of its own: its buffers come back with the next signalled request of the queue. A queue whose
    /// requests are all unsignalled fills up.
    #[inline]
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// After the reads and atomics before it. Only reliable connections have it; on others the request is refused.
    #[inline]
    pub fn fenced(mut self) -> Self {
        self.flags.insert(SendFlags::FENCE);
        self
    }

    /// Wakes a receiver that waits for solicited events only. A request that completes nothing at the receiver is refused with it.
    #[inline]
    pub fn solicited(mut self) -> Self {
        self.flags.insert(SendFlags::SOLICITED);
        self
    }

    /// Copies the bytes into the request when it is posted: for few bytes, and the fastest way there. Messages and writes take it; anything
    /// else is refused with it.
    #[inline]
    pub fn inline(mut self) -> Self {
        self.flags.insert(SendFlags::INLINE);
        self
    }

    /// Where a datagram goes: to a queue pair there, which takes it by this key.
    pub fn to(mut self, ah: &AddressHandle, qp_num: u32, qkey: u32) -> Self {
        self.extra.datagram = Some(Datagram { ah: ah.clone(), qp_num, qkey });
        self
    }

    /// Which shared receive queue of an XRC receiver takes it: [its number](crate::srq::SharedReceiveQueue::number).
    pub fn to_shared_queue(mut self, number: u32) -> Self {
        self.extra.shared_queue = Some(number);
        self
    }

    /// What is to be done.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// The buffers that it takes along.
    #[inline]
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The buffers, back.
    #[inline]
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }
}
