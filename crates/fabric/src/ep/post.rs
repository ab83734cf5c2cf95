//! The safe door: operations go in with their buffers, which come back with the completion.

use std::ptr;

use farreach_fabric_sys as sys;
use farreach_memory::DomainId;

use super::atomics::WORD;
use super::list::{List, pointer};
use super::parts::Ranges;
use super::slots::{InFlight, Number, Slots};
use super::{Endpoint, Open};
use crate::op::Transmit;
use crate::{OperationKind, PostError, ReceiveRequest, Refusal, RemoteRegion, TransmitRequest};

impl Endpoint {
    /// Posts an operation that leaves. Its buffers are the provider's until a completion brings them back.
    ///
    /// What is refused is handed back whole; a full queue is an ordinary answer. [`Driver`](crate::Driver) waits for room.
    #[doc(alias = "fi_sendmsg")]
    #[doc(alias = "fi_writemsg")]
    #[doc(alias = "fi_readmsg")]
    #[expect(
        clippy::result_large_err,
        reason = "the request is handed back whole, and boxing it would allocate"
    )]
    pub fn post(&self, request: TransmitRequest) -> Result<(), PostError<TransmitRequest>> {
        let open = self.open();
        if let Err(reason) = open.check(&request) {
            return Err(PostError { reason, request });
        }
        let mut list = List::new();
        if let Err(reason) = list.fill(&request.buffers, open, open.limits.transmit_buffers_max) {
            return Err(PostError { reason, request });
        }
        let TransmitRequest { operation, peer, buffers, immediate, is_delivery, tag } = request;
        let number = peer.number();
        let again = |operation_in_flight: InFlight| {
            let InFlight { buffers, peer, .. } = operation_in_flight;
            let peer = peer.expect("what leaves has a peer");
            TransmitRequest { operation, peer, buffers, immediate, is_delivery, tag }
        };
        let kind = operation.kind();
        let slot = match open.transmit.put(InFlight { tag, kind, is_delivery, buffers, peer: Some(peer) }) {
            Ok(slot) => slot,
            Err(back) => {
                let reason = Refusal::QueueFull { in_flight: open.transmit.depth() };
                return Err(PostError { reason, request: again(back) });
            }
        };
        let call = Call { open, list: &mut list, peer: number, slot, immediate, is_delivery };
        // SAFETY: every element names memory of a buffer that is in the table now, registered where that is asked for, and out of
        // everybody's hand until its completion, or the end of the endpoint, takes it out. Region and peer were checked.
        let status = unsafe { call.start(operation) };
        match open.accepted(&open.transmit, slot, status, kind) {
            Ok(()) => Ok(()),
            Err((reason, back)) => Err(PostError { reason, request: again(back) }),
        }
    }

    /// Posts room for a message: `fi_recvmsg(3)`. Its buffers are the provider's until a completion brings them back.
    #[doc(alias = "fi_recvmsg")]
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError<ReceiveRequest>> {
        let open = self.open();
        let mut list = List::new();
        if let Err(reason) = list.fill(&request.buffers, open, open.limits.receive_buffers_max) {
            return Err(PostError { reason, request });
        }
        let ReceiveRequest { buffers, tag } = request;
        let kind = OperationKind::Receive;
        let slot = match open.receive.put(InFlight { tag, kind, is_delivery: false, buffers, peer: None }) {
            Ok(slot) => slot,
            Err(back) => {
                let reason = Refusal::QueueFull { in_flight: open.receive.depth() };
                return Err(PostError { reason, request: ReceiveRequest { buffers: back.buffers, tag } });
            }
        };
        let msg = list.msg(sys::FI_ADDR_UNSPEC, open.receive.context(slot), 0);
        // SAFETY: as for what leaves.
        let status = unsafe { sys::fi_recvmsg(open.ep.as_ptr(), &raw const msg, sys::FI_COMPLETION) };
        match open.accepted(&open.receive, slot, status, kind) {
            Ok(()) => Ok(()),
            Err((reason, back)) => {
                Err(PostError { reason, request: ReceiveRequest { buffers: back.buffers, tag } })
            }
        }
    }
}

impl Open {
    /// The domain that local buffers are to be registered in, where the provider asks for that.
    #[inline]
    pub(super) fn local_domain(&self) -> Option<DomainId> {
        self.limits.needs_local_keys.then(|| self.domain.id())
    }

    /// What the provider's answer means. What it refused is taken back out of the table.
    #[inline]
    #[expect(
        clippy::result_large_err,
        reason = "the operation is handed back whole, and boxing it would allocate"
    )]
    fn accepted(
        &self,
        slots: &Slots,
        slot: Number,
        status: isize,
        kind: OperationKind,
    ) -> Result<(), (Refusal, InFlight)> {
        if status == 0 {
            return Ok(());
        }
        // Where a completion has taken it out all the same, that is the answer to it.
        let Some(back) = slots.take(slot) else { return Ok(()) };
        let reason = match status as i32 {
            status if status == -sys::FI_EAGAIN => Refusal::QueueFull { in_flight: slots.in_flight() },
            status => Refusal::Engine(self.domain.library().error(function(kind), status)),
        };
        Err((reason, back))
    }

    /// What can be told before the provider is asked.
    #[inline]
    fn check(&self, request: &TransmitRequest) -> Result<(), Refusal> {
        let len = request.buffers.len();
        if !request.peer.is_of(&self.av) {
            return Err(Refusal::OtherAddressVector);
        }
        if len > self.limits.message_max {
            return Err(Refusal::TooLong { len, max: self.limits.message_max });
        }
        if request.is_delivery && !self.limits.delivers {
            return Err(Refusal::Unsupported("completions that tell of delivery"));
        }
        self.check_immediate(request.immediate)?;
        match request.operation {
            Transmit::Send => Ok(()),
            Transmit::Write(remote) => self.check_remote(remote, len),
            Transmit::WriteParts(parts) => self.check_parts(&parts, len),
            Transmit::Read(_) | Transmit::ReadParts(_) if request.immediate.is_some() => {
                Err(Refusal::Unsupported("reads with immediate data"))
            }
            Transmit::Read(_) | Transmit::ReadParts(_) if !request.buffers.are_writable() => {
                Err(Refusal::NotWritable)
            }
            Transmit::Read(remote) => self.check_remote(remote, len),
            Transmit::ReadParts(parts) => self.check_parts(&parts, len),
            Transmit::FetchAdd { .. } if !self.atomics.fetch_add => {
                Err(Refusal::Unsupported("fetch and add"))
            }
            Transmit::CompareSwap { .. } if !self.atomics.compare_swap => {
                Err(Refusal::Unsupported("compare and swap"))
            }
            Transmit::FetchAdd { remote, .. } | Transmit::CompareSwap { remote, .. } => {
                if request.immediate.is_some() || request.is_delivery {
                    return Err(Refusal::Unsupported(
                        "atomics with immediate data, or other than with their answer",
                    ));
                }
                self.check_remote(remote, WORD)?;
                let is_word = match request.buffers.as_slice() {
                    [buffer] => buffer.len() == WORD && buffer.address().cast::<u64>().is_aligned(),
                    _ => false,
                };
                let is_remote_word =
                    remote.len() as usize == WORD && remote.address().is_multiple_of(WORD as u64);
                if is_word && is_remote_word { Ok(()) } else { Err(Refusal::NotAWord) }
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
        if len as u64 > remote.len() {
            return Err(Refusal::OutOfBounds { len, remote_len: remote.len() });
        }
        if !self.limits.keys_enforced && !remote.is_vouched() {
            return Err(Refusal::NotVouched);
        }
        Ok(())
    }
}

/// An operation that is in the table, and about to be the provider's.
struct Call<'a> {
    open: &'a Open,
    list: &'a mut List,
    peer: sys::fi_addr_t,
    slot: Number,
    immediate: Option<u64>,
    is_delivery: bool,
}

impl Call<'_> {
    /// Hands the operation to the provider.
    ///
    /// # Safety
    ///
    /// The list names memory that is the operation's, and the operation is in the table. It was checked.
    unsafe fn start(self, operation: Transmit) -> isize {
        let ep = self.open.ep.as_ptr();
        let context = self.open.transmit.context(self.slot);
        let data = self.immediate.unwrap_or(0);
        let mut flags = sys::FI_COMPLETION;
        if self.immediate.is_some() {
            flags |= sys::FI_REMOTE_CQ_DATA;
        }
        if self.is_delivery {
            flags |= sys::FI_DELIVERY_COMPLETE;
        }
        match operation {
            Transmit::Send => {
                let msg = self.list.msg(self.peer, context, data);
                // SAFETY: the endpoint lives, and what the structure names lives through the call; the rest is the caller's
                // word.
                unsafe { sys::fi_sendmsg(ep, &raw const msg, flags) }
            }
            Transmit::Write(remote) => {
                let remote = rma_iov(remote, self.list.len);
                let msg = self.list.msg_rma(self.peer, &raw const remote, context, data);
                // SAFETY: as above.
                unsafe { sys::fi_writemsg(ep, &raw const msg, flags) }
            }
            Transmit::WriteParts(parts) => {
                let ranges = Ranges::of(&parts, self.list.len);
                let msg = ranges.name_in(self.list.msg_rma(self.peer, ptr::null(), context, data));
                // SAFETY: as above.
                unsafe { sys::fi_writemsg(ep, &raw const msg, flags) }
            }
            Transmit::ReadParts(parts) => {
                let ranges = Ranges::of(&parts, self.list.len);
                let msg = ranges.name_in(self.list.msg_rma(self.peer, ptr::null(), context, data));
                // SAFETY: as above.
                unsafe { sys::fi_readmsg(ep, &raw const msg, flags) }
            }
            Transmit::Read(remote) => {
                let remote = rma_iov(remote, self.list.len);
                let msg = self.list.msg_rma(self.peer, &raw const remote, context, data);
                // SAFETY: as above.
                unsafe { sys::fi_readmsg(ep, &raw const msg, flags) }
            }
            // SAFETY: passed on to the caller.
            Transmit::FetchAdd { remote, add } => unsafe { self.fetch_add(remote, add) },
            Transmit::CompareSwap { remote, expected, desired } => {
                // SAFETY: as above.
                unsafe { self.compare_swap(remote, expected, desired) }
            }
        }
    }

    /// # Safety
    ///
    /// As for [`start`](Self::start).
    unsafe fn fetch_add(self, remote: RemoteRegion, add: u64) -> isize {
        let Some(operands) = &self.open.operands else { return -(sys::FI_ENOSYS as isize) };
        let [operand, _] = operands.set(self.slot, [add, 0]);
        let (result, result_desc) = self.list.first();
        // SAFETY: the endpoint has the operation. The operand lies in memory of its place, the result in the buffer.
        unsafe {
            sys::fi_fetch_atomic(
                self.open.ep.as_ptr(),
                operand,
                1,
                pointer(operands.descriptor),
                result,
                result_desc,
                self.peer,
                remote.address(),
                remote.key(),
                sys::FI_UINT64,
                sys::FI_SUM,
                self.open.transmit.context(self.slot),
            )
        }
    }

    /// # Safety
    ///
    /// As for [`start`](Self::start).
    unsafe fn compare_swap(self, remote: RemoteRegion, expected: u64, desired: u64) -> isize {
        let Some(operands) = &self.open.operands else { return -(sys::FI_ENOSYS as isize) };
        let [desired, expected] = operands.set(self.slot, [desired, expected]);
        let descriptor = pointer(operands.descriptor);
        let (result, result_desc) = self.list.first();
        // SAFETY: as for fetch and add.
        unsafe {
            sys::fi_compare_atomic(
                self.open.ep.as_ptr(),
                desired,
                1,
                descriptor,
                expected,
                descriptor,
                result,
                result_desc,
                self.peer,
                remote.address(),
                remote.key(),
                sys::FI_UINT64,
                sys::FI_CSWAP,
                self.open.transmit.context(self.slot),
            )
        }
    }
}

pub(super) fn rma_iov(remote: RemoteRegion, len: usize) -> sys::fi_rma_iov {
    sys::fi_rma_iov { addr: remote.address(), len, key: remote.key() }
}

/// The C function that posts this kind.
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
