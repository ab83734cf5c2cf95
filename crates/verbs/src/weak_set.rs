//! A set of weakly held values.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// A set of values that other owners keep alive. Its size is bounded by the number of values that
/// are alive at the same time.
pub(crate) struct WeakSet<T>(HashMap<usize, Weak<T>>);

impl<T> Default for WeakSet<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> WeakSet<T> {
    /// Inserts a value. A value that is already in the set stays.
    pub(crate) fn insert(&mut self, it: &Arc<T>) {
        if self.0.len() == self.0.capacity() {
            // Removes dead entries before the map would grow.
            self.0.retain(|_, it| it.strong_count() > 0);
        }
        self.0.insert(Arc::as_ptr(it).addr(), Arc::downgrade(it));
    }

    /// Returns the values that are still alive.
    pub(crate) fn into_kept(self) -> impl Iterator<Item = Arc<T>> {
        self.0.into_values().filter_map(|it| it.upgrade())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_that_is_kept_is_there_once() {
        let mut set = WeakSet::default();
        let kept: Vec<Arc<u32>> = (0..100).map(Arc::new).collect();
        for it in kept.iter().chain(&kept) {
            set.insert(it);
            set.insert(&Arc::new(1000));
        }
        let mut found: Vec<u32> = set.into_kept().map(|it| *it).collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..100));
    }

    #[test]
    fn those_that_are_gone_take_no_room() {
        let mut set = WeakSet::default();
        // Kept alive until the next one is inserted, so that no two have the same address.
        let mut last = Arc::new(0);
        for number in 0..10_000 {
            let next = Arc::new(number);
            set.insert(&next);
            last = next;
        }
        assert!(set.0.capacity() < 100, "{}", set.0.capacity());
        assert_eq!(set.into_kept().map(|it| *it).collect::<Vec<_>>(), [*last]);
    }

    #[test]
    fn nothing_is_looked_for_while_there_is_room() {
        let mut set = WeakSet::default();
        let kept = [Arc::new(1), Arc::new(2)];
        set.insert(&kept[0]);
        assert!(set.0.len() < set.0.capacity(), "there is room for one more");
        let [gone, stays] = kept;
        drop(gone);
        set.insert(&stays);
        assert_eq!(set.0.len(), 2);
    }
}
