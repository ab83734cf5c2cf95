//! The requests of a queue that the device has, and the numbers by which it names them.

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

/// A request that the device has.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) tag: u64,
    pub(crate) kind: WorkKind,
    /// Whose bytes nobody can name until the completion brings them back.
    pub(crate) buffers: Buffers,
    pub(crate) kept: Kept,
}

/// What must not be destroyed while a request is under way.
#[derive(Debug)]
pub(crate) enum Kept {
    Nothing,
    AddressHandle {
        _ah: AddressHandle,
    },
    Window(BindingUnderWay),
    /// That the message lies in.
    Region {
        _region: Region,
    },
}

impl InFlight {
    /// It failed, or its fate is not known.
    #[cold]
    pub(crate) fn fail(&self) {
        if let Kept::Window(binding) = &self.kept {
            binding.fail();
        }
    }

    /// Writes what has to be kept of a request, field by field: made elsewhere first, it would be copied once more.
    ///
    /// # Safety
    ///
    /// Buffers and extras are forgotten afterwards; or what is written here is, if they stay.
    #[inline(always)]
    pub(super) unsafe fn write(
        place: &mut MaybeUninit<Self>,
        tag: u64,
        kind: WorkKind,
        buffers: &Buffers,
        extra: &Extra,
    ) {
        let kept = match &extra.datagram {
            // SAFETY: the handle is there twice now, and the caller forgets the extras, or what is written here.
            Some(datagram) => Kept::AddressHandle { _ah: unsafe { ptr::read(&raw const datagram.ah) } },
            None => Kept::Nothing,
        };
        let place = place.as_mut_ptr();
        // SAFETY: `place` is borrowed, so that each field of it can be written. The buffers are there twice now, and the caller forgets them here
        // or there.
        unsafe {
            (&raw mut (*place).tag).write(tag);
            (&raw mut (*place).kind).write(kind);
            (&raw mut (*place).buffers).write(ptr::read(buffers));
            (&raw mut (*place).kept).write(kept);
        }
    }

    /// The buffers, out of the place where they are.
    #[inline(always)]
    pub(crate) fn into_buffers(taken: Taken<'_, Self>) -> Buffers {
        // SAFETY: the buffers are read once and what is kept is dropped once, or is nothing; tag and kind are numbers.
        unsafe {
            taken.empty_with(|request| {
                // Most requests keep nothing, and dropping that would be a call all the same: some kinds take a lock.
                if !matches!((*request).kept, Kept::Nothing) {
                    (&raw mut (*request).kept).drop_in_place();
                }
                (&raw const (*request).buffers).read()
            })
        }
    }
}

/// A request that was in flight when its queue pair was destroyed, and has no completion.
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
    /// The number that the caller gave it.
    pub tag: u64,
    /// What was asked for. Whether it was done, nobody knows.
    pub kind: WorkKind,
    /// The buffers, which are the caller's again.
    pub buffers: Buffers,
}

/// A send or receive queue of a queue pair: it completes in order.
pub(crate) struct Queue {
    pub(crate) number: u32,
    pub(crate) ring: Ring<InFlight>,
}

impl Queue {
    pub(crate) fn new(depth: u32) -> Self {
        Self { number: next_number(), ring: Ring::new(depth) }
    }
}

/// The queues of a queue pair, known to the completion queues that they complete on as long as this lives.
pub(crate) struct Flight {
    send: Arc<Queue>,
    recv: Arc<Queue>,
    /// What each completion queue knows of.
    attached: Vec<Attached>,
}

/// A queue that a completion queue knows of, as long as this lives.
struct Attached {
    number: u32,
    cq: CompletionQueue,
}

impl Flight {
    /// Queues as deep as was asked for. The device's may be deeper, which then stays unused: so no more can be in flight than the
    /// completion queues have room for, which is seen to here. A queue that there is not has no depth.
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

    /// Keeps both queues for good, and their room in the completion queues: the queue pair was not destroyed, so its requests may
    /// still complete.
    pub(super) fn keep(&mut self) {
        std::mem::forget((Arc::clone(&self.send), Arc::clone(&self.recv), take(&mut self.attached)));
    }

    /// All requests that were in flight when the queue pair was destroyed.
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

/// A shared receive queue: its requests complete in any order, at whichever queue pair takes them.
pub(crate) struct SharedQueue {
    pub(crate) number: u32,
    places: Box<[Place<InFlight>]>,
    stock: Mutex<Stock>,
}

/// Which places of a shared queue are in use.
pub(crate) struct Stock {
    free: Vec<u32>,
    /// By place: whether its request is in flight.
    in_flight: Box<[bool]>,
}

impl SharedQueue {
    pub(crate) fn new(depth: u32) -> Self {
        // All places at once: posting allocates nothing.
        let places = (0..depth).map(|_| Place::empty()).collect();
        let stock = Stock { free: (0..depth).rev().collect(), in_flight: vec![false; depth as usize].into() };
        Self { number: next_number(), places, stock: Mutex::new(stock) }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.places.len() as u32
    }

    /// The right to post.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock()
    }

    /// Puts a request in flight and gives its number; a full queue hands it back.
    pub(crate) fn put(&self, stock: &mut Stock, request: InFlight) -> Result<u32, InFlight> {
        // One who looks still at what he has taken keeps its place, which then is not free yet.
        let Some(number) = stock.free.pop_if(|number| self.places[*number as usize].is_empty()) else {
            return Err(request);
        };
        // SAFETY: the place is empty: `pop_if` has looked. Its number was free, and whoever has the lock, as `stock` shows, fills it alone.
        unsafe { self.places[number as usize].fill_with(|place| _ = place.write(request)) };
        stock.in_flight[number as usize] = true;
        Ok(number)
    }

    /// The request of this number, if it is in flight.
    pub(crate) fn take<'a>(&'a self, stock: &mut Stock, number: u32) -> Option<Taken<'a, InFlight>> {
        let in_flight = stock.in_flight.get_mut(number as usize)?;
        if !std::mem::replace(in_flight, false) {
            return None;
        }
        stock.free.push(number);
        // SAFETY: it was in flight, so that its place is filled, under the lock that `stock` shows. Now it is not: nobody else takes it.
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

/// How the device names a request: by its queue, and by its number there. Never a pointer.
///
/// Queue 0 is nobody's: who posts by the raw API numbers his requests below 2^32.
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

/// No two queues of a process have the same number, and none that is gone gives its number to another before four billion were made:
/// a completion that arrives late finds nobody.
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
        assert_eq!(put(4).unwrap_err().tag, 4, "its place is not empty before it is let go");
        assert_eq!(looked_at.tag, 1);
        drop(looked_at);
        assert_eq!(put(4).unwrap(), first);
    }
}
