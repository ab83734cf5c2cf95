//! The tables of the endpoints that complete to a queue.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ep::slots::{Found, Slots};

/// The tables of all endpoints that complete to a queue, including closed ones as long as the queue
/// may hold completions of them.
///
/// A closed endpoint produces no more completions. Once the queue was found empty after the close,
/// no completion of it is left, and its table may be freed. Until then its addresses are not
/// reused, and completions for it are known to be late.
#[derive(Default)]
pub(crate) struct Registry {
    tables: Mutex<Tables>,
    /// Incremented with each change of the tables, so that a poller copies them only if there is a
    /// change.
    version: AtomicU64,
    /// The number of tables that are dying, readable without the lock.
    dying: AtomicUsize,
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

    /// Handles a closed endpoint. Completions of it that are in the queue find nothing.
    pub(crate) fn retire(&self, slots: &Arc<Slots>) {
        self.change(|tables| {
            tables.live.retain(|live| !Arc::ptr_eq(live, slots));
            tables.dying.push(Arc::clone(slots));
        });
    }

    /// Returns the number of tables that are dying. Call it before a read that may find the queue
    /// empty.
    #[inline]
    pub(crate) fn dying(&self) -> usize {
        self.dying.load(Ordering::Acquire)
    }

    /// Frees the tables that were dying before the queue was found empty.
    #[inline]
    pub(crate) fn bury(&self, count: usize) {
        if count > 0 {
            self.change(|tables| drop(tables.dying.drain(..count)));
        }
    }

    fn change(&self, change: impl FnOnce(&mut Tables)) {
        let mut tables = self.lock();
        change(&mut tables);
        self.dying.store(tables.dying.len(), Ordering::Release);
        self.version.fetch_add(1, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // A panic under the lock leaves consistent lists.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A poller's copy of the tables, sorted by address, so that a lookup takes no lock.
pub(crate) struct Copied {
    tables: Vec<Arc<Slots>>,
    /// The table of the last completion, which likely has the next one, too. It is in one of the
    /// two lists, or is `empty`.
    recent: NonNull<Slots>,
    /// An empty table, so that `recent` is always valid.
    empty: Arc<Slots>,
    version: Option<u64>,
    /// Tables of earlier copies: returned completions still refer to them.
    earlier: Vec<Arc<Slots>>,
}

// SAFETY: of its fields only `recent` is not `Send` by itself. It points into a table that one of
// the lists, or `empty`, holds, and tables are `Sync`.
unsafe impl Send for Copied {}

impl Copied {
    pub(crate) fn new() -> Self {
        let empty = Arc::new(Slots::new(0));
        let recent = NonNull::from(&*empty);
        Self { tables: Vec::new(), recent, empty, version: None, earlier: Vec::new() }
    }

    /// Copies the tables again if they have changed.
    #[inline]
    pub(crate) fn follow(&mut self, registry: &Registry) {
        let version = registry.version.load(Ordering::Acquire);
        if self.version != Some(version) {
            self.copy(registry, version);
        }
    }

    #[cold]
    fn copy(&mut self, registry: &Registry, version: u64) {
        self.earlier.append(&mut self.tables);
        let tables = registry.lock();
        self.tables.extend(tables.live.iter().chain(&tables.dying).cloned());
        drop(tables);
        self.tables.sort_by_key(|table| table.start());
        (self.recent, self.version) = (NonNull::from(&*self.empty), Some(version));
    }

    /// Drops earlier copies. No result of `find` is in use any more.
    #[inline]
    pub(crate) fn forget_earlier(&mut self) {
        if !self.earlier.is_empty() {
            self.earlier.clear();
        }
    }

    /// Returns the place of a context.
    ///
    /// # Safety
    ///
    /// The result, and everything taken from it, is dropped before [earlier copies are
    /// dropped](Self::forget_earlier), and before `self` is.
    #[inline(always)]
    pub(crate) unsafe fn find<'a>(&mut self, registry: &Registry, context: *mut c_void) -> Option<Found<'a>> {
        // SAFETY: `recent` is in `tables` or is `empty`: code that changes `tables` also sets
        // `recent`. Tables that leave `tables` go to `earlier`, and stay there until
        // `forget_earlier`, before which the caller drops the result.
        if let Some(found) = unsafe { self.recent.as_ref() }.find(context) {
            return Some(found);
        }
        let table = self.look_up(registry, context)?;
        // SAFETY: as above. `look_up` has made it the recent one.
        unsafe { table.as_ref() }.find(context)
    }

    /// Returns the table that has a context, and makes it the recent one.
    #[inline(never)]
    fn look_up(&mut self, registry: &Registry, context: *mut c_void) -> Option<NonNull<Slots>> {
        for _ in 0..2 {
            let behind = self.tables.partition_point(|table| table.start() <= context.addr());
            let table = behind.checked_sub(1).and_then(|index| self.tables.get(index));
            if let Some(table) = table.filter(|table| table.find(context).is_some()) {
                self.recent = NonNull::from(&**table);
                return Some(self.recent);
            }
            // An endpoint may have been opened, and have completed an operation, after the tables
            // were copied.
            self.follow(registry);
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::OperationKind;
    use farreach_memory::Buffers;

    fn table() -> Arc<Slots> {
        Arc::new(Slots::new(4))
    }

    /// Puts an operation in flight. Returns its context.
    fn put(slots: &Slots) -> *mut c_void {
        // SAFETY: the buffers and the peer are empty, which may be duplicated.
        let slot = unsafe { slots.put(false, 0, OperationKind::Receive, false, &Buffers::None, None) };
        slot.unwrap().context()
    }

    /// Returns whether the operation of a context was in flight, or `None` if the context is
    /// unknown.
    fn take(copied: &mut Copied, registry: &Registry, context: *mut c_void) -> Option<bool> {
        // SAFETY: the result is dropped at the end of this function, which does not drop earlier
        // copies.
        unsafe { copied.find(registry, context) }.map(|found| found.take().is_some())
    }

    #[test]
    fn a_context_is_found_in_its_table_until_the_queue_was_empty() {
        let registry = Registry::default();
        let tables = [(); 5].map(|()| table());
        let mut copied = Copied::new();
        for slots in &tables {
            registry.add(slots);
        }
        for slots in tables.iter().chain(&tables) {
            let context = put(slots);
            assert_eq!(take(&mut copied, &registry, context), Some(true));
            assert_eq!(take(&mut copied, &registry, context), Some(false), "not twice");
            assert_eq!(slots.in_flight(), 0);
        }
        assert_eq!(take(&mut copied, &registry, std::ptr::null_mut()), None);

        let (slots, context) = (&tables[2], put(&tables[2]));
        registry.retire(slots);
        drop(slots.take_all());
        let dying = registry.dying();
        copied.follow(&registry);
        assert_eq!(take(&mut copied, &registry, context), Some(false), "it may still be in the queue");
        registry.bury(dying);
        copied.follow(&registry);
        assert_eq!(take(&mut copied, &registry, context), None);
        copied.forget_earlier();
        assert_eq!(Arc::strong_count(slots), 1, "nobody keeps it");
    }

    #[test]
    fn a_table_that_is_gone_stays_until_earlier_copies_are_forgotten() {
        let registry = Registry::default();
        let (slots, mut copied) = (table(), Copied::new());
        registry.add(&slots);
        let context = put(&slots);
        // SAFETY: `take` below consumes it, before `forget_earlier` is called.
        let found = unsafe { copied.find(&registry, context) }.unwrap();
        registry.retire(&slots);
        registry.bury(1);
        copied.follow(&registry);
        assert_eq!(Arc::strong_count(&slots), 2, "for what was found");
        assert!(found.take().is_some());
        copied.forget_earlier();
        assert_eq!(Arc::strong_count(&slots), 1);
    }

    #[test]
    fn only_those_that_were_dying_are_buried() {
        let registry = Registry::default();
        let tables = [(); 3].map(|()| table());
        tables.iter().for_each(|slots| registry.add(slots));
        assert_eq!(registry.dying(), 0);
        registry.retire(&tables[0]);
        registry.retire(&tables[1]);
        let dying = registry.dying();
        assert_eq!(dying, 2);
        registry.retire(&tables[2]);
        registry.bury(dying);
        assert_eq!((registry.dying(), tables.map(|slots| Arc::strong_count(&slots))), (1, [1, 1, 2]));
    }

    /// It is called with each poll that finds the queue empty.
    #[test]
    fn nobody_copies_the_tables_where_nothing_was_dying() {
        let registry = Registry::default();
        let before = registry.version.load(Ordering::Acquire);
        registry.bury(registry.dying());
        assert_eq!(registry.version.load(Ordering::Acquire), before);
    }

    #[test]
    fn a_table_that_is_new_is_found_by_its_first_completion() {
        let registry = Registry::default();
        let mut copied = Copied::new();
        copied.follow(&registry);
        let slots = table();
        registry.add(&slots);
        assert_eq!(take(&mut copied, &registry, put(&slots)), Some(true));
    }
}
