//! The requests of a queue that the device has, and the numbers by which it names them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ring::Ring;
use super::{Capacity, Parents};
use crate::ah::AddressHandle;
use crate::cq::{CompletionQueue, Source, WorkKind};
use crate::wr::Buffers;

/// A request that the device has.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) tag: u64,
    pub(crate) kind: WorkKind,
    /// Whose bytes nobody can name until the completion brings them back.
    pub(crate) buffers: Buffers,
    /// Must not be destroyed while the request is under way.
    pub(crate) _ah: Option<AddressHandle>,
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
#[derive(Default)]
pub(crate) struct Flight {
    send: Option<Attached<Arc<Queue>>>,
    recv: Option<Attached<Arc<Queue>>>,
    shared: Option<Attached<u32>>,
}

/// What a completion queue knows of.
struct Attached<T> {
    queue: T,
    number: u32,
    cq: CompletionQueue,
}

impl Flight {
    /// Queues as deep as was asked for. The device's may be deeper, which then stays unused: so no more can be in flight than the user
    /// has made room for in the completion queues.
    pub(super) fn new(parents: &Parents, capacity: Capacity) -> Self {
        let attach = |cq: &Option<CompletionQueue>, depth: u32| {
            let queue = Arc::new(Queue::new(depth));
            let (number, cq) = (queue.number, cq.clone()?);
            cq.registry().add(Source::Queue(Arc::clone(&queue)));
            Some(Attached { queue, number, cq })
        };
        let mut flight = Self { send: attach(&parents.send_cq, capacity.max_send_wr), ..Self::default() };
        match (&parents.srq, &parents.recv_cq) {
            (None, cq) => flight.recv = attach(cq, capacity.max_recv_wr),
            (Some(srq), Some(cq)) => {
                let (queue, cq) = (Arc::clone(srq.queue()), cq.clone());
                let number = queue.number;
                cq.registry().add(Source::Shared(queue));
                flight.shared = Some(Attached { queue: number, number, cq });
            }
            (Some(_), None) => {}
        }
        flight
    }

    #[inline]
    pub(super) fn send(&self) -> Option<&Queue> {
        self.send.as_ref().map(|attached| &*attached.queue)
    }

    #[inline]
    pub(super) fn recv(&self) -> Option<&Queue> {
        self.recv.as_ref().map(|attached| &*attached.queue)
    }

    /// Both queues, for whoever must keep them.
    pub(super) fn queues(&self) -> [Option<Arc<Queue>>; 2] {
        [&self.send, &self.recv].map(|queue| queue.as_ref().map(|attached| Arc::clone(&attached.queue)))
    }

    /// The buffers of all requests that were in flight when the queue pair was destroyed.
    pub(super) fn take_back(&self) -> Vec<Buffers> {
        let mut buffers = Vec::new();
        for queue in [self.send(), self.recv()].into_iter().flatten() {
            let mut retirer = queue.ring.retirer();
            while let Some((_, request)) = retirer.retire_next() {
                buffers.push(request.buffers);
            }
        }
        buffers
    }
}

impl<T> Drop for Attached<T> {
    fn drop(&mut self) {
        self.cq.registry().remove(self.number);
    }
}

/// A shared receive queue: its requests complete in any order, at whichever queue pair takes them.
pub(crate) struct SharedQueue {
    pub(crate) number: u32,
    places: Mutex<Places>,
}

/// Where the requests of a shared queue are, by the numbers that the device has of them.
#[derive(Default)]
pub(crate) struct Places {
    requests: Vec<Option<InFlight>>,
    free: Vec<u32>,
}

impl SharedQueue {
    pub(crate) fn new(depth: u32) -> Self {
        // All places at once: posting allocates nothing.
        let requests = (0..depth).map(|_| None).collect();
        let free = (0..depth).rev().collect();
        Self { number: next_number(), places: Mutex::new(Places { requests, free }) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Places> {
        // A panic under the lock leaves at worst a place that is neither free nor filled.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    pub(crate) fn depth(&self) -> u32 {
        self.requests.len() as u32
    }

    /// Puts a request in flight and gives its number; a full queue hands it back.
    pub(crate) fn put(&mut self, request: InFlight) -> Result<u32, InFlight> {
        let Some(number) = self.free.pop() else { return Err(request) };
        self.requests[number as usize] = Some(request);
        Ok(number)
    }

    /// The request of this number, if it is in flight.
    pub(crate) fn take(&mut self, number: u32) -> Option<InFlight> {
        let request = self.requests.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(request)
    }
}

/// How the device names a request: by its queue, and by its number there. Never a pointer.
///
/// Queue 0 is nobody's: who posts by the raw door numbers his requests below 2^32.
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
        InFlight { tag, kind: WorkKind::Recv, buffers: Buffers::None, _ah: None }
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
        let first = queue.lock().put(request(1)).unwrap();
        let second = queue.lock().put(request(2)).unwrap();
        assert_eq!(queue.lock().put(request(3)).unwrap_err().tag, 3);
        assert_eq!(queue.lock().take(second).unwrap().tag, 2);
        assert!(queue.lock().take(second).is_none(), "it is not in flight any more");
        assert!(queue.lock().take(99).is_none());
        let third = queue.lock().put(request(3)).unwrap();
        assert_eq!(third, second);
        assert_eq!(queue.lock().take(first).unwrap().tag, 1);
    }
}
