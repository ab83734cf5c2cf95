//! The safe door: requests go in with their buffers, which come back with the completion.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use farreach_memory::{Buffer, DomainId};
use farreach_verbs_sys as sys;

use super::queue::{InFlight, WorkRequestId};
use super::{QueuePair, QueuePairType, SendOperations};
use crate::cq::WorkKind;
use crate::srq::SharedReceiveQueue;
use crate::wr::{
    Buffers, FlushLevel, FlushPlacement, Operation, PostError, RecvRequest, Refusal, RemoteRange, SendFlags,
    SendRequest,
};

/// Buffers of one request: as many as any device takes that we know of, and few enough for the stack.
const BUFFERS_MAX: usize = 32;

/// The bytes of an atomic operation.
const WORD: usize = size_of::<u64>();

impl QueuePair {
    /// Posts a request: `ibv_post_send(3)`. Its buffers are the device's until a completion brings them back.
    ///
    /// What is refused is handed back whole; a full queue is an ordinary answer.
    #[doc(alias = "ibv_post_send")]
    #[expect(
        clippy::result_large_err,
        reason = "the request is handed back whole, and boxing it would allocate"
    )]
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        let Some(queue) = self.send_queue() else {
            return Err(PostError { reason: Refusal::Unsupported("sending"), request });
        };
        if let Err(reason) = self.check(&request) {
            return Err(PostError { reason, request });
        }
        let mut elements = Elements::new();
        let is_inline = request.flags.contains(SendFlags::INLINE);
        if let Err(reason) =
            elements.fill(&request.buffers, self.domain(), self.capacity().max_send_sge, is_inline)
        {
            return Err(PostError { reason, request });
        }
        let mut poster = queue.ring.poster();
        let number = poster.next_number();
        let SendRequest { operation, buffers, flags, tag, destination } = request;
        let ah = destination.as_ref().map(|destination| destination.ah.clone());
        if let Err(back) = poster.push(InFlight { tag, kind: kind(operation), buffers, _ah: ah }) {
            let request = SendRequest { operation, buffers: back.buffers, flags, tag, destination };
            return Err(PostError { reason: Refusal::QueueFull { depth: queue.ring.depth() }, request });
        }
        let mut wr = sys::ibv_send_wr {
            wr_id: WorkRequestId { queue: queue.number, number }.to_raw(),
            next: null_mut(),
            sg_list: elements.as_mut_ptr(),
            num_sge: elements.count(),
            send_flags: flags.bits(),
            ..Default::default()
        };
        if let Some(destination) = &destination {
            wr.wr.ud = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 {
                ah: destination.ah.as_raw(),
                remote_qpn: destination.qp_num,
                remote_qkey: destination.qkey,
            };
        }
        // SAFETY: every element names memory of a buffer that is in the ring now, registered in this domain (or copied
        // inline), and out of everybody's hand until its completion, or the end of the queue pair, takes it out.
        let status = unsafe { self.start(operation, &mut wr) };
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the device refused the request, so no completion of it will come.
        let back = unsafe { poster.take_back() };
        drop(poster);
        let request = SendRequest { operation, buffers: back.buffers, flags, tag, destination };
        Err(PostError { reason: Refusal::Engine(self.failed("ibv_post_send", status)), request })
    }

    /// Posts room for a message: `ibv_post_recv(3)`. Its buffers are the device's until a completion brings them back.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), PostError<RecvRequest>> {
        let Some(queue) = self.recv_queue() else {
            return Err(PostError {
                reason: Refusal::Unsupported("receiving from a queue of its own"),
                request,
            });
        };
        let mut elements = Elements::new();
        if let Err(reason) =
            elements.fill_writable(&request.buffers, self.domain(), self.capacity().max_recv_sge)
        {
            return Err(PostError { reason, request });
        }
        let mut poster = queue.ring.poster();
        let number = poster.next_number();
        let RecvRequest { buffers, tag } = request;
        if let Err(back) = poster.push(InFlight { tag, kind: WorkKind::Recv, buffers, _ah: None }) {
            let request = RecvRequest { buffers: back.buffers, tag };
            return Err(PostError { reason: Refusal::QueueFull { depth: queue.ring.depth() }, request });
        }
        let id = WorkRequestId { queue: queue.number, number };
        let mut wr = elements.recv(id);
        // SAFETY: as for sends.
        let status = unsafe { sys::ibv_post_recv(self.as_raw(), &raw mut wr, &mut null_mut()) };
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the device refused the request, so no completion of it will come.
        let back = unsafe { poster.take_back() };
        drop(poster);
        let request = RecvRequest { buffers: back.buffers, tag };
        Err(PostError { reason: Refusal::Engine(self.failed("ibv_post_recv", status)), request })
    }

    /// Fills in what the operation is, and hands the request to the device.
    ///
    /// # Safety
    ///
    /// As for [`post_send_raw`](Self::post_send_raw).
    #[inline]
    unsafe fn start(&self, operation: Operation, wr: &mut sys::ibv_send_wr) -> c_int {
        match operation {
            Operation::Send => wr.opcode = sys::IBV_WR_SEND,
            Operation::SendImmediate(immediate) => {
                wr.opcode = sys::IBV_WR_SEND_WITH_IMM;
                wr.__bindgen_anon_1.imm_data = immediate.to_wire();
            }
            Operation::SendInvalidate(key) => {
                wr.opcode = sys::IBV_WR_SEND_WITH_INV;
                wr.__bindgen_anon_1.invalidate_rkey = key.0;
            }
            Operation::Write(remote) => set_remote(wr, sys::IBV_WR_RDMA_WRITE, remote),
            Operation::WriteImmediate(remote, immediate) => {
                set_remote(wr, sys::IBV_WR_RDMA_WRITE_WITH_IMM, remote);
                wr.__bindgen_anon_1.imm_data = immediate.to_wire();
            }
            Operation::Read(remote) => set_remote(wr, sys::IBV_WR_RDMA_READ, remote),
            Operation::CompareSwap { remote, expected, desired } => {
                set_atomic(wr, sys::IBV_WR_ATOMIC_CMP_AND_SWP, remote, expected, desired);
            }
            Operation::FetchAdd { remote, add } => {
                set_atomic(wr, sys::IBV_WR_ATOMIC_FETCH_AND_ADD, remote, add, 0);
            }
            Operation::LocalInvalidate(key) => {
                wr.opcode = sys::IBV_WR_LOCAL_INV;
                wr.__bindgen_anon_1.invalidate_rkey = key.0;
            }
            Operation::AtomicWrite { .. } | Operation::Flush(..) => {
                // SAFETY: passed on to the caller.
                return unsafe { self.start_extended(operation, wr) };
            }
        }
        // SAFETY: the queue pair lives; the rest is passed on to the caller.
        unsafe { sys::ibv_post_send(self.as_raw(), wr, &mut null_mut()) }
    }

    /// The operations that only the newer functions have.
    ///
    /// # Safety
    ///
    /// As for [`start`](Self::start); [`check`](Self::check) has seen that the queue pair was made for the operation.
    #[cold]
    unsafe fn start_extended(&self, operation: Operation, wr: &sys::ibv_send_wr) -> c_int {
        let Some(qp) = self.as_raw_ex() else { return libc::EOPNOTSUPP };
        // SAFETY: the queue pair was created for the operation, so its entries are there; the poster's lock keeps the
        // sequence ours alone.
        unsafe {
            sys::ibv_wr_start(qp);
            (*qp).wr_id = wr.wr_id;
            (*qp).wr_flags = wr.send_flags;
            match operation {
                Operation::AtomicWrite { remote, value } => {
                    sys::ibv_wr_atomic_write(qp, remote.key().0, remote.address(), (&raw const value).cast());
                }
                Operation::Flush(remote, flush) => {
                    let placement = match flush.placement {
                        FlushPlacement::Global => sys::IBV_FLUSH_GLOBAL,
                        FlushPlacement::Persistent => sys::IBV_FLUSH_PERSISTENT,
                    };
                    let level = match flush.level {
                        FlushLevel::Range => sys::IBV_FLUSH_RANGE,
                        FlushLevel::Region => sys::IBV_FLUSH_MR,
                    };
                    let len = usize::try_from(remote.len()).unwrap_or(usize::MAX);
                    let (key, address) = (remote.key().0, remote.address());
                    sys::ibv_wr_flush(qp, key, address, len, placement as u8, level as u8);
                }
                _ => {
                    sys::ibv_wr_abort(qp);
                    return libc::EOPNOTSUPP;
                }
            }
            sys::ibv_wr_complete(qp)
        }
    }

    /// What can be told before the device is asked. A request that fails there ends the connection.
    #[inline]
    fn check(&self, request: &SendRequest) -> Result<(), Refusal> {
        let len = request.buffers.len();
        if request.flags.contains(SendFlags::INLINE) && len > self.capacity().max_inline_data as usize {
            return Err(Refusal::TooLong { len, max: self.capacity().max_inline_data as usize });
        }
        let fits = |remote: RemoteRange| match len as u64 <= remote.len() {
            true => Ok(()),
            false => Err(Refusal::OutOfBounds { len, remote_len: remote.len() }),
        };
        let word = |remote: RemoteRange| match remote.len() as usize == WORD
            && remote.address().is_multiple_of(WORD as u64)
        {
            true => Ok(()),
            false => Err(Refusal::NotAWord),
        };
        match request.operation {
            Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_) => {}
            Operation::Write(remote) | Operation::WriteImmediate(remote, _) => fits(remote)?,
            Operation::Read(remote) => {
                fits(remote)?;
                writable(&request.buffers)?;
            }
            Operation::CompareSwap { remote, .. } | Operation::FetchAdd { remote, .. } => {
                word(remote)?;
                writable(&request.buffers)?;
                let [buffer] = request.buffers.as_slice() else { return Err(Refusal::NotAWord) };
                if buffer.len() != WORD || !buffer.address().cast::<u64>().is_aligned() {
                    return Err(Refusal::NotAWord);
                }
            }
            Operation::AtomicWrite { remote, .. } => {
                word(remote)?;
                self.needs(SendOperations::ATOMIC_WRITE, "ATOMIC WRITE")?;
            }
            Operation::Flush(..) => self.needs(SendOperations::FLUSH, "FLUSH")?,
            Operation::LocalInvalidate(_) => {}
        }
        match (self.kind(), &request.destination) {
            (QueuePairType::Ud, None) => Err(Refusal::Unsupported("datagrams without a destination")),
            (QueuePairType::Ud, Some(_)) => match request.operation {
                Operation::Send | Operation::SendImmediate(_) => Ok(()),
                _ => Err(Refusal::Unsupported("anything but messages")),
            },
            (_, Some(_)) => Err(Refusal::Unsupported("messages to a destination of their own")),
            (_, None) => Ok(()),
        }
    }

    fn needs(&self, operation: SendOperations, name: &'static str) -> Result<(), Refusal> {
        if self.operations().contains(operation) { Ok(()) } else { Err(Refusal::Unsupported(name)) }
    }

    #[inline]
    fn domain(&self) -> Option<DomainId> {
        self.pd().map(|pd| pd.id())
    }
}

impl SharedReceiveQueue {
    /// Posts room for a message to whichever queue pair takes it: `ibv_post_srq_recv(3)`.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), PostError<RecvRequest>> {
        let mut elements = Elements::new();
        if let Err(reason) =
            elements.fill_writable(&request.buffers, Some(self.pd().id()), BUFFERS_MAX as u32)
        {
            return Err(PostError { reason, request });
        }
        let RecvRequest { buffers, tag } = request;
        // Held over the post: a completion may be polled before it returns, and finds the request then.
        let mut places = self.queue().lock();
        let number = match places.put(InFlight { tag, kind: WorkKind::Recv, buffers, _ah: None }) {
            Ok(number) => number,
            Err(back) => {
                let reason = Refusal::QueueFull { depth: places.depth() };
                return Err(PostError { reason, request: RecvRequest { buffers: back.buffers, tag } });
            }
        };
        let mut wr = elements.recv(WorkRequestId { queue: self.queue().number, number });
        // SAFETY: as for the sends of a queue pair.
        let status = unsafe { sys::ibv_post_srq_recv(self.as_raw(), &raw mut wr, &mut null_mut()) };
        if status == 0 {
            return Ok(());
        }
        let buffers = places.take(number).map(|back| back.buffers).unwrap_or_default();
        drop(places);
        let reason = Refusal::Engine(self.failed("ibv_post_srq_recv", status));
        Err(PostError { reason, request: RecvRequest { buffers, tag } })
    }
}

/// The scatter-gather list of one request.
struct Elements {
    /// Filled up to `count`: a request pays for the buffers that it has, not for those that it could have.
    list: [MaybeUninit<sys::ibv_sge>; BUFFERS_MAX],
    count: usize,
}

impl Elements {
    #[inline]
    fn new() -> Self {
        Self { list: [MaybeUninit::uninit(); BUFFERS_MAX], count: 0 }
    }

    /// Names the buffers to the device. Bytes that are copied inline need no key.
    #[inline]
    fn fill(
        &mut self,
        buffers: &Buffers,
        domain: Option<DomainId>,
        max: u32,
        is_inline: bool,
    ) -> Result<(), Refusal> {
        let buffers = buffers.as_slice();
        if buffers.len() > BUFFERS_MAX.min(max as usize) {
            return Err(Refusal::TooManyBuffers { count: buffers.len(), max: max.min(BUFFERS_MAX as u32) });
        }
        for (element, buffer) in self.list.iter_mut().zip(buffers) {
            let key = domain.and_then(|domain| buffer.local_key(domain));
            let lkey = match key {
                Some(key) => key as u32,
                None if is_inline => 0,
                None => return Err(Refusal::NotRegistered),
            };
            let length = u32::try_from(buffer.len())
                .map_err(|_| Refusal::TooLong { len: buffer.len(), max: u32::MAX as usize })?;
            let addr = buffer.address().as_ptr().expose_provenance() as u64;
            element.write(sys::ibv_sge { addr, length, lkey });
        }
        self.count = buffers.len();
        Ok(())
    }

    /// As [`fill`](Self::fill), for what the device writes to.
    fn fill_writable(
        &mut self,
        buffers: &Buffers,
        domain: Option<DomainId>,
        max: u32,
    ) -> Result<(), Refusal> {
        writable(buffers)?;
        self.fill(buffers, domain, max, false)
    }

    fn recv(&mut self, id: WorkRequestId) -> sys::ibv_recv_wr {
        sys::ibv_recv_wr {
            wr_id: id.to_raw(),
            next: null_mut(),
            sg_list: self.as_mut_ptr(),
            num_sge: self.count(),
        }
    }

    fn as_mut_ptr(&mut self) -> *mut sys::ibv_sge {
        self.list.as_mut_ptr().cast()
    }

    fn count(&self) -> c_int {
        self.count as c_int
    }
}

/// Nobody may read what a device writes to.
fn writable(buffers: &Buffers) -> Result<(), Refusal> {
    match buffers.as_slice().iter().all(|buffer| matches!(buffer, Buffer::Slice(_))) {
        true => Ok(()),
        false => Err(Refusal::SharedDestination),
    }
}

#[inline]
fn set_remote(wr: &mut sys::ibv_send_wr, opcode: sys::ibv_wr_opcode, remote: RemoteRange) {
    wr.opcode = opcode;
    wr.wr.rdma =
        sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: remote.address(), rkey: remote.key().0 };
}

fn set_atomic(
    wr: &mut sys::ibv_send_wr,
    opcode: sys::ibv_wr_opcode,
    remote: RemoteRange,
    compare_add: u64,
    swap: u64,
) {
    wr.opcode = opcode;
    wr.wr.atomic = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
        remote_addr: remote.address(),
        compare_add,
        swap,
        rkey: remote.key().0,
    };
}

fn kind(operation: Operation) -> WorkKind {
    match operation {
        Operation::Send | Operation::SendImmediate(_) | Operation::SendInvalidate(_) => WorkKind::Send,
        Operation::Write(_) | Operation::WriteImmediate(..) => WorkKind::Write,
        Operation::Read(_) => WorkKind::Read,
        Operation::CompareSwap { .. } => WorkKind::CompareSwap,
        Operation::FetchAdd { .. } => WorkKind::FetchAdd,
        Operation::AtomicWrite { .. } => WorkKind::AtomicWrite,
        Operation::Flush(..) => WorkKind::Flush,
        Operation::LocalInvalidate(_) => WorkKind::LocalInvalidate,
    }
}
