//! What a table of operations is made of: atomics, a lock and cells. A model (`model.rs`) has those of loom instead, which
//! tries every order in which threads can run and every value that a load may see.

#[cfg(not(all(loom, test)))]
mod real {
    pub(in crate::ep) use parking_lot::{Mutex, MutexGuard};
    pub(in crate::ep) use std::sync::atomic::{AtomicU32, Ordering};

    /// A cell with loom's way of being reached.
    pub(in crate::ep) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in crate::ep) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// For reading.
        #[inline(always)]
        pub(in crate::ep) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// For writing, and for taking out.
        #[inline(always)]
        pub(in crate::ep) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    #[inline(always)]
    pub(in crate::ep) fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
        mutex.lock()
    }

    /// Stores a value where others exchange it.
    #[inline(always)]
    pub(in crate::ep) fn store(atomic: &AtomicU32, value: u32, ordering: Ordering) {
        atomic.store(value, ordering);
    }
}

#[cfg(all(loom, test))]
mod modelled {
    pub(in crate::ep) use loom::cell::UnsafeCell;
    pub(in crate::ep) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(in crate::ep) use loom::sync::{Mutex, MutexGuard};

    pub(in crate::ep) fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
        mutex.lock().expect("nobody panics under it")
    }

    /// Loom lets an exchange read what was there before a store that came before it. Of two exchanges one is the first.
    pub(in crate::ep) fn store(atomic: &AtomicU32, value: u32, ordering: Ordering) {
        atomic.swap(value, ordering);
    }
}

#[cfg(all(loom, test))]
pub(super) use modelled::*;
#[cfg(not(all(loom, test)))]
pub(super) use real::*;
