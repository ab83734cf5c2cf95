//! A place for a request that is in flight.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;

use super::sync::{AtomicBool, Ordering, UnsafeCell};

/// Empty, or filled with one value. Who fills and who takes are told apart by its owner.
pub(crate) struct Place<T> {
    value: UnsafeCell<MaybeUninit<T>>,
    /// Published with release after the value has left; read with acquire before another one comes in.
    is_filled: AtomicBool,
}

// SAFETY: a value moves between threads through the place and is never shared in it: filling and taking need the exclusive right
// to it, which their callers vouch for.
unsafe impl<T: Send> Send for Place<T> {}
// SAFETY: the same: of two threads that have the place, one at a time has the right to the value.
unsafe impl<T: Send> Sync for Place<T> {}

impl<T> Place<T> {
    pub(crate) fn empty() -> Self {
        Self { value: UnsafeCell::new(MaybeUninit::uninit()), is_filled: AtomicBool::new(false) }
    }

    /// One that is never empty.
    pub(crate) fn blocked() -> Self {
        Self { is_filled: AtomicBool::new(true), ..Self::empty() }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_filled.load(Ordering::Acquire)
    }

    /// Fills it: `write` does.
    ///
    /// # Safety
    ///
    /// It is empty, and nobody else fills it. `write` writes all of the value.
    #[inline(always)]
    pub(crate) unsafe fn fill_with(&self, write: impl FnOnce(&mut MaybeUninit<T>)) {
        // SAFETY: the caller vouches that nobody else fills it, and that it is empty: nobody reads it either, and nothing is left to drop.
        self.value.with_mut(|value| write(unsafe { &mut *value }));
        self.is_filled.store(true, Ordering::Relaxed);
    }

    /// The value, and with it the right to the place.
    ///
    /// # Safety
    ///
    /// It is filled, the filling happened before this, and nobody else takes it.
    #[inline(always)]
    pub(crate) unsafe fn take(&self) -> Taken<'_, T> {
        Taken { place: self }
    }
}

/// A value that was taken and still lies where it was: it need not move before somebody wants it. The place is empty when this is gone.
///
/// Invariant: the place is filled, what filled it happened before, and nobody else reads or empties it.
pub(crate) struct Taken<'a, T> {
    place: &'a Place<T>,
}

impl<T> Taken<'_, T> {
    /// The value. Only now the place is empty.
    #[inline(always)]
    pub(crate) fn into_inner(self) -> T {
        // SAFETY: all of the value is read, once.
        unsafe { self.empty_with(|value| value.read()) }
    }

    /// What `read` takes of the value. Only now the place is empty.
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
        // SAFETY: `Taken`: the place is filled, and the right to it is `self`'s, which is borrowed.
        self.place.value.with(|value| unsafe { (*value).assume_init_ref() })
    }
}

impl<T> Drop for Taken<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `Taken`: the place is filled, and the right to it is `self`'s, which ends. It is marked empty right after.
        self.place.value.with_mut(|value| unsafe { (*value).assume_init_drop() });
        self.place.is_filled.store(false, Ordering::Release);
    }
}
