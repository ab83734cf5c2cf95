//! The safe door: requests go in with their buffers, which come back with the completion.

use std::ffi::c_int;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::null_mut;

use farreach_verbs_sys as sys;

use super::QueuePair;
use super::elements::{BUFFERS_MAX, Filled, Naming, writable};
use super::queue::{InFlight, Kept, WorkRequestId};
use super::ring::Poster;
use super::start::send_wr;
use crate::cq::WorkKind;
use crate::srq::SharedReceiveQueue;
use crate::wr::{Address, Buffers, Operation, PostError, RecvRequest, Refusal, SendFlags, SendRequest};

impl QueuePair {
    /// Posts a request: `ibv_post_send(3)`. Its buffers are the device's until a completion brings them back.
    ///
    /// What is refused is handed back whole; a full queue is an ordinary answer.
    ///
    /// It is inlined for what it saves: a request that is made where it is posted never exists as a structure of its own, and
    /// is checked for what it is only.
    #[doc(alias = "ibv_post_send")]
    #[expect(
        clippy::result_large_err,
        reason = "the request is handed back whole, and boxing it would allocate"
    )]
    #[inline(always)]
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        match request.buffers {
            Buffers::List(_) => self.post_scattered(request),
            Buffers::None | Buffers::One(_) => self.post::<1>(self.flight.send().ring.poster(), request),
        }
    }

    /// As [`post_send`](Self::post_send), for the one who has the queue pair for himself: that spares the lock that keeps two
    /// threads from posting at once.
    #[doc(alias = "ibv_post_send")]
    #[expect(clippy::result_large_err, reason = "as for post_send")]
    #[inline(always)]
    pub fn post_send_mut(&mut self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        match request.buffers {
            Buffers::List(_) => self.post_scattered(request),
            Buffers::None | Buffers::One(_) => {
                // SAFETY: the queue pair is borrowed exclusively, and with it the right to post.
                let poster = unsafe { self.flight.send().ring.sole_poster() };
                self.post::<1>(poster, request)
            }
        }
    }

    #[expect(clippy::result_large_err, reason = "as for post_send")]
    #[inline(never)]
    fn post_scattered(&self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        self.post::<BUFFERS_MAX>(self.flight.send().ring.poster(), request)
    }

    /// Posts a request of at most `N` buffers.
    ///
    /// It is taken apart at once, and no part of it is ever passed on by its address, but to what is inlined here: so that the compiler
    /// may keep the parts in registers.
    #[expect(clippy::result_large_err, reason = "as for post_send")]
    #[inline(always)]
    fn post<const N: usize>(
        &self,
        mut poster: Poster<'_, InFlight>,
        request: SendRequest,
    ) -> Result<(), PostError<SendRequest>> {
        let SendRequest { operation, buffers, flags, tag, address } = request;
        // Not dropped on any way out: on the one they are in flight, on the others they are handed back.
        let (buffers, address) = (ManuallyDrop::new(buffers), ManuallyDrop::new(address));
        let mut elements = [MaybeUninit::uninit(); N];
        let reason = 'refused: {
            let filled = match self.admit(operation, &buffers, flags, &address, &mut elements) {
                Ok(filled) => filled,
                Err(reason) => break 'refused reason,
            };
            if !poster.has_room() {
                break 'refused self.full();
            }
            let id = WorkRequestId { queue: self.flight.send().number, number: poster.next_number() };
            let list = elements.as_mut_ptr().cast();
            let mut wr = send_wr(id, operation, flags, &address, list, filled.count);
            // SAFETY: there is room. Buffers and address are forgotten, or what is taken back is.
            unsafe {
                poster.push_with(|place| InFlight::write(place, tag, operation.kind(), &buffers, &address));
            }
            // SAFETY: every element names memory of a buffer that is in the ring now, registered in this domain (or copied
            // inline), and out of everybody's hand until its completion, or the end of the queue pair, takes it out.
            let errno = unsafe { self.start(operation, &mut wr) };
            if errno == 0 {
                return Ok(());
            }
            // SAFETY: the device refused the request, so no completion of it will come.
            unsafe { self.undo(poster, errno) }
        };
        let (buffers, address) = (ManuallyDrop::into_inner(buffers), ManuallyDrop::into_inner(address));
        Err(PostError { reason, request: SendRequest { operation, buffers, flags, tag, address } })
    }

    /// Why there is no room.
    #[cold]
    fn full(&self) -> Refusal {
        match self.flight.send().ring.depth() {
            0 => Refusal::Unsupported("sending"),
            depth => Refusal::QueueFull { depth },
        }
    }

    /// Takes the last request out of the ring, and forgets it: who posted it has it still.
    ///
    /// # Safety
    ///
    /// The device has refused it.
    #[cold]
    unsafe fn undo(&self, mut poster: Poster<'_, InFlight>, errno: c_int) -> Refusal {
        // SAFETY: passed on to the caller.
        std::mem::forget(unsafe { poster.take_back() });
        Refusal::Engine(self.failed("ibv_post_send", errno))
    }

    /// Names the buffers and checks the rest.
    #[inline(always)]
    pub(super) fn admit<const N: usize>(
        &self,
        operation: Operation,
        buffers: &Buffers,
        flags: SendFlags,
        address: &Address,
        elements: &mut [MaybeUninit<sys::ibv_sge>; N],
    ) -> Result<Filled, Refusal> {
        let filled = self.send_naming(flags).fill(elements, buffers)?;
        self.check(operation, buffers, flags, address, filled.len)?;
        Ok(filled)
    }

    /// Posts room for a message: `ibv_post_recv(3)`. Its buffers are the device's until a completion brings them back.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), PostError<RecvRequest>> {
        let queue = self.flight.recv();
        let mut elements = [MaybeUninit::uninit(); BUFFERS_MAX];
        let filled = match fill_writable(self.recv_naming(), &mut elements, &request) {
            Ok(filled) => filled,
            Err(reason) => return Err(PostError { reason, request }),
        };
        let mut poster = queue.ring.poster();
        if !poster.has_room() {
            let reason = match queue.ring.depth() {
                0 => Refusal::Unsupported("receiving from a queue of its own"),
                depth => Refusal::QueueFull { depth },
            };
            return Err(PostError { reason, request });
        }
        let id = WorkRequestId { queue: queue.number, number: poster.next_number() };
        let mut wr = recv_wr(id, &mut elements, filled);
        let RecvRequest { buffers, tag } = request;
        // SAFETY: there is room.
        unsafe {
            poster.push_with(|place| {
                _ = place.write(InFlight { tag, kind: WorkKind::Recv, buffers, kept: Kept::Nothing })
            })
        };
        // SAFETY: as for sends.
        let errno = unsafe { sys::ibv_post_recv(self.as_raw(), &raw mut wr, &mut null_mut()) };
        if errno == 0 {
            return Ok(());
        }
        // SAFETY: the device refused the request, so no completion of it will come.
        let buffers = unsafe { poster.take_back() }.buffers;
        let reason = Refusal::Engine(self.failed("ibv_post_recv", errno));
        Err(PostError { reason, request: RecvRequest { buffers, tag } })
    }
}

impl SharedReceiveQueue {
    /// Posts room for a message to whichever queue pair takes it: `ibv_post_srq_recv(3)`.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), PostError<RecvRequest>> {
        let mut elements = [MaybeUninit::uninit(); BUFFERS_MAX];
        let naming = Naming { domain: self.pd().id(), buffers_max: BUFFERS_MAX as u32, is_inline: false };
        let filled = match fill_writable(naming, &mut elements, &request) {
            Ok(filled) => filled,
            Err(reason) => return Err(PostError { reason, request }),
        };
        let RecvRequest { buffers, tag } = request;
        // Held over the post: a completion may be polled before it returns, and finds the request then.
        let queue = self.queue();
        let mut stock = queue.lock();
        let in_flight = InFlight { tag, kind: WorkKind::Recv, buffers, kept: Kept::Nothing };
        let number = match queue.put(&mut stock, in_flight) {
            Ok(number) => number,
            Err(back) => {
                let reason = Refusal::QueueFull { depth: queue.depth() };
                return Err(PostError { reason, request: RecvRequest { buffers: back.buffers, tag } });
            }
        };
        let mut wr = recv_wr(WorkRequestId { queue: queue.number, number }, &mut elements, filled);
        // SAFETY: as for the sends of a queue pair.
        let errno = unsafe { sys::ibv_post_srq_recv(self.as_raw(), &raw mut wr, &mut null_mut()) };
        if errno == 0 {
            return Ok(());
        }
        let buffers =
            queue.take(&mut stock, number).map(|back| back.into_inner().buffers).unwrap_or_default();
        let reason = Refusal::Engine(self.failed("ibv_post_srq_recv", errno));
        Err(PostError { reason, request: RecvRequest { buffers, tag } })
    }
}

#[inline]
fn fill_writable(
    naming: Naming,
    elements: &mut [MaybeUninit<sys::ibv_sge>; BUFFERS_MAX],
    request: &RecvRequest,
) -> Result<Filled, Refusal> {
    writable(&request.buffers)?;
    naming.fill(elements, &request.buffers)
}

#[inline]
fn recv_wr(
    id: WorkRequestId,
    elements: &mut [MaybeUninit<sys::ibv_sge>],
    filled: Filled,
) -> sys::ibv_recv_wr {
    sys::ibv_recv_wr {
        wr_id: id.to_raw(),
        next: null_mut(),
        sg_list: elements.as_mut_ptr().cast(),
        num_sge: filled.count as i32,
    }
}
