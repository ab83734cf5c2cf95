//! Whose completions a queue holds.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ep::slots::{Number, Slots};

/// The tables of all endpoints that complete to a queue, those that are gone included for as long as the queue may hold something of
/// them.
///
/// A closed endpoint makes no more completions. So when the queue was found empty after the close, nothing of it is left,
/// and its table may go. Until then its addresses are nobody else's, and what still comes for it is known to be late.
#[derive(Default)]
pub(crate) struct Registry {
    tables: Mutex<Tables>,
    /// Changed with the tables, so that a poller looks at them only when there is something new.
    version: AtomicU64,
}

#[derive(Default)]
struct Tables {
    live: Vec<Arc<Slots>>,
    dying: Vec<Arc<Slots>>,
}

impl Registry {
    pub(crate) fn add(&self, slots: &Arc<Slots>) {
        self.change(|tables| tables.live.push(Arc::clone(slots)));
    }

    /// The endpoint is closed; completions of it that are in the queue find nothing.
    pub(crate) fn retire(&self, slots: &Arc<Slots>) {
        self.change(|tables| {
            tables.live.retain(|live| !Arc::ptr_eq(live, slots));
            tables.dying.push(Arc::clone(slots));
        });
    }

    /// How many tables are dying: to be asked before a read that may find the queue empty.
    pub(crate) fn dying(&self) -> usize {
        self.lock().dying.len()
    }

    /// Lets go of those that were dying before the queue was found empty.
    pub(crate) fn bury(&self, count: usize) {
        if count > 0 {
            self.change(|tables| drop(tables.dying.drain(..count)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Tables)) {
        let mut tables = self.lock();
        change(&mut tables);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // A panic under the lock leaves lists that are whole.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A poller's copy of the tables, in the order of their addresses, so that looking one up takes no lock.
#[derive(Default)]
pub(crate) struct Copied {
    tables: Vec<Arc<Slots>>,
    version: Option<u64>,
}

impl Copied {
    pub(crate) fn follow(&mut self, registry: &Registry) {
        let version = registry.version.load(Ordering::Acquire);
        if self.version == Some(version) {
            return;
        }
        let tables = registry.lock();
        self.tables.clear();
        self.tables.extend(tables.live.iter().chain(&tables.dying).cloned());
        drop(tables);
        self.tables.sort_by_key(|table| table.start());
        self.version = Some(version);
    }

    /// The table and place of a context.
    #[inline]
    pub(crate) fn find(&self, context: *mut c_void) -> Option<(&Slots, Number)> {
        let behind = self.tables.partition_point(|table| table.start() <= context.addr());
        let table = self.tables.get(behind.checked_sub(1)?)?;
        Some((table, table.find(context)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OperationKind;
    use crate::ep::slots::InFlight;
    use farreach_memory::Buffers;

    fn table() -> (Arc<Slots>, *mut c_void) {
        let slots = Arc::new(Slots::new(4));
        let kind = OperationKind::Receive;
        let operation = InFlight { tag: 0, kind, is_delivery: false, buffers: Buffers::None, peer: None };
        let number = slots.put(operation).unwrap();
        let context = slots.context(number);
        (slots, context)
    }

    #[test]
    fn a_context_is_found_in_its_table_until_the_queue_was_empty() {
        let registry = Registry::default();
        let tables = [(); 5].map(|()| table());
        let mut copied = Copied::default();
        for (slots, _) in &tables {
            registry.add(slots);
        }
        copied.follow(&registry);
        for (slots, context) in &tables {
            let (found, _) = copied.find(*context).unwrap();
            assert!(std::ptr::eq(found, &raw const **slots));
        }
        assert!(copied.find(std::ptr::null_mut()).is_none());

        let (slots, context) = &tables[2];
        registry.retire(slots);
        let dying = registry.dying();
        copied.follow(&registry);
        assert!(copied.find(*context).is_some(), "it may still be in the queue");
        registry.bury(dying);
        copied.follow(&registry);
        assert!(copied.find(*context).is_none());
        assert_eq!(Arc::strong_count(slots), 1, "nobody keeps it");
    }
}
