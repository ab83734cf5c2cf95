//! Send work requests: operations, their buffers and flags.

use std::ops::Range;

use bitflags::bitflags;
use farreach_memory::Slice;
use farreach_verbs_sys as sys;

use super::{Buffers, RemoteRange};
use crate::ah::AddressHandle;
use crate::imm::ImmediateData;
use crate::mr::{AccessFlags, RemoteKey};
use crate::mw::MemoryWindow;
use crate::region::Bindable;

/// A work request for a send queue: an operation, its buffers, and its flags.
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

/// The operation of a work request.
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
    /// Sends a message into a buffer that the receiver has posted.
    #[doc(alias = "IBV_WR_SEND")]
    Send,
    /// Sends a message with immediate data.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    SendImmediate(ImmediateData),
    /// Sends a message that invalidates a key of the receiver.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    SendInvalidate(RemoteKey),
    /// Writes to the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    Write(RemoteRange),
    /// Writes to the peer's memory, with immediate data and a completion there.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    WriteImmediate(RemoteRange, ImmediateData),
    /// Reads from the peer's memory.
    #[doc(alias = "IBV_WR_RDMA_READ")]
    Read(RemoteRange),
    /// Replaces eight bytes if they have the expected value. The buffer gets the old value.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    CompareSwap {
        /// The eight bytes.
        remote: RemoteRange,
        /// The expected value.
        expected: u64,
        /// The new value.
        desired: u64,
    },
    /// Adds to eight bytes. The buffer gets the old value.
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    FetchAdd {
        /// The eight bytes.
        remote: RemoteRange,
        /// The number to add.
        add: u64,
    },
    /// Writes eight bytes atomically.
    #[doc(alias = "IBV_WR_ATOMIC_WRITE")]
    AtomicWrite {
        /// The eight bytes.
        remote: RemoteRange,
        /// The new value.
        value: u64,
    },
    /// Makes earlier writes visible or persistent at the peer.
    #[doc(alias = "IBV_WR_FLUSH")]
    Flush(RemoteRange, Flush),
    /// Binds a window to a part of a region.
    #[doc(alias = "IBV_WR_BIND_MW")]
    BindWindow,
    /// Invalidates a local key: that of a window of type 2, or of a region.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    LocalInvalidate(RemoteKey),
}

/// The extent of a flush.
///
/// ```
/// use farreach_verbs::mr::RemoteKey;
/// use farreach_verbs::wr::{Flush, FlushLevel, FlushPlacement, RemoteRange, SendRequest};
///
/// // Writes to this range survive a power failure once the work request has completed.
/// let remote = RemoteRange::new(0x7f00_0000_0000, 4096, RemoteKey(0x1234));
/// let flush = Flush { placement: FlushPlacement::Persistent, level: FlushLevel::Range };
/// let request = SendRequest::flush(remote, flush);
/// assert!(request.buffers().is_empty());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flush {
    /// The destination.
    pub placement: FlushPlacement,
    /// The bytes to flush.
    pub level: FlushLevel,
}

/// The destination of flushed bytes.
///
/// ```
/// use farreach_verbs::wr::FlushPlacement;
///
/// // Global bytes are visible to other processors; a power failure may lose them.
/// assert_ne!(FlushPlacement::Global, FlushPlacement::Persistent);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushPlacement {
    /// Visible to all processors and devices.
    Global,
    /// In memory that survives a power failure.
    Persistent,
}

/// The bytes to flush.
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
    /// The whole region that contains the range.
    Region,
}

bitflags! {
    /// Flags of a work request.
    ///
    /// ```
    /// use farreach_verbs::wr::SendFlags;
    ///
    /// assert!(SendFlags::default().contains(SendFlags::SIGNALED));
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SendFlags: u32 {
        /// The work request has a completion of its own.
        const SIGNALED = sys::IBV_SEND_SIGNALED;
        /// The work request waits for earlier reads and atomics. Only on reliable connections.
        const FENCE = sys::IBV_SEND_FENCE;
        /// The completion at the receiver is a solicited event. Only for messages and writes with
        /// immediate data.
        const SOLICITED = sys::IBV_SEND_SOLICITED;
        /// The bytes are copied into the work request when it is posted. Only for messages and
        /// writes.
        const INLINE = sys::IBV_SEND_INLINE;
    }
}

impl Operation {
    /// Returns the flags that the operation supports. The effect of others is undefined: for a READ
    /// posted inline, Soft-RoCE's library would use the bytes of the buffer as the scatter-gather
    /// list.
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

/// Attributes that only some work requests have.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    pub(crate) datagram: Option<Datagram>,
    /// The number of the shared receive queue of an XRC receiver.
    pub(crate) shared_queue: Option<u32>,
    pub(crate) binding: Option<Binding>,
}

/// The destination of a datagram.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) ah: AddressHandle,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

/// The window, region and range of a binding.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) window: MemoryWindow,
    pub(crate) region: Bindable,
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) access: AccessFlags,
}

impl SendRequest {
    #[inline]
    fn new(operation: Operation, buffers: Buffers) -> Self {
        Self { operation, buffers, flags: SendFlags::default(), tag: 0, extra: Extra::default() }
    }

    /// Creates a work request that sends a message.
    #[inline]
    pub fn send(buffers: impl Into<Buffers>) -> Self {
        Self::new(Operation::Send, buffers.into())
    }

    /// Creates a work request that sends a message and invalidates a key of the receiver.
    #[inline]
    pub fn send_invalidate(buffers: impl Into<Buffers>, key: RemoteKey) -> Self {
        Self::new(Operation::SendInvalidate(key), buffers.into())
    }

    /// Creates a work request that writes to the beginning of `remote`.
    #[inline]
    pub fn write(buffers: impl Into<Buffers>, remote: RemoteRange) -> Self {
        Self::new(Operation::Write(remote), buffers.into())
    }

    /// Creates a work request that reads from the beginning of `remote` into a slice.
    #[inline]
    pub fn read(into: Slice, remote: RemoteRange) -> Self {
        Self::new(Operation::Read(remote), into.into())
    }

    /// Creates a work request that reads from the beginning of `remote` into several slices, in
    /// order.
    #[inline]
    pub fn read_scattered(into: Vec<Slice>, remote: RemoteRange) -> Self {
        Self::new(Operation::Read(remote), Buffers::of_slices(into))
    }

    /// Creates a work request that reads from the beginning of `remote` into any buffers that a
    /// device may write to: slices, or parts that are [lent](farreach_memory::Lent) to several work
    /// requests. Shared buffers are refused when it is posted.
    ///
    /// ```
    /// use farreach_memory::{Buffers, Memory};
    /// use farreach_verbs::mr::RemoteKey;
    /// use farreach_verbs::wr::{RemoteRange, SendRequest};
    ///
    /// // Two pages that are apart locally, and adjacent at the peer.
    /// let remote = RemoteRange::new(0x7f00_0000_0000, 8192, RemoteKey(0x1234));
    /// let pages = Memory::allocate(4 * 4096)?.lend();
    /// let parts = [pages.get(..4096), pages.get(8192..12288)];
    /// let parts = parts.map(|page| page.expect("the range is inside").into());
    /// let request = SendRequest::read_into(Buffers::List(parts.into()), remote);
    /// assert_eq!(request.buffers().len(), 8192);
    /// # Ok::<(), farreach_memory::AllocateError>(())
    /// ```
    #[inline]
    pub fn read_into(into: Buffers, remote: RemoteRange) -> Self {
        Self::new(Operation::Read(remote), into)
    }

    /// Creates a work request that replaces the eight bytes of `remote` by `desired` if they are
    /// `expected`. `into`, eight bytes, gets the old value.
    #[inline]
    pub fn compare_swap(into: Slice, remote: RemoteRange, expected: u64, desired: u64) -> Self {
        Self::new(Operation::CompareSwap { remote, expected, desired }, into.into())
    }

    /// Creates a work request that adds to the eight bytes of `remote`. `into`, eight bytes, gets
    /// the old value.
    #[inline]
    pub fn fetch_add(into: Slice, remote: RemoteRange, add: u64) -> Self {
        Self::new(Operation::FetchAdd { remote, add }, into.into())
    }

    /// Creates a work request that writes the eight bytes of `remote` atomically. The queue pair
    /// must have been created for it.
    #[inline]
    pub fn atomic_write(remote: RemoteRange, value: u64) -> Self {
        Self::new(Operation::AtomicWrite { remote, value }, Buffers::None)
    }

    /// Creates a work request that makes earlier writes visible or persistent at the peer. The
    /// queue pair must have been created for it.
    #[inline]
    pub fn flush(remote: RemoteRange, flush: Flush) -> Self {
        Self::new(Operation::Flush(remote, flush), Buffers::None)
    }

    /// Creates a work request that invalidates a local key.
    #[inline]
    pub fn local_invalidate(key: RemoteKey) -> Self {
        Self::new(Operation::LocalInvalidate(key), Buffers::None)
    }

    /// Creates a work request that binds a window to a part of a region. Peers then have `access`
    /// to it by the window's own key. After the completion, [`MemoryWindow::remote`] returns the
    /// range for them.
    ///
    /// The window holds the region until it is bound elsewhere or revoked. The region must be
    /// registered with [`AccessFlags::MW_BIND`]; it needs no other access itself.
    pub fn bind(
        window: &MemoryWindow,
        region: impl Into<Bindable>,
        range: Range<usize>,
        access: AccessFlags,
    ) -> Self {
        let (window, region) = (window.clone(), region.into());
        let (offset, len) = (range.start, range.end.saturating_sub(range.start));
        let mut request = Self::new(Operation::BindWindow, Buffers::None);
        request.extra.binding = Some(Binding { window, region, offset, len, access });
        request
    }

    /// Adds immediate data to a message or a write; the write then completes at the peer too. Other
    /// operations are not changed.
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

    /// Sets a number that the completion returns.
    #[inline]
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Removes the completion: the buffers return with the next signalled work request of the
    /// queue. A queue whose work requests are all unsignalled fills up.
    #[inline]
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// Makes it wait for earlier reads and atomics. Only reliable connections support that; others
    /// refuse the work request.
    #[inline]
    pub fn fenced(mut self) -> Self {
        self.flags.insert(SendFlags::FENCE);
        self
    }

    /// Makes the completion at the receiver a solicited event. A work request without a completion
    /// at the receiver is refused with it.
    #[inline]
    pub fn solicited(mut self) -> Self {
        self.flags.insert(SendFlags::SOLICITED);
        self
    }

    /// Copies the bytes into the work request when it is posted. This is the fastest way for few
    /// bytes. Only messages and writes support it; others are refused with it.
    #[inline]
    pub fn inline(mut self) -> Self {
        self.flags.insert(SendFlags::INLINE);
        self
    }

    /// Sets the destination of a datagram: a queue pair, and the Q_Key that it accepts.
    pub fn to(mut self, ah: &AddressHandle, qp_num: u32, qkey: u32) -> Self {
        self.extra.datagram = Some(Datagram { ah: ah.clone(), qp_num, qkey });
        self
    }

    /// Sets the shared receive queue of an XRC receiver by [its
    /// number](crate::srq::SharedReceiveQueue::number).
    pub fn to_shared_queue(mut self, number: u32) -> Self {
        self.extra.shared_queue = Some(number);
        self
    }

    /// Returns the operation.
    #[inline]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the buffers.
    #[inline]
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Takes the buffers back.
    #[inline]
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }
}
