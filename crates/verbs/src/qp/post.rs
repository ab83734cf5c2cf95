//! Posts send work requests by the safe API. Their buffers return with the completion.

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
    /// Posts a work request: `ibv_post_send(3)`. The device has its buffers until a completion
    /// returns them.
    ///
    /// A refused work request is returned whole; a full queue is an ordinary result.
    ///
    /// It is inlined for speed: a work request that is made where it is posted need not exist as a
    /// structure, and only the checks for its operation remain.
    #[doc(alias = "ibv_post_send")]
    #[expect(
        clippy::result_large_err,
        reason = "the work request is returned whole, and boxing it would allocate"
    )]
    #[inline(always)]
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        match request.buffers {
            Buffers::List(_) => self.post_scattered(self.flight.send().ring.poster(), request),
            Buffers::None if request.operation == Operation::BindWindow => self.post_bind(request),
            Buffers::None | Buffers::One(_) => self.post::<1>(self.flight.send().ring.poster(), request),
        }
    }

    /// Like [`post_send`](Self::post_send), with exclusive access, which saves the lock against
    /// concurrent posting.
    #[doc(alias = "ibv_post_send")]
    #[expect(clippy::result_large_err, reason = "as for post_send")]
    #[inline(always)]
    pub fn post_send_mut(&mut self, request: SendRequest) -> Result<(), PostError<SendRequest>> {
        if request.operation == Operation::BindWindow {
            return self.post_bind(request);
        }
        // SAFETY: `self` is borrowed exclusively, and with it the ring of its send queue, so
        // nothing else posts to it.
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

    /// Posts a work request of at most `N` buffers.
    ///
    /// It is destructured at once, and its parts are passed by address only to inlined functions,
    /// so that the compiler can keep them in registers.
    #[expect(clippy::result_large_err, reason = "as for post_send")]
    #[inline(always)]
    fn post<const N: usize>(
        &self,
        mut poster: Poster<'_, InFlight>,
        request: SendRequest,
    ) -> Result<(), PostError<SendRequest>> {
        let SendRequest { operation, buffers, flags, tag, extra } = request;
        // Never dropped here: either they are in flight, or they are returned to the caller.
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
            // SAFETY: the whole work request is written. Each of its parts exists twice now, of
            // which one is forgotten: buffers and extras by `ManuallyDrop` if the work request is
            // in flight, otherwise the copy that `undo` takes back.
            unsafe {
                room.push_with(|place| InFlight::write(place, tag, operation.kind(), &buffers, &extra));
            }
            let mut bad = null_mut();
            // SAFETY: every element names memory of a buffer that is registered in this domain (or
            // copied inline), as `admit` has verified. The ring holds these buffers, so nothing
            // else accesses them until their completion, or the end of the queue pair.
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
            // SAFETY: the library names the work request as the one that it refused (`bad`), so no
            // completion of it will come.
            unsafe { self.undo(poster, errno) }
        };
        let (buffers, extra) = (ManuallyDrop::into_inner(buffers), ManuallyDrop::into_inner(extra));
        Err(PostError { reason, request: SendRequest { operation, buffers, flags, tag, extra } })
    }

    /// Makes every later request for the right to post block for ever.
    #[cfg(test)]
    pub(crate) fn lock_for_good(&self) {
        std::mem::forget(self.flight.send().ring.poster());
    }

    /// Returns the id by which the device will name the next work request.
    #[inline(always)]
    pub(super) fn next_id(&self, room: &Room<'_, '_, InFlight>) -> WorkRequestId {
        WorkRequestId { queue: self.flight.send().number, number: room.number() }
    }

    /// Returns the reason why there is no room.
    #[cold]
    pub(super) fn full(&self) -> Refusal {
        match self.flight.send().ring.depth() {
            0 => Refusal::Unsupported("sending"),
            depth => Refusal::QueueFull { depth },
        }
    }

    /// Takes the last work request out of the ring and forgets it: the caller still has it.
    ///
    /// # Safety
    ///
    /// The device has refused it.
    #[cold]
    unsafe fn undo(&self, mut poster: Poster<'_, InFlight>, errno: c_int) -> Refusal {
        // SAFETY: the caller guarantees that the device has refused it, so nothing retires it.
        std::mem::forget(unsafe { poster.take_back() });
        Refusal::Engine(self.failed("ibv_post_send", errno))
    }

    /// Fills in the elements and checks the work request.
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
