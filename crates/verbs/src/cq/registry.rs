//! The queues whose work requests complete on a completion queue.
//!
//! Invariant: the depths of all registered queues together do not exceed the depth of the
//! completion queue, so it cannot overflow.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::qp::queue::{Queue, SharedQueue};

/// A queue whose work requests complete here.
#[derive(Clone)]
pub(crate) enum Source {
    Queue(Arc<Queue>),
    Shared(Arc<SharedQueue>),
}

impl Source {
    fn number(&self) -> u32 {
        match self {
            Self::Queue(queue) => queue.number,
            Self::Shared(queue) => queue.number,
        }
    }

    /// Returns the number of work requests that it can have in flight.
    fn depth(&self) -> u32 {
        match self {
            Self::Queue(queue) => queue.ring.depth(),
            Self::Shared(queue) => queue.depth(),
        }
    }
}

/// All sources of a completion queue. A poller uses a copy, so that polling does not wait for
/// threads that create or destroy queue pairs.
#[derive(Default)]
pub(crate) struct Registry {
    /// Counts changes.
    version: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    sources: Vec<Source>,
    /// The number of work requests that all sources together can have in flight. Each may have a
    /// completion.
    credits: u64,
}

impl Known {
    fn has(&self, number: u32) -> bool {
        self.sources.iter().any(|source| source.number() == number)
    }
}

impl Registry {
    /// Adds a source, if a completion queue of `depth` has room for everything that can be in
    /// flight. Otherwise returns the room that is needed.
    ///
    /// An overflowing queue would lose completions, and with them the buffers of their work
    /// requests.
    pub(crate) fn add(&self, source: Source, depth: u32) -> Result<(), u64> {
        let mut known = self.lock();
        // A shared queue is registered once for each of its queue pairs, but its work requests
        // count once.
        let own = if known.has(source.number()) { 0 } else { u64::from(source.depth()) };
        let needed = known.credits + own;
        if needed > u64::from(depth) {
            return Err(needed);
        }
        known.credits = needed;
        known.sources.push(source);
        drop(known);
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Removes one source with this number. A shared queue has one for each of its queue pairs.
    pub(crate) fn remove(&self, number: u32) {
        let mut known = self.lock();
        if let Some(index) = known.sources.iter().position(|source| source.number() == number) {
            let source = known.sources.swap_remove(index);
            if !known.has(number) {
                known.credits -= u64::from(source.depth());
            }
        }
        drop(known);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of completions that need room.
    pub(crate) fn credits(&self) -> u64 {
        self.lock().credits
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of a registry, for lookups: a hash table with open addressing.
///
/// Numbers are assigned in sequence, so the low bits of a number are usually a place of its own.
/// Otherwise the next free place is used.
pub(crate) struct Table {
    version: u64,
    /// The number of places, which is a power of two, minus one.
    mask: u32,
    /// By place: the number of the queue, or 0, which is not a queue's number.
    numbers: Box<[u32]>,
    sources: Box<[Option<Source>]>,
    /// Earlier copies. Completions that point into their queues may still be in use.
    earlier: Vec<Box<[Option<Source>]>>,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self { version: 0, mask: 0, numbers: [0].into(), sources: [None].into(), earlier: Vec::new() }
    }

    /// Drops earlier copies. The caller guarantees that no completion of theirs is left.
    #[inline]
    pub(crate) fn forget_earlier(&mut self) {
        if !self.earlier.is_empty() {
            self.earlier.clear();
        }
    }

    /// Copies the registry again if it has changed.
    #[inline]
    pub(crate) fn follow(&mut self, registry: &Registry) {
        // Read before the copy: a later change is seen next time.
        let version = registry.version.load(Ordering::Acquire);
        if version != self.version {
            self.copy(registry, version);
        }
    }

    #[cold]
    fn copy(&mut self, registry: &Registry, version: u64) {
        let sources = &registry.lock().sources;
        // Never full, so a search always ends at an empty place.
        let size = (2 * sources.len() + 1).next_power_of_two();
        self.mask = size as u32 - 1;
        self.numbers = vec![0; size].into();
        self.earlier.push(std::mem::replace(&mut self.sources, vec![None; size].into()));
        for source in sources.iter() {
            let number = source.number();
            let mut place = number & self.mask;
            while ![0, number].contains(&self.numbers[place as usize]) {
                place = (place + 1) & self.mask;
            }
            self.numbers[place as usize] = number;
            self.sources[place as usize] = Some(source.clone());
        }
        self.version = version;
    }

    /// Returns the source with this number. It does not move until earlier copies are dropped.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<NonNull<Source>> {
        let mut place = number & self.mask;
        loop {
            // SAFETY: `new` and `copy` make both arrays of `mask + 1` entries, and `place` is
            // masked.
            let found = unsafe { *self.numbers.get_unchecked(place as usize) };
            if found == number && number != 0 {
                // SAFETY: the place is in bounds, as for the numbers. Where `copy` stores a number,
                // which is never 0, it stores the source too.
                let source =
                    unsafe { self.sources.get_unchecked(place as usize).as_ref().unwrap_unchecked() };
                return Some(NonNull::from(source));
            }
            if found == 0 {
                return None;
            }
            place = (place + 1) & self.mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_follows_the_registry() {
        let registry = Registry::default();
        let mut table = Table::new();
        table.follow(&registry);
        assert!(table.find(1).is_none() && table.find(0).is_none());

        let queues: Vec<_> = (0..100).map(|_| Arc::new(Queue::new(1))).collect();
        for queue in &queues {
            registry.add(Source::Queue(Arc::clone(queue)), 100).unwrap();
        }
        table.follow(&registry);
        for queue in &queues {
            let found = table.find(queue.number).expect("it was added");
            // SAFETY: a source does not move until earlier copies are dropped.
            assert!(matches!(unsafe { found.as_ref() }, Source::Queue(found) if Arc::ptr_eq(found, queue)));
        }
        registry.remove(queues[7].number);
        assert!(table.find(queues[7].number).is_some(), "the copy is unchanged");
        table.follow(&registry);
        assert!(table.find(queues[7].number).is_none());
        assert!(table.find(queues[8].number).is_some());
    }

    /// Three sources have a table of eight places, whose last one these numbers share.
    #[test]
    fn numbers_that_share_a_place_are_found() {
        let (registry, mut table) = (Registry::default(), Table::new());
        let queues = std::iter::repeat_with(|| Arc::new(Queue::new(1)));
        let queues: Vec<_> = queues.filter(|queue| queue.number % 8 == 7).take(3).collect();
        for queue in &queues {
            registry.add(Source::Queue(Arc::clone(queue)), 3).unwrap();
        }
        table.follow(&registry);
        assert_eq!(table.mask, 7);
        for queue in &queues {
            let found = table.find(queue.number).expect("it was added");
            // SAFETY: a source stays where it is until earlier copies are forgotten.
            assert!(matches!(unsafe { found.as_ref() }, Source::Queue(found) if Arc::ptr_eq(found, queue)));
        }
        assert!(table.find(queues[0].number + 1).is_none(), "that place is another's");
    }

    #[test]
    fn a_shared_queue_stays_until_its_last_queue_pair_is_gone() {
        let registry = Registry::default();
        let mut table = Table::new();
        let shared = Arc::new(SharedQueue::new(1));
        registry.add(Source::Shared(Arc::clone(&shared)), 1).unwrap();
        registry.add(Source::Shared(Arc::clone(&shared)), 1).unwrap();
        registry.remove(shared.number);
        table.follow(&registry);
        assert!(table.find(shared.number).is_some());
        registry.remove(shared.number);
        table.follow(&registry);
        assert!(table.find(shared.number).is_none());
    }

    /// Completions that are still in use point into their queue.
    #[test]
    fn a_queue_that_is_gone_stays_until_earlier_copies_are_forgotten() {
        let (registry, mut table) = (Registry::default(), Table::new());
        let queue = Arc::new(Queue::new(1));
        let (number, watch) = (queue.number, Arc::downgrade(&queue));
        registry.add(Source::Queue(queue), 1).unwrap();
        table.follow(&registry);
        registry.remove(number);
        assert!(watch.upgrade().is_some(), "the copy has it");
        table.follow(&registry);
        assert!(watch.upgrade().is_some(), "an earlier copy has it");
        table.forget_earlier();
        assert!(watch.upgrade().is_none());
    }

    #[test]
    fn no_more_can_be_in_flight_than_there_is_room_for() {
        let registry = Registry::default();
        let [first, second, third] = [10, 6, 1].map(|depth| Arc::new(Queue::new(depth)));
        registry.add(Source::Queue(Arc::clone(&first)), 16).unwrap();
        registry.add(Source::Queue(second), 16).unwrap();
        assert_eq!(registry.add(Source::Queue(Arc::clone(&third)), 16), Err(17));
        assert_eq!(registry.credits(), 16);
        registry.remove(first.number);
        registry.add(Source::Queue(third), 16).unwrap();
        assert_eq!(registry.credits(), 7);
    }
}
