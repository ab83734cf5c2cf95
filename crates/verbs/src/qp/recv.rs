//! Posts receive work requests by the safe API: to the queue of a queue pair, and to a shared one.

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
    /// Posts buffers for a message: `ibv_post_recv(3)`. The device has them until a completion
    /// returns them.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), PostError<RecvRequest>> {
        OwnQueue { qp: self, poster: self.flight.recv().ring.poster() }.post(request)
    }

    /// Posts buffers for many messages, up to 64 by one call: `ibv_post_recv(3)`. Refused work
    /// requests stay in the list, as in [`post_send_list`](Self::post_send_list).
    #[doc(alias = "ibv_post_recv")]
    pub fn post_recv_list(&self, requests: &mut Vec<RecvRequest>) -> Result<(), Refusal> {
        let mut queue = OwnQueue { qp: self, poster: self.flight.recv().ring.poster() };
        post_all(requests, |requests| queue.post_some(requests))
    }
}

impl SharedReceiveQueue {
    /// Posts buffers for a message to any of the queue pairs: `ibv_post_srq_recv(3)`.
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv(&self, request: RecvRequest) -> Result<(), PostError<RecvRequest>> {
        SharedOne { srq: self, stock: self.queue().lock() }.post(request)
    }

    /// Posts buffers for many messages, up to 64 by one call: `ibv_post_srq_recv(3)`. Refused work
    /// requests stay in the list, as in [`QueuePair::post_send_list`].
    #[doc(alias = "ibv_post_srq_recv")]
    pub fn post_recv_list(&self, requests: &mut Vec<RecvRequest>) -> Result<(), Refusal> {
        let mut queue = SharedOne { srq: self, stock: self.queue().lock() };
        post_all(requests, |requests| queue.post_some(requests))
    }
}

/// A locked queue that receive work requests are posted to. Its holder has exclusive access.
trait Receives {
    /// Returns how its work requests name their buffers.
    fn naming(&self) -> Naming;

    /// Puts a work request in flight, before it is passed to the device. If the queue is full,
    /// returns it.
    fn put(&mut self, request: InFlight) -> Result<WorkRequestId, InFlight>;

    /// Takes back the work request that was put last.
    ///
    /// # Safety
    ///
    /// The device has refused it.
    unsafe fn take_back(&mut self, id: WorkRequestId) -> Buffers;

    /// Passes a list to the device. Returns 0, or an errno with the first refused work request in
    /// `bad`.
    ///
    /// # Safety
    ///
    /// The list is valid, and every work request in it was [`put`](Self::put).
    unsafe fn start(&self, list: *mut sys::ibv_recv_wr, bad: &mut *mut sys::ibv_recv_wr) -> c_int;

    /// Returns the reason why the queue is full.
    fn full(&self) -> Refusal;

    /// Returns the device's error.
    fn failed(&self, errno: c_int) -> Error;

    /// Posts one work request.
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
        // SAFETY: every element names memory of a buffer that is in flight and registered in the
        // queue's domain. Nothing else accesses it until its completion, or the end of the queue.
        let errno = unsafe { self.start(&raw mut wr, &mut bad) };
        if errno == 0 {
            return Ok(());
        }
        let is_refused = std::ptr::eq(bad, &raw const wr);
        let buffers = match is_refused {
            // SAFETY: the library names the work request, which was put last, as the one that it
            // refused (`bad`), so no completion of it will come.
            true => unsafe { self.take_back(id) },
            false => Buffers::None,
        };
        let reason = refusal(is_refused, self.failed(errno));
        Err(PostError { reason, request: RecvRequest { buffers, tag } })
    }

    /// Posts as many work requests as one call takes.
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
        // SAFETY: `count` work requests are initialised, linked and posted. Every element names
        // memory of a buffer that is in flight and registered in the queue's domain. Nothing else
        // accesses it until its completion, or the end of the queue.
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
            // SAFETY: the library names the first work request that it refused (`bad`), and this is
            // that one or a later one, so no completion of it will come. Later ones were taken back
            // before, so it is the last.
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
        // SAFETY: the caller guarantees that the device has refused the last work request.
        unsafe { self.poster.take_back() }.buffers
    }

    #[inline]
    unsafe fn start(&self, list: *mut sys::ibv_recv_wr, bad: &mut *mut sys::ibv_recv_wr) -> c_int {
        // SAFETY: the queue pair lives while it is borrowed. The caller guarantees that the list is
        // valid.
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

/// A locked shared queue. The lock is held during the post: a completion may be polled before the
/// post returns, and waits for the lock to find the work request.
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
        // SAFETY: the queue lives while it is borrowed. The caller guarantees that the list is
        // valid.
        unsafe { sys::ibv_post_srq_recv(self.srq.as_raw(), list, bad) }
    }

    fn full(&self) -> Refusal {
        Refusal::QueueFull { depth: self.srq.queue().depth() }
    }

    fn failed(&self, errno: c_int) -> Error {
        self.srq.failed("ibv_post_srq_recv", errno)
    }
}
