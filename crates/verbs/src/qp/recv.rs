//! The safe API of receiving: on a queue pair's own queue, and on a shared one.

use std::ffi::c_int;
use std::mem::{MaybeUninit, take};
use std::ptr::null_mut;

use farreach_verbs_sys as sys;
use parking_lot::MutexGuard;

use super::QueuePair;
use super::elements::{BUFFERS_MAX, Naming, writable};
use super::list::{AT_ONCE, ELEMENTS, Part, post_all, refusal, taken};
use super::queue::{InFlight, Kept, Stock, WorkRequestId};
use super::ring::Poster;
use crate::cq::WorkKind;
use crate::error::Error;
use crate::srq::SharedReceiveQueue;
use crate::wr::{Buffers, PostError, RecvRequest, Refusal};

impl QueuePair {
    /// Posts room for a message: `ibv_post_recv(3)`. Its buffers are the device's until a completion brings them back.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), PostError<RecvRequest>> {
        OwnQueue { qp: self, poster: self.flight.recv().ring.poster() }.post(request)
    }

    /// Posts room for many messages, by one call of the device's for up to 64: `ibv_post_recv(3)`. What is refused stays in the list,
    /// as with [`post_send_list`](Self::post_send_list).
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recv_list(&self, requests: &mut Vec<RecvRequest>) -> Result<(), Refusal> {
        let mut queue = OwnQueue { qp: self, poster: self.flight.recv().ring.poster() };
        post_all(requests, |requests| queue.post_some(requests))
    }
}

impl SharedReceiveQueue {
    /// Posts room for a message to whichever queue pair takes it: `ibv_post_srq_recv(3)`.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), PostError<RecvRequest>> {
        SharedOne { srq: self, stock: self.queue().lock() }.post(request)
    }

    /// Posts room for many messages, by one call of the device's for up to 64: `ibv_post_srq_recv(3)`. What is refused stays in the
    /// list, as with [`QueuePair::post_send_list`].
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv_list(&self, requests: &mut Vec<RecvRequest>) -> Result<(), Refusal> {
        let mut queue = SharedOne { srq: self, stock: self.queue().lock() };
        post_all(requests, |requests| queue.post_some(requests))
    }
}

/// A queue that room is posted to. Who has it, has it alone: it is locked.
trait Receives {
    /// How its requests name their buffers.
    fn naming(&self) -> Naming;

    /// Puts a request in flight, before the device is told of it; a full queue hands it back.
    fn put(&mut self, request: InFlight) -> Result<WorkRequestId, InFlight>;

    /// Takes a request back that was the last one put.
    ///
    /// # Safety
    ///
    /// The device has refused it.
    unsafe fn take_back(&mut self, id: WorkRequestId) -> Buffers;

    /// Hands a list to the device; 0, or an errno and the first one that it did not take.
    ///
    /// # Safety
    ///
    /// The list is valid, and every request in it was [`put`](Self::put).
    unsafe fn start(&self, list: *mut sys::ibv_recv_wr, bad: &mut *mut sys::ibv_recv_wr) -> c_int;

    /// Why it takes no more.
    fn full(&self) -> Refusal;

    /// What the device said.
    fn failed(&self, errno: c_int) -> Error;

    /// Posts one request.
    #[inline]
    fn post(&mut self, request: RecvRequest) -> Result<(), PostError<RecvRequest>> {
        let mut elements = [MaybeUninit::<sys::ibv_sge>::uninit(); BUFFERS_MAX];
        let filled = writable(&request.buffers)
            .and_then(|()| self.naming().fill_list(&mut elements, request.buffers.as_slice()));
        let filled = match filled {
            Ok(filled) => filled,
            Err(reason) => return Err(PostError { reason, request }),
        };
        let RecvRequest { buffers, tag } = request;
        let id = match self.put(InFlight { tag, kind: WorkKind::Recv, buffers, kept: Kept::Nothing }) {
            Ok(id) => id,
            Err(back) => {
                let request = RecvRequest { buffers: back.buffers, tag };
                return Err(PostError { reason: self.full(), request });
            }
        };
        let mut wr = recv_wr(id, &mut elements, filled.count);
        let mut bad = null_mut();
        // SAFETY: every element names memory of a buffer that is in flight now, registered in the queue's domain, and out of everybody's
        // hand until its completion, or the end of the queue, takes it out.
        let errno = unsafe { self.start(&raw mut wr, &mut bad) };
        if errno == 0 {
            return Ok(());
        }
        let is_refused = std::ptr::eq(bad, &raw const wr);
        let buffers = match is_refused {
            // SAFETY: the library names the request, the last one put, as the one that it did not take (`bad`): no completion will come.
            true => unsafe { self.take_back(id) },
            false => Buffers::None,
        };
        let reason = refusal(is_refused, self.failed(errno));
        Err(PostError { reason, request: RecvRequest { buffers, tag } })
    }

    /// Posts as many as one call takes.
    fn post_some(&mut self, requests: &mut [RecvRequest]) -> Part {
        let mut elements = [MaybeUninit::<sys::ibv_sge>::uninit(); ELEMENTS];
        let mut wrs = [const { MaybeUninit::<sys::ibv_recv_wr>::uninit() }; AT_ONCE];
        let mut ids = [WorkRequestId::from_raw(0); AT_ONCE];
        let (mut count, mut used) = (0, 0);
        let mut stopped = None;
        for request in requests.iter_mut().take(AT_ONCE) {
            if used + request.buffers.count().min(BUFFERS_MAX) > ELEMENTS {
                break;
            }
            let filled = writable(&request.buffers)
                .and_then(|()| self.naming().fill_list(&mut elements[used..], request.buffers.as_slice()));
            let filled = match filled {
                Ok(filled) => filled,
                Err(reason) => {
                    stopped = Some(reason);
                    break;
                }
            };
            let buffers = take(&mut request.buffers);
            let in_flight = InFlight { tag: request.tag, kind: WorkKind::Recv, buffers, kept: Kept::Nothing };
            ids[count] = match self.put(in_flight) {
                Ok(id) => id,
                Err(back) => {
                    request.buffers = back.buffers;
                    stopped = Some(self.full());
                    break;
                }
            };
            wrs[count].write(recv_wr(ids[count], &mut elements[used..], filled.count));
            (count, used) = (count + 1, used + filled.count);
        }
        let list = wrs[..count].as_mut_ptr().cast::<sys::ibv_recv_wr>();
        let mut bad = null_mut();
        // SAFETY: `count` requests are written, and as many linked and posted. Every element names memory of a buffer that is in flight now,
        // registered in the queue's domain, and out of everybody's hand until its completion, or the end of the queue, takes it out.
        let errno = unsafe {
            for index in 1..count {
                (*list.add(index - 1)).next = list.add(index);
            }
            if count > 0 { self.start(list, &mut bad) } else { 0 }
        };
        if errno == 0 {
            return Part { posted: count, stopped };
        }
        let posted = taken(list, bad, count);
        for (request, id) in requests[posted..count].iter_mut().zip(&ids[posted..count]).rev() {
            // SAFETY: the library names the first request that it did not take (`bad`), and this is that one or one behind it: no completion of
            // it will come. Those behind it were taken back before, so that it is the last.
            request.buffers = unsafe { self.take_back(*id) };
        }
        Part { posted, stopped: Some(refusal(posted < count, self.failed(errno))) }
    }
}

#[inline]
fn recv_wr(id: WorkRequestId, elements: &mut [MaybeUninit<sys::ibv_sge>], count: usize) -> sys::ibv_recv_wr {
    sys::ibv_recv_wr {
        wr_id: id.to_raw(),
        next: null_mut(),
        sg_list: elements.as_mut_ptr().cast(),
        num_sge: count as c_int,
    }
}

struct OwnQueue<'a> {
    qp: &'a QueuePair,
    poster: Poster<'a, InFlight>,
}

impl Receives for OwnQueue<'_> {
    #[inline]
    fn naming(&self) -> Naming {
        self.qp.recv_naming()
    }

    #[inline]
    fn put(&mut self, request: InFlight) -> Result<WorkRequestId, InFlight> {
        let Some(room) = self.poster.room() else { return Err(request) };
        let id = WorkRequestId { queue: self.qp.flight.recv().number, number: room.number() };
        room.push(request);
        Ok(id)
    }

    unsafe fn take_back(&mut self, _: WorkRequestId) -> Buffers {
        // SAFETY: the caller vouches that the device has refused the last request.
        unsafe { self.poster.take_back() }.buffers
    }

    #[inline]
    unsafe fn start(&self, list: *mut sys::ibv_recv_wr, bad: &mut *mut sys::ibv_recv_wr) -> c_int {
        // SAFETY: the queue pair lives as long as it is borrowed; the caller vouches for the list.
        unsafe { sys::ibv_post_recv(self.qp.as_raw(), list, bad) }
    }

    fn full(&self) -> Refusal {
        match self.qp.flight.recv().ring.depth() {
            0 => Refusal::Unsupported("receiving from a queue of its own"),
            depth => Refusal::QueueFull { depth },
        }
    }

    fn failed(&self, errno: c_int) -> Error {
        self.qp.failed("ibv_post_recv", errno)
    }
}

/// The lock is held over the post: a completion may be polled before that returns, and finds the request then.
struct SharedOne<'a> {
    srq: &'a SharedReceiveQueue,
    stock: MutexGuard<'a, Stock>,
}

impl Receives for SharedOne<'_> {
    fn naming(&self) -> Naming {
        Naming { domain: self.srq.pd().id(), buffers_max: BUFFERS_MAX as u32, is_inline: false }
    }

    fn put(&mut self, request: InFlight) -> Result<WorkRequestId, InFlight> {
        let queue = self.srq.queue();
        let number = queue.put(&mut self.stock, request)?;
        Ok(WorkRequestId { queue: queue.number, number })
    }

    unsafe fn take_back(&mut self, id: WorkRequestId) -> Buffers {
        let back = self.srq.queue().take(&mut self.stock, id.number);
        back.map(|request| request.into_inner().buffers).unwrap_or_default()
    }

    unsafe fn start(&self, list: *mut sys::ibv_recv_wr, bad: &mut *mut sys::ibv_recv_wr) -> c_int {
        // SAFETY: the queue lives as long as it is borrowed; the caller vouches for the list.
        unsafe { sys::ibv_post_srq_recv(self.srq.as_raw(), list, bad) }
    }

    fn full(&self) -> Refusal {
        Refusal::QueueFull { depth: self.srq.queue().depth() }
    }

    fn failed(&self, errno: c_int) -> Error {
        self.srq.failed("ibv_post_srq_recv", errno)
    }
}
