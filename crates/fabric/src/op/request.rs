//! What an endpoint can be asked to do.

use farreach_memory::{Buffers, Slice};

use super::{RemoteParts, RemoteRegion};
use crate::Peer;

/// Something that leaves an endpoint: an operation, the peer that it is for, and the buffers that it takes along.
///
/// ```
/// use farreach_fabric::{Peer, RemoteRegion, TransmitRequest};
/// use farreach_memory::Slice;
///
/// /// A page into the peer's memory, telling the peer when it is there, and us.
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

/// What is to be done.
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
    fn new(operation: Transmit, peer: &Peer, buffers: Buffers) -> Self {
        Self { operation, peer: peer.clone(), buffers, immediate: None, is_delivery: false, tag: 0 }
    }

    /// A message: `fi_sendmsg(3)`.
    #[doc(alias = "fi_send")]
    #[doc(alias = "fi_sendmsg")]
    pub fn send(buffers: impl Into<Buffers>, peer: &Peer) -> Self {
        Self::new(Transmit::Send, peer, buffers.into())
    }

    /// Bytes to the beginning of `remote`: `fi_writemsg(3)`.
    #[doc(alias = "fi_write")]
    #[doc(alias = "fi_writemsg")]
    pub fn write(buffers: impl Into<Buffers>, peer: &Peer, remote: RemoteRegion) -> Self {
        Self::new(Transmit::Write(remote), peer, buffers.into())
    }

    /// Bytes to several parts of a region, which are filled one after the other: `fi_writemsg(3)`. At most as many parts as the offer's
    /// [`remote_ranges_max`](crate::Info::remote_ranges_max).
    #[doc(alias = "rma_iov_count")]
    pub fn write_scattered(buffers: impl Into<Buffers>, peer: &Peer, parts: RemoteParts) -> Self {
        Self::new(Transmit::WriteParts(parts), peer, buffers.into())
    }

    /// Bytes from the beginning of `remote`, into a slice: `fi_readmsg(3)`.
    #[doc(alias = "fi_read")]
    #[doc(alias = "fi_readmsg")]
    pub fn read(into: Slice, peer: &Peer, remote: RemoteRegion) -> Self {
        Self::new(Transmit::Read(remote), peer, into.into())
    }

    /// Bytes from the beginning of `remote`, into several slices, one after the other: `fi_readmsg(3)`.
    pub fn read_scattered(into: Vec<Slice>, peer: &Peer, remote: RemoteRegion) -> Self {
        Self::new(Transmit::Read(remote), peer, Buffers::of_slices(into))
    }

    /// Bytes from the beginning of `remote`, into buffers of any kind that may be written to, one after the other: `fi_readmsg(3)`. A list with
    /// one that others read is refused when it is posted.
    pub fn read_into(into: impl Into<Buffers>, peer: &Peer, remote: RemoteRegion) -> Self {
        Self::new(Transmit::Read(remote), peer, into.into())
    }

    /// As [`read_into`](Self::read_into), from several parts of a region, one after the other.
    pub fn read_gathered(into: impl Into<Buffers>, peer: &Peer, parts: RemoteParts) -> Self {
        Self::new(Transmit::ReadParts(parts), peer, into.into())
    }

    /// Adds to the eight bytes of `remote`: `fi_fetch_atomic(3)`. `into`, eight bytes, gets what was there.
    #[doc(alias = "fi_fetch_atomic")]
    pub fn fetch_add(into: Slice, peer: &Peer, remote: RemoteRegion, add: u64) -> Self {
        Self::new(Transmit::FetchAdd { remote, add }, peer, into.into())
    }

    /// Replaces the eight bytes of `remote` by `desired` if they are `expected`: `fi_compare_atomic(3)`. `into`, eight bytes, gets what
    /// was there.
    #[doc(alias = "fi_compare_atomic")]
    pub fn compare_swap(into: Slice, peer: &Peer, remote: RemoteRegion, expected: u64, desired: u64) -> Self {
        Self::new(Transmit::CompareSwap { remote, expected, desired }, peer, into.into())
    }

    /// With immediate data: a message's, or a write's, which then tells the peer. It has as many bytes as the offer's
    /// [`immediate_size`](crate::Info::immediate_size), and four on some.
    #[doc(alias = "FI_REMOTE_CQ_DATA")]
    #[doc(alias = "fi_writedata")]
    #[doc(alias = "fi_senddata")]
    pub fn immediate(mut self, immediate: u64) -> Self {
        self.immediate = Some(immediate);
        self
    }

    /// Completes when the bytes have landed at the peer, and not as soon as they have left.
    #[doc(alias = "FI_DELIVERY_COMPLETE")]
    pub fn delivered(mut self) -> Self {
        self.is_delivery = true;
        self
    }

    /// A number of the caller's, which the completion has too.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// The buffers that it takes along.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The buffers, back.
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }
}

/// Room for a message: `fi_recvmsg(3)`.
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
    /// One slice, for one message.
    #[doc(alias = "fi_recv")]
    #[doc(alias = "fi_recvmsg")]
    pub fn new(into: Slice) -> Self {
        Self { buffers: into.into(), tag: 0 }
    }

    /// Several slices, filled one after the other, for one message.
    pub fn scattered(into: Vec<Slice>) -> Self {
        Self { buffers: Buffers::of_slices(into), tag: 0 }
    }

    /// A number of the caller's, which the completion has too.
    pub fn tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// The buffers that it takes along.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }

    /// The buffers, back.
    pub fn into_buffers(self) -> Buffers {
        self.buffers
    }
}
