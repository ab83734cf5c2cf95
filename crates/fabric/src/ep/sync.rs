//! The synchronisation types of the table of operations: atomics, a lock and cells. A model
//! (`model.rs`) uses those of loom instead, which tries every interleaving of threads and every
//! value that a load may see.

#[cfg(not(all(loom, test)))]
mod real {
    pub(in crate::ep) use parking_lot::{Mutex, MutexGuard};
    pub(in crate::ep) use std::sync::atomic::{AtomicU32, Ordering};

    /// A cell with the interface of loom's.
    pub(in crate::ep) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in crate::ep) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Accesses it for reading.
        #[inline(always)]
        pub(in crate::ep) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Accesses it for writing, and for taking out.
        #[inline(always)]
        pub(in crate::ep) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    #[inline(always)]
    pub(in crate::ep) fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
        mutex.lock()
    }

    /// Stores a value where other threads exchange it.
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
        mutex.lock().expect("no thread panics under the lock")
    }

    /// Loom lets an exchange read the value from before an earlier store. With two exchanges, one
    /// is always the first.
    pub(in crate::ep) fn store(atomic: &AtomicU32, value: u32, ordering: Ordering) {
        atomic.swap(value, ordering);
    }
}

#[cfg(all(loom, test))]
pub(super) use modelled::*;
#[cfg(not(all(loom, test)))]
pub(super) use real::*;
