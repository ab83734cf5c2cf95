//! Posts lists of send work requests with one call.

use std::mem::{MaybeUninit, take};
use std::ptr::null_mut;

use farreach_verbs_sys as sys;

use super::QueuePair;
use super::elements::BUFFERS_MAX;
use super::queue::{InFlight, Kept};
use super::ring::Poster;
use super::start::send_wr;
use crate::error::Error;
use crate::wr::{Refusal, SendRequest};

/// Maximum number of work requests in one call. A longer list is posted in several parts.
pub(super) const AT_ONCE: usize = 64;

/// The elements of one call: one for each work request, and some more for those with a list of
/// buffers.
pub(super) const ELEMENTS: usize = AT_ONCE + BUFFERS_MAX;

impl QueuePair {
    /// Posts a list of work requests, up to 64 by one call: `ibv_post_send(3)`. Posted ones are
    /// removed from the front of the list.
    ///
    /// If one is refused, those before it are in flight, and it is the first one left in the list,
    /// which can be posted again later. The list keeps its capacity, and posting allocates nothing.
    ///
    /// ```no_run
    /// # use farreach_memory::Slice;
    /// # use farreach_verbs::qp::QueuePair;
    /// # use farreach_verbs::wr::{RemoteRange, SendRequest};
    /// # fn write_all(qp: &QueuePair, pages: Vec<Slice>, to: RemoteRange) {
    /// let mut requests: Vec<SendRequest> =
    ///     pages.into_iter().map(|page| SendRequest::write(page, to)).collect();
    /// if let Err(reason) = qp.post_send_list(&mut requests) {
    ///     println!("{} requests are left: {reason}", requests.len());
    /// }
    /// # }
    /// ```
    #[doc(alias = "ibv_post_send")]
    pub fn post_send_list(&self, requests: &mut Vec<SendRequest>) -> Result<(), Refusal> {
        self.post_list(self.flight.send().ring.poster(), requests)
    }

    /// Like [`post_send_list`](Self::post_send_list), with exclusive access, which saves the lock
    /// against concurrent posting.
    #[doc(alias = "ibv_post_send")]
    pub fn post_send_list_mut(&mut self, requests: &mut Vec<SendRequest>) -> Result<(), Refusal> {
        // SAFETY: `self` is borrowed exclusively, and with it the ring of its send queue, so
        // nothing else posts to it.
        let poster = unsafe { self.flight.send().ring.sole_poster() };
        self.post_list(poster, requests)
    }

    fn post_list(
        &self,
        mut poster: Poster<'_, InFlight>,
        requests: &mut Vec<SendRequest>,
    ) -> Result<(), Refusal> {
        post_all(requests, |requests| match requests {
            [first, ..] if first.operation.is_apart() => self.post_apart(&mut poster, first),
            requests => self.post_some(&mut poster, requests),
        })
    }

    /// Posts a work request that cannot be part of a list.
    fn post_apart(&self, poster: &mut Poster<'_, InFlight>, request: &SendRequest) -> Part {
        let posted = match request.extra.binding {
            Some(_) => self.bind(poster, request),
            None => self.post_extended(poster, request),
        };
        match posted {
            Ok(()) => Part { posted: 1, stopped: None },
            Err(reason @ Refusal::InDoubt(_)) => Part { posted: 1, stopped: Some(reason) },
            Err(reason) => Part { posted: 0, stopped: Some(reason) },
        }
    }

    /// Posts an ATOMIC WRITE or a FLUSH, which have no buffers.
    fn post_extended(&self, poster: &mut Poster<'_, InFlight>, request: &SendRequest) -> Result<(), Refusal> {
        let SendRequest { operation, buffers, flags, tag, extra } = request;
        self.check(*operation, buffers, *flags, extra, 0)?;
        let Some(room) = poster.room() else { return Err(self.full()) };
        let id = self.next_id(&room);
        let mut wr = send_wr(id, *operation, *flags, extra, null_mut(), 0);
        let kind = operation.kind();
        room.push(InFlight { tag: *tag, kind, buffers: Default::default(), kept: Kept::Nothing });
        // SAFETY: the work request names no local memory, and `check` has verified that the queue
        // pair was created for the operation.
        match unsafe { self.start(*operation, &mut wr, &mut null_mut()) } {
            0 => Ok(()),
            errno => Err(Refusal::InDoubt(self.failed("ibv_wr_complete", errno))),
        }
    }

    /// Posts as many work requests as one call takes.
    fn post_some(&self, poster: &mut Poster<'_, InFlight>, requests: &mut [SendRequest]) -> Part {
        let mut elements = [MaybeUninit::<sys::ibv_sge>::uninit(); ELEMENTS];
        let mut wrs = [const { MaybeUninit::<sys::ibv_send_wr>::uninit() }; AT_ONCE];
        let (mut count, mut used) = (0, 0);
        let mut stopped = None;
        for request in requests.iter_mut().take(AT_ONCE) {
            let SendRequest { operation, buffers, flags, tag, extra } = request;
            if operation.is_apart() || used + buffers.count().min(BUFFERS_MAX) > ELEMENTS {
                break;
            }
            let naming = self.send_naming(*flags);
            let filled = naming.fill_list(&mut elements[used..], buffers.as_slice()).and_then(|filled| {
                self.check(*operation, buffers, *flags, extra, filled.len)?;
                Ok(filled)
            });
            let filled = match filled {
                Ok(filled) => filled,
                Err(reason) => {
                    stopped = Some(reason);
                    break;
                }
            };
            let Some(room) = poster.room() else {
                stopped = Some(self.full());
                break;
            };
            let list = elements[used..].as_mut_ptr().cast();
            wrs[count].write(send_wr(self.next_id(&room), *operation, *flags, extra, list, filled.count));
            let kept = match &extra.datagram {
                Some(datagram) => Kept::AddressHandle { _ah: datagram.ah.clone() },
                None => Kept::Nothing,
            };
            room.push(InFlight { tag: *tag, kind: operation.kind(), buffers: take(buffers), kept });
            (count, used) = (count + 1, used + filled.count);
        }
        let wrs = wrs[..count].as_mut_ptr().cast::<sys::ibv_send_wr>();
        let mut bad = null_mut();
        // SAFETY: `count` work requests are initialised, linked and posted. Every element names
        // memory of a buffer, as `fill_list` and `check` have verified. The ring holds these
        // buffers, so nothing else accesses them until their completion, or the end of the queue
        // pair. The queue pair lives as long as `self`.
        let errno = unsafe {
            for index in 1..count {
                (*wrs.add(index - 1)).next = wrs.add(index);
            }
            if count > 0 { sys::ibv_post_send(self.as_raw(), wrs, &raw mut bad) } else { 0 }
        };
        if errno == 0 {
            return Part { posted: count, stopped };
        }
        let posted = taken(wrs, bad, count);
        for request in requests[posted..count].iter_mut().rev() {
            // SAFETY: the library names the first work request that it refused (`bad`). This is
            // that one or a later one, taken from the end, so no completion of it will come.
            request.buffers = unsafe { poster.take_back() }.buffers;
        }
        Part { posted, stopped: Some(refusal(posted < count, self.failed("ibv_post_send", errno))) }
    }
}

/// The result of posting a part of a list.
pub(super) struct Part {
    /// The number of work requests from its front that are in flight.
    pub(super) posted: usize,
    /// The reason why no more are, unless the part was complete.
    pub(super) stopped: Option<Refusal>,
}

/// Posts part after part, and leaves in the list what could not be posted.
pub(super) fn post_all<R>(
    requests: &mut Vec<R>,
    mut post: impl FnMut(&mut [R]) -> Part,
) -> Result<(), Refusal> {
    let mut posted = 0;
    let mut stopped = None;
    while stopped.is_none() && posted < requests.len() {
        let part = post(&mut requests[posted..]);
        posted += part.posted;
        stopped = part.stopped;
    }
    // These are empty: their buffers are in flight.
    requests.drain(..posted);
    stopped.map_or(Ok(()), Err)
}

/// Returns how many work requests of a list the device has taken, given the first one that it
/// refused. If it names none of them, it may have taken any: all stay in flight until the queue
/// pair is destroyed.
pub(super) fn taken<W>(list: *const W, bad: *const W, count: usize) -> usize {
    let offset = bad.addr().wrapping_sub(list.addr());
    let index = offset / size_of::<W>();
    if offset.is_multiple_of(size_of::<W>()) && index < count { index } else { count }
}

/// Returns the reason for a failed post: `Engine` if the device is known to have refused a work
/// request, `InDoubt` if it may have taken all.
pub(super) fn refusal(is_known: bool, error: Error) -> Refusal {
    if is_known { Refusal::Engine(error) } else { Refusal::InDoubt(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_names_is_where_it_stopped() {
        let list = [0_u64; 4];
        let start = list.as_ptr();
        assert_eq!(taken(start, start, 4), 0);
        assert_eq!(taken(start, &raw const list[3], 4), 3);
        assert_eq!(taken(start, std::ptr::null(), 4), 4, "it names none");
        assert_eq!(taken(start, start.wrapping_add(4), 4), 4, "none of these");
        assert_eq!(taken(start, start.wrapping_byte_add(4), 4), 4);
    }

    #[test]
    fn a_list_is_posted_in_parts_and_keeps_what_is_refused() {
        let mut requests: Vec<u32> = (0..10).collect();
        let mut seen = Vec::new();
        let stopped = post_all(&mut requests, |part| {
            seen.push(part.to_vec());
            match part[0] {
                6 => Part { posted: 1, stopped: Some(Refusal::NotEightAlignedBytes) },
                _ => Part { posted: 3, stopped: None },
            }
        });
        assert!(matches!(stopped, Err(Refusal::NotEightAlignedBytes)));
        assert_eq!(seen.iter().map(|part| part[0]).collect::<Vec<_>>(), [0, 3, 6]);
        assert_eq!(requests, [7, 8, 9]);
    }
}
