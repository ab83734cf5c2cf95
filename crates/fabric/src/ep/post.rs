//! The safe API for posting: requests own their buffers, which come back with the completion.

use std::mem::ManuallyDrop;

use farreach_fabric_sys as sys;
use farreach_memory::{Buffers, DomainId};

use super::atomics::WORD;
use super::list::{BUFFERS_MAX, Filled, List, pointer};
use super::parts::{Ranges, rma_iov};
use super::slots::{Slot, Slots};
use super::{Endpoint, Open};
use crate::op::Transmit;
use crate::{OperationKind, Peer, PostError, ReceiveRequest, Refusal, RemoteRegion, TransmitRequest};

impl Endpoint {
    /// Posts an operation to transmit. The provider owns its buffers until a completion returns
    /// them.
    ///
    /// A refused request is returned completely; a full queue is an ordinary result.
    /// [`Driver`](crate::Driver) waits for room.
    ///
    /// It is inlined, so that a request that is created where it is posted never exists as a
    /// structure in memory, and only the checks of its kind remain.
    #[doc(alias = "fi_sendmsg")]
    #[doc(alias = "fi_writemsg")]
    #[doc(alias = "fi_readmsg")]
    #[expect(
        clippy::result_large_err,
        reason = "the whole request is returned, and boxing it would allocate"
    )]
    #[inline(always)]
    pub fn post(&self, request: TransmitRequest) -> Result<(), PostError<TransmitRequest>> {
        post_as(self, request)
    }

    /// As [`post`](Self::post), for an exclusive owner of the endpoint: it saves the lock that
    /// keeps two threads from taking the same place in the table.
    #[doc(alias = "fi_sendmsg")]
    #[doc(alias = "fi_writemsg")]
    #[doc(alias = "fi_readmsg")]
    #[expect(clippy::result_large_err, reason = "as for post")]
    #[inline(always)]
    pub fn post_mut(&mut self, request: TransmitRequest) -> Result<(), PostError<TransmitRequest>> {
        post_as(self, request)
    }

    /// Posts a receive: `fi_recvmsg(3)`. The provider owns its buffers until a completion returns
    /// them.
    #[doc(alias = "fi_recvmsg")]
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError<ReceiveRequest>> {
        let open = self.open();
        let ReceiveRequest { buffers, tag } = request;
        let buffers = ManuallyDrop::new(buffers);
        let mut list = List::<BUFFERS_MAX>::new();
        let reason = 'refused: {
            let filled = match list.fill(&buffers, open, open.limits.receive_buffers_max) {
                Ok(filled) => filled,
                Err(reason) => break 'refused reason,
            };
            let kind = OperationKind::Receive;
            // SAFETY: the buffers are in a `ManuallyDrop`, and leave it only if `refused` has taken
            // the operation out of the table and forgotten it.
            let put = unsafe { open.receive.put(false, tag, kind, false, &buffers, None) };
            let Some(slot) = put else { break 'refused open.receive.full() };
            let msg = list.msg(filled, sys::FI_ADDR_UNSPEC, slot.context(), 0);
            // SAFETY: the endpoint is live (`Handle`), and message and list are locals, which the
            // provider copies. `list.fill` has listed only memory of the buffers, which are slices
            // (a `ReceiveRequest` has nothing else), registered if that is required. They and the
            // context are in the table until the completion, or the end of the endpoint, takes them
            // out.
            let status = unsafe { sys::fi_recvmsg(open.ep.as_ptr(), &raw const msg, sys::FI_COMPLETION) };
            if status == 0 {
                return Ok(());
            }
            match open.refused(&open.receive, slot, status, kind) {
                Some(reason) => reason,
                None => return Ok(()),
            }
        };
        Err(PostError { reason, request: ReceiveRequest { buffers: ManuallyDrop::into_inner(buffers), tag } })
    }
}

/// A borrowed endpoint that posts.
///
/// # Safety
///
/// `ALONE` is true only for an exclusive borrow.
unsafe trait Poster {
    const ALONE: bool;

    fn endpoint(&self) -> &Endpoint;
}

// SAFETY: `ALONE` is false.
unsafe impl Poster for &Endpoint {
    const ALONE: bool = false;

    #[inline(always)]
    fn endpoint(&self) -> &Endpoint {
        self
    }
}

// SAFETY: it is an exclusive borrow.
unsafe impl Poster for &mut Endpoint {
    const ALONE: bool = true;

    #[inline(always)]
    fn endpoint(&self) -> &Endpoint {
        self
    }
}

#[expect(clippy::result_large_err, reason = "as for post")]
#[inline(always)]
fn post_as<P: Poster>(poster: P, request: TransmitRequest) -> Result<(), PostError<TransmitRequest>> {
    let TransmitRequest { operation, peer, buffers, immediate, is_delivery, tag } = request;
    let is_simple = matches!(operation, Transmit::Send | Transmit::Write(_) | Transmit::Read(_))
        && !matches!(buffers, Buffers::List(_));
    if !is_simple {
        // Rebuilt here, because a value that is passed by its address is in memory, and the fast
        // path must not pay for that.
        let request = TransmitRequest { operation, peer, buffers, immediate, is_delivery, tag };
        return post_any(poster.endpoint(), request);
    }
    post_parts::<1, P>(poster, operation, peer, buffers, immediate, is_delivery, tag)
}

#[expect(clippy::result_large_err, reason = "as for post")]
#[inline(never)]
fn post_any(endpoint: &Endpoint, request: TransmitRequest) -> Result<(), PostError<TransmitRequest>> {
    let TransmitRequest { operation, peer, buffers, immediate, is_delivery, tag } = request;
    post_parts::<BUFFERS_MAX, _>(endpoint, operation, peer, buffers, immediate, is_delivery, tag)
}

/// Posts an operation of at most `N` buffers.
///
/// No part of it is passed by its address, except to inlined functions, and nothing here can panic.
/// The compiler can therefore keep the parts in registers.
#[expect(clippy::result_large_err, reason = "as for post")]
#[inline(always)]
fn post_parts<const N: usize, P: Poster>(
    poster: P,
    operation: Transmit,
    peer: Peer,
    buffers: Buffers,
    immediate: Option<u64>,
    is_delivery: bool,
    tag: u64,
) -> Result<(), PostError<TransmitRequest>> {
    // Not dropped on any path: either they are in flight, or they are returned.
    let (peer, buffers) = (ManuallyDrop::new(peer), ManuallyDrop::new(buffers));
    let open = poster.endpoint().open();
    let mut list = List::<N>::new();
    let reason = 'refused: {
        let filled = match list.fill(&buffers, open, open.limits.transmit_buffers_max) {
            Ok(filled) => filled,
            Err(reason) => break 'refused reason,
        };
        if !open.is_plainly_right(operation, &peer, filled.len, immediate, is_delivery) {
            let asked = Asked {
                operation,
                is_of_av: peer.is_of(open.av()),
                len: filled.len,
                immediate,
                is_delivery,
                are_writable: buffers.are_writable(),
                is_word: is_word(&buffers),
            };
            if let Err(reason) = open.check(asked) {
                break 'refused reason;
            }
        }
        let kind = operation.kind();
        // SAFETY: peer and buffers are in `ManuallyDrop`s, and leave them only if `refused` has
        // taken the operation out of the table and forgotten it. An exclusive poster has borrowed
        // the endpoint exclusively (`Poster`) until this returns, and only an endpoint posts to its
        // table.
        let put = unsafe { open.transmit.put(P::ALONE, tag, kind, is_delivery, &buffers, Some(&peer)) };
        let Some(slot) = put else { break 'refused open.transmit.full() };
        let call = Call { open, list: &mut list, filled, peer: peer.number(), slot, immediate, is_delivery };
        // SAFETY: `list.fill` has listed only memory of the buffers, registered if that is
        // required. They, the peer and the context are in the table until the completion, or the
        // end of the endpoint, takes them out; nobody can access their bytes before.
        // `is_plainly_right` or `check` has verified that the endpoint supports the operation, that
        // the peer is in its vector, and that the region is large enough and may be used.
        let status = unsafe { call.start(operation) };
        if status == 0 {
            return Ok(());
        }
        match open.refused(&open.transmit, slot, status, kind) {
            Some(reason) => reason,
            None => return Ok(()),
        }
    };
    let (peer, buffers) = (ManuallyDrop::into_inner(peer), ManuallyDrop::into_inner(buffers));
    let request = TransmitRequest { operation, peer, buffers, immediate, is_delivery, tag };
    Err(PostError { reason, request })
}

impl Slots {
    /// Returns the refusal of a full table.
    #[cold]
    #[inline(never)]
    fn full(&self) -> Refusal {
        Refusal::QueueFull { in_flight: self.depth() }
    }
}

impl Open {
    /// Returns the domain in which local buffers must be registered, if the provider requires that.
    #[inline(always)]
    pub(super) fn local_domain(&self) -> Option<DomainId> {
        self.limits.needs_local_keys.then(|| self.domain().id())
    }

    /// Returns the meaning of the provider's refusal. The operation is taken out of the table and
    /// forgotten: the caller still has it.
    ///
    /// Returns `None` if a completion has taken it out nevertheless: that is its result then.
    #[cold]
    #[inline(never)]
    fn refused(&self, slots: &Slots, slot: Slot<'_>, status: isize, kind: OperationKind) -> Option<Refusal> {
        std::mem::forget(slots.take_refused(slot)?);
        Some(match status as i32 {
            status if status == -sys::FI_EAGAIN => Refusal::QueueFull { in_flight: slots.in_flight() },
            status => Refusal::Engine(self.domain().library().error(function(kind), status)),
        })
    }

    /// Returns `true` if it is one of the most frequent requests, and [`check`](Self::check) would
    /// accept it.
    #[inline(always)]
    fn is_plainly_right(
        &self,
        operation: Transmit,
        peer: &Peer,
        len: usize,
        immediate: Option<u64>,
        is_delivery: bool,
    ) -> bool {
        let has_place = match operation {
            Transmit::Send => true,
            Transmit::Write(remote) => {
                let is_trusted = self.limits.keys_enforced_word | remote.vouched_word();
                len as u64 <= remote.len() && is_trusted & self.limits.one_sided_mask != 0
            }
            _ => false,
        };
        let has_immediate = immediate.is_none() || self.limits.immediate_bytes >= size_of::<u64>();
        has_place && has_immediate && !is_delivery && len <= self.limits.message_max && peer.is_of(self.av())
    }

    /// Checks everything that can be checked before the provider is called.
    ///
    /// It is not inlined, and takes its arguments by value, so that a caller on the fast path
    /// prepares nothing for it.
    #[inline(never)]
    fn check(&self, asked: Asked) -> Result<(), Refusal> {
        let Asked { operation, is_of_av, len, immediate, is_delivery, are_writable, is_word } = asked;
        if !is_of_av {
            return Err(Refusal::OtherAddressVector);
        }
        if len > self.limits.message_max {
            return Err(Refusal::TooLong { len, max: self.limits.message_max });
        }
        if is_delivery && !self.limits.delivers {
            return Err(Refusal::Unsupported("completions that prove delivery"));
        }
        self.check_immediate(immediate)?;
        match operation {
            Transmit::Send => Ok(()),
            Transmit::Write(remote) => self.check_remote(remote, len),
            Transmit::WriteParts(parts) => self.check_parts(&parts, len),
            Transmit::Read(_) | Transmit::ReadParts(_) if immediate.is_some() => {
                Err(Refusal::Unsupported("reads with immediate data"))
            }
            Transmit::Read(_) | Transmit::ReadParts(_) if !are_writable => Err(Refusal::NotWritable),
            Transmit::Read(remote) => self.check_remote(remote, len),
            Transmit::ReadParts(parts) => self.check_parts(&parts, len),
            Transmit::FetchAdd { .. } if !self.atomics.fetch_add => {
                Err(Refusal::Unsupported("fetch and add"))
            }
            Transmit::CompareSwap { .. } if !self.atomics.compare_swap => {
                Err(Refusal::Unsupported("compare and swap"))
            }
            Transmit::FetchAdd { remote, .. } | Transmit::CompareSwap { remote, .. } => {
                if immediate.is_some() || is_delivery {
                    return Err(Refusal::Unsupported("atomics with immediate data or delivery completion"));
                }
                self.check_remote(remote, WORD)?;
                let is_remote_word =
                    remote.len() as usize == WORD && remote.address().is_multiple_of(WORD as u64);
                if is_word && is_remote_word { Ok(()) } else { Err(Refusal::NotEightAlignedBytes) }
            }
        }
    }

    pub(super) fn check_immediate(&self, immediate: Option<u64>) -> Result<(), Refusal> {
        let bytes = self.limits.immediate_bytes;
        match immediate {
            Some(_) if bytes == 0 => Err(Refusal::Unsupported("immediate data")),
            Some(immediate) if bytes < 8 && immediate >> (8 * bytes) != 0 => {
                Err(Refusal::ImmediateTooLarge { immediate, bytes })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_remote(&self, remote: RemoteRegion, len: usize) -> Result<(), Refusal> {
        if self.limits.one_sided_mask == 0 {
            return Err(Refusal::Unsupported("one-sided operations"));
        }
        if len as u64 > remote.len() {
            return Err(Refusal::OutOfBounds { len, remote_len: remote.len() });
        }
        if !self.limits.keys_enforced && !remote.is_vouched() {
            return Err(Refusal::NotVouched);
        }
        Ok(())
    }
}

/// The properties of a request that are checked.
struct Asked {
    operation: Transmit,
    is_of_av: bool,
    len: usize,
    immediate: Option<u64>,
    is_delivery: bool,
    are_writable: bool,
    is_word: bool,
}

/// Returns `true` if the buffers are suitable for atomic operations.
#[inline(always)]
fn is_word(buffers: &Buffers) -> bool {
    match buffers.as_slice() {
        [buffer] => buffer.len() == WORD && buffer.address().cast::<u64>().is_aligned(),
        _ => false,
    }
}

/// An operation that is in the table, and about to be handed to the provider.
struct Call<'a, const N: usize> {
    open: &'a Open,
    list: &'a mut List<N>,
    filled: Filled,
    peer: sys::fi_addr_t,
    slot: Slot<'a>,
    immediate: Option<u64>,
    is_delivery: bool,
}

impl<const N: usize> Call<'_, N> {
    /// Hands the operation to the provider.
    ///
    /// # Safety
    ///
    /// The operation was checked. It, its peer and all memory in the list are in the endpoint's
    /// table, at the slot, and the list is filled.
    #[inline(always)]
    unsafe fn start(self, operation: Transmit) -> isize {
        let (ep, context) = (self.open.ep.as_ptr(), self.slot.context());
        let (filled, peer, data) = (self.filled, self.peer, self.immediate.unwrap_or(0));
        let mut flags = sys::FI_COMPLETION;
        if self.immediate.is_some() {
            flags |= sys::FI_REMOTE_CQ_DATA;
        }
        if self.is_delivery {
            flags |= sys::FI_DELIVERY_COMPLETE;
        }
        // SAFETY: the endpoint is live (`Handle`). Message, list and ranges live until the function
        // returns, and it copies them. The memory that they refer to lives longer: the caller
        // guarantees that the table has it, and the table outlives the endpoint, as does the
        // context in it.
        unsafe {
            match operation {
                Transmit::Send => {
                    let msg = self.list.msg(filled, peer, context, data);
                    sys::fi_sendmsg(ep, &raw const msg, flags)
                }
                Transmit::Write(remote) => {
                    let ranges = [rma_iov(remote, filled.len)];
                    let msg = self.list.msg_rma(filled, peer, &ranges, context, data);
                    sys::fi_writemsg(ep, &raw const msg, flags)
                }
                Transmit::WriteParts(parts) => {
                    let ranges = Ranges::of(&parts, filled.len);
                    let msg = self.list.msg_rma(filled, peer, ranges.as_slice(), context, data);
                    sys::fi_writemsg(ep, &raw const msg, flags)
                }
                Transmit::Read(remote) => {
                    let ranges = [rma_iov(remote, filled.len)];
                    let msg = self.list.msg_rma(filled, peer, &ranges, context, data);
                    sys::fi_readmsg(ep, &raw const msg, flags)
                }
                Transmit::ReadParts(parts) => {
                    let ranges = Ranges::of(&parts, filled.len);
                    let msg = self.list.msg_rma(filled, peer, ranges.as_slice(), context, data);
                    sys::fi_readmsg(ep, &raw const msg, flags)
                }
                Transmit::FetchAdd { remote, add } => self.start_atomic(remote, [add, 0], false),
                Transmit::CompareSwap { remote, expected, desired } => {
                    self.start_atomic(remote, [desired, expected], true)
                }
            }
        }
    }

    /// Posts a fetch-and-add of the first operand, or a compare with the second one and swap.
    ///
    /// # Safety
    ///
    /// As for [`start`](Self::start).
    #[inline(never)]
    unsafe fn start_atomic(self, remote: RemoteRegion, operands: [u64; 2], is_compare: bool) -> isize {
        let Some(place) = &self.open.operands else { return -(sys::FI_ENOSYS as isize) };
        let [first, second] = place.set(self.open.transmit.index(self.slot), operands);
        let desc = pointer(place.descriptor);
        let (ep, to, context) = (self.open.ep.as_ptr(), self.peer, self.slot.context());
        let (address, key, word) = (remote.address(), remote.key(), sys::FI_UINT64);
        // SAFETY: the endpoint is live (`Handle`). `check` has verified that it supports the
        // operation, so the table for it exists, and that there is one buffer, of an aligned word:
        // it receives the result, and is the first in the list. The operands are those of the slot,
        // in memory that the endpoint keeps until its end.
        unsafe {
            let (result, result_desc) = self.list.first();
            let (result, result_desc) = (result.assume_init().iov_base, result_desc.assume_init());
            if is_compare {
                sys::fi_compare_atomic(
                    ep,
                    first,
                    1,
                    desc,
                    second,
                    desc,
                    result,
                    result_desc,
                    to,
                    address,
                    key,
                    word,
                    sys::FI_CSWAP,
                    context,
                )
            } else {
                sys::fi_fetch_atomic(
                    ep,
                    first,
                    1,
                    desc,
                    result,
                    result_desc,
                    to,
                    address,
                    key,
                    word,
                    sys::FI_SUM,
                    context,
                )
            }
        }
    }
}

/// Returns the C function that posts this kind.
fn function(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Send => "fi_sendmsg",
        OperationKind::Write => "fi_writemsg",
        OperationKind::Read => "fi_readmsg",
        OperationKind::FetchAdd => "fi_fetch_atomic",
        OperationKind::CompareSwap => "fi_compare_atomic",
        OperationKind::Receive => "fi_recvmsg",
    }
}

impl Transmit {
    #[inline(always)]
    fn kind(self) -> OperationKind {
        match self {
            Self::Send => OperationKind::Send,
            Self::Write(_) | Self::WriteParts(_) => OperationKind::Write,
            Self::Read(_) | Self::ReadParts(_) => OperationKind::Read,
            Self::FetchAdd { .. } => OperationKind::FetchAdd,
            Self::CompareSwap { .. } => OperationKind::CompareSwap,
        }
    }
}
