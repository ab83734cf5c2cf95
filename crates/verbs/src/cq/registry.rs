//! Whose requests complete on a completion queue.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::qp::queue::{Queue, SharedQueue};

/// The queues whose requests complete here.
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
}

/// Every source of a completion queue. Who polls works on a copy, so that polling waits for nobody who makes or
/// destroys queue pairs.
#[derive(Default)]
pub(crate) struct Registry {
    /// Counts the changes.
    version: AtomicU64,
    sources: Mutex<Vec<Source>>,
}

impl Registry {
    pub(crate) fn add(&self, source: Source) {
        self.lock().push(source);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Removes one of the sources of this number: a shared queue is one for each queue pair on it.
    pub(crate) fn remove(&self, number: u32) {
        let mut sources = self.lock();
        if let Some(index) = sources.iter().position(|source| source.number() == number) {
            sources.swap_remove(index);
        }
        drop(sources);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Source>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A copy of a registry, for looking up.
///
/// Numbers are given out in sequence, so the last bits of a number are a place of its own for most; the others take
/// the next free place.
#[derive(Default)]
pub(crate) struct Table {
    version: u64,
    places: Vec<Option<(u32, Source)>>,
}

impl Table {
    /// Copies the registry anew if it has changed.
    #[inline]
    pub(crate) fn follow(&mut self, registry: &Registry) {
        // Read before the copy: what changes after this is seen next time.
        let version = registry.version.load(Ordering::Acquire);
        if version != self.version {
            self.copy(registry, version);
        }
    }

    #[cold]
    fn copy(&mut self, registry: &Registry, version: u64) {
        let sources = registry.lock();
        // Never full: a search always ends at an empty place.
        let size = (2 * sources.len() + 1).next_power_of_two();
        self.places.clear();
        self.places.resize(size, None);
        for source in sources.iter() {
            let number = source.number();
            let mut place = number as usize & (size - 1);
            while self.places[place].as_ref().is_some_and(|(taken, _)| *taken != number) {
                place = (place + 1) & (size - 1);
            }
            self.places[place] = Some((number, source.clone()));
        }
        self.version = version;
    }

    /// The place of a source.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<usize> {
        let mask = self.places.len().checked_sub(1)?;
        let mut place = number as usize & mask;
        loop {
            match &self.places[place] {
                Some((found, _)) if *found == number => return Some(place),
                Some(_) => place = (place + 1) & mask,
                None => return None,
            }
        }
    }

    /// The source at a place that [`find`](Self::find) gave.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Option<&Source> {
        self.places.get(place)?.as_ref().map(|(_, source)| source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_follows_the_registry() {
        let registry = Registry::default();
        let mut table = Table::default();
        table.follow(&registry);
        assert_eq!(table.find(1), None);

        let queues: Vec<_> = (0..100).map(|_| Arc::new(Queue::new(1))).collect();
        for queue in &queues {
            registry.add(Source::Queue(Arc::clone(queue)));
        }
        table.follow(&registry);
        for queue in &queues {
            let place = table.find(queue.number).expect("it was added");
            assert!(matches!(table.get(place), Some(Source::Queue(found)) if Arc::ptr_eq(found, queue)));
        }
        registry.remove(queues[7].number);
        assert!(table.find(queues[7].number).is_some(), "a copy is a copy");
        table.follow(&registry);
        assert_eq!(table.find(queues[7].number), None);
        assert!(table.find(queues[8].number).is_some());
    }

    #[test]
    fn a_shared_queue_stays_until_its_last_queue_pair_is_gone() {
        let registry = Registry::default();
        let mut table = Table::default();
        let shared = Arc::new(SharedQueue::new(1));
        registry.add(Source::Shared(Arc::clone(&shared)));
        registry.add(Source::Shared(Arc::clone(&shared)));
        registry.remove(shared.number);
        table.follow(&registry);
        assert!(table.find(shared.number).is_some());
        registry.remove(shared.number);
        table.follow(&registry);
        assert!(table.find(shared.number).is_none());
    }
}
