//! Which file holds which bytes of an allocation.
//!
//! Invariant: extents are sorted, do not overlap, and cover the whole allocation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::mem_file::MemFile;

/// The files behind an allocation. It begins with one file; an exchange of pages adds others.
#[derive(Debug)]
pub(crate) struct Extents(Mutex<State>);

#[derive(Debug)]
pub(crate) struct State {
    list: Vec<Extent>,
    /// The ranges whose pages are being exchanged: offset and length. No two of them overlap.
    exchanging: Vec<(usize, usize)>,
}

/// A part of an allocation that one part of one file holds.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    /// The offset in the allocation.
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) file: Arc<MemFile>,
    /// The offset in the file.
    pub(crate) file_offset: u64,
}

impl Extent {
    fn end(&self) -> usize {
        self.start + self.len
    }

    /// Returns the part of it within `start..end`, if there is one.
    fn part(&self, start: usize, end: usize) -> Option<Self> {
        let (start, end) = (start.max(self.start), end.min(self.end()));
        (start < end).then(|| Self {
            start,
            len: end - start,
            file: Arc::clone(&self.file),
            file_offset: self.file_offset + (start - self.start) as u64,
        })
    }

    /// Returns whether `next` continues it in the same file.
    fn continues_with(&self, next: &Self) -> bool {
        self.file.id() == next.file.id() && self.file_offset + self.len as u64 == next.file_offset
    }
}

impl Extents {
    /// Returns the extents of an allocation that one file holds.
    pub(crate) fn whole(file: Arc<MemFile>) -> Self {
        let extent = Extent { start: 0, len: file.len(), file, file_offset: 0 };
        Self(Mutex::new(State { list: vec![extent], exchanging: Vec::new() }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // Each method leaves the list consistent before it can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the extents that hold a range, cut to it.
    pub(crate) fn of(&self, start: usize, len: usize) -> Vec<Extent> {
        self.list.iter().filter_map(|extent| extent.part(start, start + len)).collect()
    }

    /// Replaces what holds a range.
    pub(crate) fn replace(&mut self, new: Extent) {
        let mut list = Vec::with_capacity(self.list.len() + 2);
        let before = self.list.iter().filter_map(|extent| extent.part(0, new.start));
        let after = self.list.iter().filter_map(|extent| extent.part(new.end(), usize::MAX));
        for extent in before.chain([new.clone()]).chain(after) {
            match list.last_mut() {
                Some(last) if Extent::continues_with(last, &extent) => last.len += extent.len,
                _ => list.push(extent),
            }
        }
        self.list = list;
    }

    /// Marks a range whose pages are about to be exchanged.
    pub(crate) fn begin_exchange(&mut self, start: usize, len: usize) {
        assert!(!self.is_exchanging(start, len), "an exchange owns the keys of its range");
        self.exchanging.push((start, len));
    }

    pub(crate) fn end_exchange(&mut self, start: usize, len: usize) {
        self.exchanging.retain(|range| *range != (start, len));
    }

    pub(crate) fn is_exchanging(&self, start: usize, len: usize) -> bool {
        self.exchanging.iter().any(|(from, long)| *from < start + len && start < from + long)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn file(pages: usize) -> Arc<MemFile> {
        Arc::new(MemFile::create(pages * PAGE, false).unwrap())
    }

    /// Returns start, length, file and offset in the file, in pages.
    fn told(state: &State) -> Vec<(usize, usize, u64, usize)> {
        let extent = |it: &Extent| {
            (it.start / PAGE, it.len / PAGE, it.file.id(), usize::try_from(it.file_offset).unwrap() / PAGE)
        };
        state.list.iter().map(extent).collect()
    }

    #[test]
    fn what_is_replaced_in_steps_becomes_one_extent() {
        let (old, new) = (file(10), file(4));
        let extents = Extents::whole(Arc::clone(&old));
        let mut state = extents.lock();
        for step in [0, 2] {
            let start = (3 + step) * PAGE;
            let file_offset = (step * PAGE) as u64;
            state.replace(Extent { start, len: 2 * PAGE, file: Arc::clone(&new), file_offset });
        }
        let expected = [(0, 3, old.id(), 0), (3, 4, new.id(), 0), (7, 3, old.id(), 7)];
        assert_eq!(told(&state), expected);
        assert_eq!(state.of(3 * PAGE, 4 * PAGE).len(), 1);
        assert_eq!(state.of(2 * PAGE, 2 * PAGE).len(), 2);
        let part = &state.of(8 * PAGE, PAGE)[0];
        assert_eq!((part.start, part.len, part.file_offset), (8 * PAGE, PAGE, 8 * PAGE as u64));
    }

    #[test]
    fn the_whole_may_be_replaced() {
        let (old, new) = (file(3), file(3));
        let extents = Extents::whole(old);
        let mut state = extents.lock();
        state.replace(Extent { start: 0, len: 3 * PAGE, file: Arc::clone(&new), file_offset: 0 });
        assert_eq!(told(&state), [(0, 3, new.id(), 0)]);
    }

    #[test]
    fn ranges_that_are_exchanged_are_known() {
        let extents = Extents::whole(file(5));
        let mut state = extents.lock();
        state.begin_exchange(PAGE, PAGE);
        state.begin_exchange(3 * PAGE, PAGE);
        assert!(state.is_exchanging(0, PAGE + 1) && state.is_exchanging(2 * PAGE - 1, 1));
        assert!(!state.is_exchanging(0, PAGE) && !state.is_exchanging(2 * PAGE, PAGE));
        state.end_exchange(PAGE, PAGE);
        assert!(!state.is_exchanging(0, 3 * PAGE) && state.is_exchanging(0, 4 * PAGE));
    }
}
