//! Requests to an endpoint.

use farreach_memory::{Buffers, Slice};

use super::{RemoteParts, RemoteRegion};
use crate::Peer;

/// A request to transmit: an operation, its peer, and the buffers that it owns.
///
/// ```
/// use farreach_fabric::{Peer, RemoteRegion, TransmitRequest};
/// use farreach_memory::Slice;
///
/// /// Writes a page to the peer's memory, with a notification for the peer and a completion on delivery.
/// fn write_page(page: Slice, peer: &Peer, region: RemoteRegion, number: u64) -> Option<TransmitRequest> {
///     let place = region.get(number * page.len() as u64, page.len() as u64)?;
///     Some(TransmitRequest::write(page, peer, place).immediate(number).delivered().tag(number))
/// }
/// ```
#[derive(Debug)]
pub struct TransmitRequest {
    pub(crate) operation: Transmit,
    pub(crate) peer: Peer,
    pub(crate) buffers: Buffers,
    pub(crate) immediate: Option<u64>,
    pub(crate) is_delivery: bool,
    pub(crate) tag: u64,
}

/// The operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transmit {
    Send,
    Write(RemoteRegion),
    WriteParts(RemoteParts),
    Read(RemoteRegion),
    ReadParts(RemoteParts),
    FetchAdd { remote: RemoteRegion, add: u64 },
    CompareSwap { remote: RemoteRegion, expected: u64, desired: u64 },
}

impl TransmitRequest {
    #[inline(always)]
    fn new(operation: Transmit, peer: &Peer, buffers: Buffers) -> Self {
        Self { operation, peer: peer.clone(), buffers, immediate: None, is_delivery: false, tag: 0 }
    }

    /// Creates a request to send a message: `fi_sendmsg(3)`.
    #[doc(alias = "fi_send")]
    #[doc(alias = "fi_sendmsg")]
    #[inline]
    pub fn send(buffers: impl Into<Buffers>, peer: &Peer) -> Self {
        Self::new(Transmit::Send, peer, buffers.into())
    }

    /// Creates a request to write bytes to the beginning of `remote`: `fi_writemsg(3)`.
    #[doc(alias = "fi_write")]
    #[doc(alias = "fi_writemsg")]
    #[inline]
    pub fn write(buffers: impl Into<Buffers>, peer: &Peer, remote: RemoteRegion) -> Self {
        Self::new(Transmit::Write(remote), peer, buffers.into())
    }

    /// Creates a request to write bytes to several parts of a region, filled one after the other:
    /// `fi_writemsg(3)`. The offer's [`remote_ranges_max`](crate::Info::remote_ranges_max) limits
    /// the number of parts.
    #[doc(alias = "rma_iov_count")]
    #[inline]
    pub fn write_scattered(buffers: impl Into<Buffers>, peer: &Peer, parts: RemoteParts) -> Self {
        Self::new(Transmit::WriteParts(parts), peer, buffers.into())
    }

    /// Creates a request to read bytes from the beginning of `remote` into a slice:
    /// `fi_readmsg(3)`.
    #[doc(alias = "fi_read")]
    #[doc(alias = "fi_readmsg")]
    #[inline]
    pub fn read(into: Slice, peer: &Peer, remote: RemoteRegion) -> Self {
        Self::new(Transmit::Read(remote), peer, into.into())
    }

    /// Creates a request to read bytes from the beginning of `remote` into several slices, one
    /// after the other: `fi_readmsg(3)`.
    pub fn read_scattered(into: Vec<Slice>, peer: &Peer, remote: RemoteRegion) -> Self {
        Self::new(Transmit::Read(remote), peer, Buffers::of_slices(into))
    }

    /// Creates a request to read bytes from the beginning of `remote` into writable buffers of any
    /// kind, one after the other: `fi_readmsg(3)`. A list with a shared buffer is refused when it
    /// is posted.
    #[inline]
    pub fn read_into(into: impl Into<Buffers>, peer: &Peer, remote: RemoteRegion) -> Self {
        Self::new(Transmit::Read(remote), peer, into.into())
    }

    /// As [`read_into`](Self::read_into), from several parts of a region, one after the other.
    #[inline]
    pub fn read_gathered(into: impl Into<Buffers>, peer: &Peer, parts: RemoteParts) -> Self {
        Self::new(Transmit::ReadParts(parts), peer, into.into())
    }

    /// Creates a request to add to the eight bytes of `remote`: `fi_fetch_atomic(3)`. `into`, eight
    /// bytes, receives the previous value.
    #[doc(alias = "fi_fetch_atomic")]
    pub fn fetch_add(into: Slice, peer: &Peer, remote: RemoteRegion, add: u64) -> Self {
        Self::new(Transmit::FetchAdd { remote, add }, peer, into.into())
    }

    /// Creates a request to replace the eight bytes of `remote` by `desired` if they are
    /// `expected`: `fi_compare_atomic(3)`. `into`, eight bytes, receives the previous value.
    #[doc(alias = "fi_compare_atomic")]
    pub fn compare_swap(into: Slice, peer: &Peer, remote: RemoteRegion, expected: u64, desired: u64) -> Self {
        Self::new(Transmit::CompareSwap { remote, expected, desired }, peer, into.into())
    }

    /// Adds immediate data to a message or a write; a write then notifies the peer. The offer's
    /// [`immediate_size`](crate::Info::immediate_size) is the number of its bytes, four with some
    /// providers.
    #[doc(alias = "FI_REMOTE_CQ_DATA")]
    #[doc(alias = "fi_writedata")]
    #[doc(alias = "fi_senddata")]
    #[inline]
    pub fn immediate(mut self, immediate: u64) -> Self {
        self.immediate = Some(immediate);
        self
    }

    /// Makes it complete when the bytes have landed at the peer, instead of when they have left.
    #[doc(alias = "FI_DELIVERY_COMPLETE")]
    #[inline]
    pub fn delivered(mut self) -> Self {
        self.is_delivery = true;
        self
    }

    /// Sets a number of the caller, which the completion returns.
    #[inline]
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Returns its buffers.
    #[inline]
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Returns its buffers, and drops the rest.
    #[inline]
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }
}

/// A request to receive a message: `fi_recvmsg(3)`.
///
/// ```
/// use farreach_fabric::ReceiveRequest;
/// use farreach_memory::Memory;
///
/// let request = ReceiveRequest::new(Memory::allocate(4096)?).tag(7);
/// assert_eq!(request.buffers().len(), 4096);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug)]
pub struct ReceiveRequest {
    pub(crate) buffers: Buffers,
    pub(crate) tag: u64,
}

impl ReceiveRequest {
    /// Creates a request with one slice, for one message.
    #[doc(alias = "fi_recv")]
    #[doc(alias = "fi_recvmsg")]
    pub fn new(into: Slice) -> Self {
        Self { buffers: into.into(), tag: 0 }
    }

    /// Creates a request with several slices, filled one after the other, for one message.
    pub fn scattered(into: Vec<Slice>) -> Self {
        Self { buffers: Buffers::of_slices(into), tag: 0 }
    }

    /// Sets a number of the caller, which the completion returns.
    #[inline]
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// Returns its buffers.
    #[inline]
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// Returns its buffers, and drops the rest.
    #[inline]
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }
}
