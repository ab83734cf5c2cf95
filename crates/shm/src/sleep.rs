//! Wakes a side that sleeps, and only then.
//!
//! Each side has a word in which it says what it sleeps for. No wake-up is lost: one side stores the
//! word, and then looks at the ring; the other changes the ring, and then looks at the word. A
//! sequentially consistent fence lies between the two steps of each side, so at least one of them
//! sees what the other has stored.

use std::sync::atomic::Ordering;

use crate::words::Words;

/// Sleeps until something arrives.
pub(crate) const FOR_ENTRIES: u64 = 1;
/// Sleeps until the ring that it writes to has room.
pub(crate) const FOR_ROOM: u64 = 2;

/// Says that this side is about to sleep. It must look at the rings afterwards.
pub(crate) fn announce(words: &impl Words, at: usize, reasons: u64) {
    words.store(at, reasons, Ordering::Relaxed);
    words.fence();
}

/// Says that this side is awake.
pub(crate) fn retract(words: &impl Words, at: usize) {
    words.store(at, 0, Ordering::Relaxed);
}

/// Returns whether the other side has to be woken after a change that is of interest to those who
/// sleep for one of these reasons. The change must have been stored before.
#[inline(always)]
pub(crate) fn must_wake(words: &impl Words, at: usize, reasons: u64) -> bool {
    words.fence();
    // One who wakes is enough: the swap tells who.
    words.load(at, Ordering::Relaxed) & reasons != 0 && words.swap(at, 0, Ordering::Relaxed) != 0
}
