//! The work requests of a queue that are in flight, and the ids by which the device names them.
//!
//! Invariant: a work request is taken out of its queue at most once, by its completion or by the
//! end of the queue pair.

use std::mem::{MaybeUninit, take};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::place::{Place, Taken};
use super::ring::Ring;
use super::{Capacity, Parents};
use crate::ah::AddressHandle;
use crate::cq::{CompletionQueue, Source, WorkKind};
use crate::error::Error;
use crate::mw::BindingUnderWay;
use crate::wr::{Buffers, Extra, Region};

/// A work request in flight.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) tag: u64,
    pub(crate) kind: WorkKind,
    /// The buffers, which nothing can access until the completion returns them.
    pub(crate) buffers: Buffers,
    pub(crate) kept: Kept,
}

/// An object that must not be destroyed while a work request is in flight.
#[derive(Debug)]
pub(crate) enum Kept {
    Nothing,
    AddressHandle {
        _ah: AddressHandle,
    },
    Window(BindingUnderWay),
    /// The region that contains the message.
    Region {
        _region: Region,
    },
}

impl InFlight {
    /// Records that the work request failed, or may have failed.
    #[cold]
    pub(crate) fn fail(&self) {
        if let Kept::Window(binding) = &self.kept {
            binding.fail();
        }
    }

    /// Writes a work request field by field. Building it elsewhere first would cost one more copy.
    ///
    /// # Safety
    ///
    /// The caller forgets either the buffers and extras, or the value that is written here.
    #[inline(always)]
    pub(super) unsafe fn write(
        place: &mut MaybeUninit<Self>,
        tag: u64,
        kind: WorkKind,
        buffers: &Buffers,
        extra: &Extra,
    ) {
        let kept = match &extra.datagram {
            // SAFETY: the handle exists twice now, and the caller forgets the extras, or the value
            // that is written here.
            Some(datagram) => Kept::AddressHandle { _ah: unsafe { ptr::read(&raw const datagram.ah) } },
            None => Kept::Nothing,
        };
        let place = place.as_mut_ptr();
        // SAFETY: `place` is borrowed exclusively, so its fields can be written. The buffers exist
        // twice now, and the caller forgets one of the two.
        unsafe {
            (&raw mut (*place).tag).write(tag);
            (&raw mut (*place).kind).write(kind);
            (&raw mut (*place).buffers).write(ptr::read(buffers));
            (&raw mut (*place).kept).write(kept);
        }
    }

    /// Moves the buffers out of the place.
    #[inline(always)]
    pub(crate) fn into_buffers(taken: Taken<'_, Self>) -> Buffers {
        // SAFETY: the buffers are read once. `kept` is dropped once, unless it is `Nothing`, which
        // needs no drop; tag and kind are plain numbers.
        unsafe {
            taken.empty_with(|request| {
                // Most work requests keep nothing. Dropping that would still be a call, because
                // some kinds take a lock.
                if !matches!((*request).kept, Kept::Nothing) {
                    (&raw mut (*request).kept).drop_in_place();
                }
                (&raw const (*request).buffers).read()
            })
        }
    }
}

/// A work request that was in flight when its queue pair was destroyed, and has no completion.
///
/// ```no_run
/// # use farreach_verbs::qp::QueuePair;
/// # fn end(qp: QueuePair) -> Result<(), farreach_verbs::Error> {
/// for request in qp.destroy_unfinished()? {
///     println!("{}: {:?} of {} bytes", request.tag, request.kind, request.buffers.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Unfinished {
    /// The tag that the caller gave it.
    pub tag: u64,
    /// The kind. It is unknown whether it was executed.
    pub kind: WorkKind,
    /// The buffers, which belong to the caller again.
    pub buffers: Buffers,
}

/// A send or receive queue of a queue pair, which completes in order.
pub(crate) struct Queue {
    pub(crate) number: u32,
    pub(crate) ring: Ring<InFlight>,
}

impl Queue {
    pub(crate) fn new(depth: u32) -> Self {
        Self { number: next_number(), ring: Ring::new(depth) }
    }
}

/// The queues of a queue pair. They are registered with their completion queues while this lives.
pub(crate) struct Flight {
    send: Arc<Queue>,
    recv: Arc<Queue>,
    /// The registrations with the completion queues.
    attached: Vec<Attached>,
}

/// A registration of a queue with a completion queue. It ends on drop.
struct Attached {
    number: u32,
    cq: CompletionQueue,
}

impl Flight {
    /// Creates queues of the requested depth, and registers them. The device's queues may be
    /// deeper, and the excess stays unused: so no more can be in flight than the completion queues
    /// have room for, which registering checks. A queue that does not exist has depth 0.
    pub(super) fn new(parents: &Parents, capacity: Capacity) -> Result<Self, Error> {
        let has_own_recv = parents.srq.is_none() && parents.recv_cq.is_some();
        let send = Arc::new(Queue::new(parents.send_cq.as_ref().map_or(0, |_| capacity.max_send_wr)));
        let recv = Arc::new(Queue::new(if has_own_recv { capacity.max_recv_wr } else { 0 }));
        let mut attached = Vec::new();
        if let Some(cq) = &parents.send_cq {
            attached.push(Attached::new(cq, send.number, Source::Queue(Arc::clone(&send)))?);
        }
        if let Some(cq) = &parents.recv_cq {
            attached.push(match &parents.srq {
                None => Attached::new(cq, recv.number, Source::Queue(Arc::clone(&recv))),
                Some(srq) => Attached::new(cq, srq.queue().number, Source::Shared(Arc::clone(srq.queue()))),
            }?);
        }
        Ok(Self { send, recv, attached })
    }

    #[inline(always)]
    pub(super) fn send(&self) -> &Queue {
        &self.send
    }

    #[inline(always)]
    pub(super) fn recv(&self) -> &Queue {
        &self.recv
    }

    /// Keeps both queues, and their room in the completion queues, for good: the queue pair was not
    /// destroyed, so its work requests may still complete.
    pub(super) fn keep(&mut self) {
        std::mem::forget((Arc::clone(&self.send), Arc::clone(&self.recv), take(&mut self.attached)));
    }

    /// Returns all work requests that were in flight when the queue pair was destroyed.
    pub(super) fn take_back(&self) -> Vec<Unfinished> {
        let mut unfinished = Vec::new();
        for queue in [&self.send, &self.recv] {
            while let Some(request) = queue.ring.retire_next() {
                request.fail();
                let InFlight { tag, kind, buffers, .. } = request.into_inner();
                unfinished.push(Unfinished { tag, kind, buffers });
            }
        }
        unfinished
    }
}

impl Attached {
    fn new(cq: &CompletionQueue, number: u32, source: Source) -> Result<Self, Error> {
        cq.attach(source)?;
        Ok(Self { number, cq: cq.clone() })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.cq.registry().remove(self.number);
    }
}

/// A shared receive queue. Its work requests complete in any order, at any of its queue pairs.
pub(crate) struct SharedQueue {
    pub(crate) number: u32,
    places: Box<[Place<InFlight>]>,
    stock: Mutex<Stock>,
}

/// The use of the places of a shared queue.
pub(crate) struct Stock {
    free: Vec<u32>,
    /// By place: `true` if its work request is in flight.
    in_flight: Box<[bool]>,
}

impl SharedQueue {
    pub(crate) fn new(depth: u32) -> Self {
        // All places are allocated at once, so posting allocates nothing.
        let places = (0..depth).map(|_| Place::empty()).collect();
        let stock = Stock { free: (0..depth).rev().collect(), in_flight: vec![false; depth as usize].into() };
        Self { number: next_number(), places, stock: Mutex::new(stock) }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.places.len() as u32
    }

    /// Returns the right to post.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock()
    }

    /// Puts a work request in flight and returns its number. If the queue is full, returns the work
    /// request.
    pub(crate) fn put(&self, stock: &mut Stock, request: InFlight) -> Result<u32, InFlight> {
        // A place is free but not empty while its `Taken` value is still in use.
        let Some(number) = stock.free.pop_if(|number| self.places[*number as usize].is_empty()) else {
            return Err(request);
        };
        // SAFETY: the place is empty, as `pop_if` has checked. Its number was free, and the lock,
        // which `stock` proves, excludes other writers.
        unsafe { self.places[number as usize].fill_with(|place| _ = place.write(request)) };
        stock.in_flight[number as usize] = true;
        Ok(number)
    }

    /// Takes the work request with this number, if it is in flight.
    pub(crate) fn take<'a>(&'a self, stock: &mut Stock, number: u32) -> Option<Taken<'a, InFlight>> {
        let in_flight = stock.in_flight.get_mut(number as usize)?;
        if !std::mem::replace(in_flight, false) {
            return None;
        }
        stock.free.push(number);
        // SAFETY: it was in flight, so its place was filled under the lock that `stock` proves. It
        // is no longer in flight, so nothing else takes it.
        Some(unsafe { self.places[number as usize].take() })
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        for number in 0..self.depth() {
            drop(self.take(&mut self.stock.lock(), number));
        }
    }
}

/// The id by which the device names a work request: its queue, and its number there. It is never a
/// pointer.
///
/// Queue number 0 is not used: users of the raw API choose ids below 2^32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkRequestId {
    pub(crate) queue: u32,
    pub(crate) number: u32,
}

impl WorkRequestId {
    #[inline]
    pub(crate) fn to_raw(self) -> u64 {
        u64::from(self.queue) << 32 | u64::from(self.number)
    }

    #[inline]
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self { queue: (raw >> 32) as u32, number: raw as u32 }
    }
}

/// Returns a queue number. No two queues of a process have the same number, and a number is reused
/// only after four billion queues, so a late completion finds no queue.
fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        if number != 0 {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tag: u64) -> InFlight {
        InFlight { tag, kind: WorkKind::Recv, buffers: Buffers::None, kept: Kept::Nothing }
    }

    #[test]
    fn an_id_keeps_both_numbers() {
        let id = WorkRequestId { queue: u32::MAX, number: 7 };
        assert_eq!(WorkRequestId::from_raw(id.to_raw()), id);
        assert_eq!(WorkRequestId::from_raw(5), WorkRequestId { queue: 0, number: 5 });
    }

    #[test]
    fn a_shared_queue_takes_requests_back_in_any_order() {
        let queue = SharedQueue::new(2);
        let put = |tag| queue.put(&mut queue.lock(), request(tag));
        let take = |number| queue.take(&mut queue.lock(), number);
        let (first, second) = (put(1).unwrap(), put(2).unwrap());
        assert_eq!(put(3).unwrap_err().tag, 3);
        assert_eq!(take(second).unwrap().tag, 2);
        assert!(take(second).is_none(), "it is not in flight any more");
        assert!(take(99).is_none());
        assert_eq!(put(3).unwrap(), second);
        let looked_at = take(first).unwrap();
        assert_eq!(put(4).unwrap_err().tag, 4, "its place is in use until the value is dropped");
        assert_eq!(looked_at.tag, 1);
        drop(looked_at);
        assert_eq!(put(4).unwrap(), first);
    }
}
