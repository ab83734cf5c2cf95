//! The safe API of sending: requests go in with their buffers, which come back with the completion.

use std::ffi::c_int;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::null_mut;

use farreach_verbs_sys as sys;

use super::QueuePair;
use super::elements::{BUFFERS_MAX, Filled};
use super::queue::{InFlight, WorkRequestId};
use super::ring::{Poster, Room};
use super::start::send_wr;
use crate::wr::{Buffers, Extra, Operation, PostError, Refusal, SendFlags, SendRequest};

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
            Buffers::List(_) => self.post_scattered(self.flight.send().ring.poster(), request),
            Buffers::None if request.operation == Operation::BindWindow => self.post_bind(request),
            Buffers::None | Buffers::One(_) => self.post::<1>(self.flight.send().ring.poster(), request),
        }
    }

    /// As [`post_send`](Self::post_send), for the one who has the queue pair for himself: that spares the lock that keeps two
    /// threads from posting at once.
    #[doc(alias = "ibv_post_send")]
    #[expect(clippy::result_large_err, reason = "as for post_send")]
    #[inline(always)]
    pub fn post_send_mut(&mut self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        if request.operation == Operation::BindWindow {
            return self.post_bind(request);
        }
        // SAFETY: `self` is borrowed exclusively, and with it the ring of its send queue, which nobody else posts to.
        let poster = unsafe { self.flight.send().ring.sole_poster() };
        match request.buffers {
            Buffers::List(_) => self.post_scattered(poster, request),
            Buffers::None | Buffers::One(_) => self.post::<1>(poster, request),
        }
    }

    #[expect(clippy::result_large_err, reason = "as for post_send")]
    #[inline(never)]
    fn post_scattered(
        &self,
        poster: Poster<'_, InFlight>,
        request: SendRequest,
    ) -> Result<(), PostError<SendRequest>> {
        self.post::<BUFFERS_MAX>(poster, request)
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
        let SendRequest { operation, buffers, flags, tag, extra } = request;
        // Not dropped on any way out: on the one they are in flight, on the others they are handed back.
        let (buffers, extra) = (ManuallyDrop::new(buffers), ManuallyDrop::new(extra));
        let mut elements = [MaybeUninit::uninit(); N];
        let reason = 'refused: {
            let filled = match self.admit(operation, &buffers, flags, &extra, &mut elements) {
                Ok(filled) => filled,
                Err(reason) => break 'refused reason,
            };
            let Some(room) = poster.room() else { break 'refused self.full() };
            let id = self.next_id(&room);
            let list = elements.as_mut_ptr().cast();
            let mut wr = send_wr(id, operation, flags, &extra, list, filled.count);
            // SAFETY: all of the request is written. Of each of its parts there are two now, of which one is forgotten: buffers and extras by
            // `ManuallyDrop`, where the request is in flight; otherwise what `undo` takes back.
            unsafe {
                room.push_with(|place| InFlight::write(place, tag, operation.kind(), &buffers, &extra));
            }
            let mut bad = null_mut();
            // SAFETY: every element names memory of a buffer that is in the ring now, registered in this domain (or copied
            // inline), as `admit` has seen, and out of everybody's hand until its completion, or the end of the queue pair, takes it out.
            let errno = unsafe { self.start(operation, &mut wr, &mut bad) };
            if errno == 0 {
                return Ok(());
            }
            if !std::ptr::eq(bad, &raw const wr) {
                let reason = Refusal::InDoubt(self.failed("ibv_post_send", errno));
                let (buffers, extra) = Default::default();
                return Err(PostError {
                    reason,
                    request: SendRequest { operation, buffers, flags, tag, extra },
                });
            }
            // SAFETY: the library names the request as the one that it did not take (`bad`): no completion of it will come.
            unsafe { self.undo(poster, errno) }
        };
        let (buffers, extra) = (ManuallyDrop::into_inner(buffers), ManuallyDrop::into_inner(extra));
        Err(PostError { reason, request: SendRequest { operation, buffers, flags, tag, extra } })
    }

    /// Whoever asks for the right to post from now on waits for good.
    #[cfg(test)]
    pub(crate) fn lock_for_good(&self) {
        std::mem::forget(self.flight.send().ring.poster());
    }

    /// How the device will name the next request.
    #[inline(always)]
    pub(super) fn next_id(&self, room: &Room<'_, '_, InFlight>) -> WorkRequestId {
        WorkRequestId { queue: self.flight.send().number, number: room.number() }
    }

    /// Why there is no room.
    #[cold]
    pub(super) fn full(&self) -> Refusal {
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
        // SAFETY: the caller vouches that the device has refused it, so that nobody retires it.
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
        extra: &Extra,
        elements: &mut [MaybeUninit<sys::ibv_sge>; N],
    ) -> Result<Filled, Refusal> {
        let filled = self.send_naming(flags).fill(elements, buffers)?;
        self.check(operation, buffers, flags, extra, filled.len)?;
        Ok(filled)
    }
}
