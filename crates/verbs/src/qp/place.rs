//! A place for a work request in flight.
//!
//! Invariant: a place is filled and emptied by one thread at a time, as the callers of its unsafe
//! methods guarantee.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;

use super::sync::{AtomicBool, Ordering, UnsafeCell};

/// Empty, or filled with one value. Its owner decides which thread may fill or take.
pub(crate) struct Place<T> {
    value: UnsafeCell<MaybeUninit<T>>,
    /// Stored with Release after the value was moved out; loaded with Acquire before the next value
    /// is written.
    is_filled: AtomicBool,
}

// SAFETY: a value moves between threads through the place and is never shared in it: filling and
// taking need the exclusive right to the place, which the callers guarantee.
unsafe impl<T: Send> Send for Place<T> {}
// SAFETY: as for `Send`: one thread at a time has the right to the value.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> Place<T> {
    pub(crate) fn empty() -> Self {
        Self { value: UnsafeCell::new(MaybeUninit::uninit()), is_filled: AtomicBool::new(false) }
    }

    /// Returns a place that is never empty.
    pub(crate) fn blocked() -> Self {
        Self { is_filled: AtomicBool::new(true), ..Self::empty() }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_filled.load(Ordering::Acquire)
    }

    /// Fills the place by calling `write`.
    ///
    /// # Safety
    ///
    /// The place is empty, and nothing else fills it. `write` initialises the whole value.
    #[inline(always)]
    pub(crate) unsafe fn fill_with(&self, write: impl FnOnce(&mut MaybeUninit<T>)) {
        // SAFETY: the caller guarantees that nothing else fills it, and that it is empty, so
        // nothing reads it and no value is overwritten.
        self.value.with_mut(|value| write(unsafe { &mut *value }));
        self.is_filled.store(true, Ordering::Relaxed);
    }

    /// Takes the value, and with it the right to the place.
    ///
    /// # Safety
    ///
    /// The place is filled, the filling happened before this call, and nothing else takes it.
    #[inline(always)]
    pub(crate) unsafe fn take(&self) -> Taken<'_, T> {
        Taken { place: self }
    }
}

/// A value that was taken and is still in its place, so that it need not be moved before it is
/// used. The place becomes empty when this is gone.
///
/// Invariant: the place is filled, the filling happened before, and nothing else reads or empties
/// it.
pub(crate) struct Taken<'a, T> {
    place: &'a Place<T>,
}

impl<T> Taken<'_, T> {
    /// Moves the value out. Only then is the place empty.
    #[inline(always)]
    pub(crate) fn into_inner(self) -> T {
        // SAFETY: the whole value is read, once.
        unsafe { self.empty_with(|value| value.read()) }
    }

    /// Calls `read` to move parts of the value out. Only then is the place empty.
    ///
    /// # Safety
    ///
    /// `read` reads or drops each part of the value once.
    #[inline(always)]
    pub(crate) unsafe fn empty_with<R>(self, read: impl FnOnce(*mut T) -> R) -> R {
        let place = ManuallyDrop::new(self).place;
        let part = place.value.with_mut(|value| read(value.cast()));
        place.is_filled.store(false, Ordering::Release);
        part
    }
}

impl<T> Deref for Taken<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `Taken`: the place is filled, and `self`, which is borrowed, has the right to it.
        self.place.value.with(|value| unsafe { (*value).assume_init_ref() })
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `Taken`: the place is filled, and `self`, which ends, has the right to it. It is
        // marked empty directly afterwards.
        self.place.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
        self.place.is_filled.store(false, Ordering::Release);
    }
}
