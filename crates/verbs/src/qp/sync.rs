//! The atomics, locks and cells of a queue's places. Under loom (`model.rs`) they are replaced by
//! loom's, which tries every order of threads and every value that a load may see.

#[cfg(not(all(loom, test)))]
mod real {
    pub(in crate::qp) use parking_lot::{Mutex, MutexGuard};
    pub(in crate::qp) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    /// A cell with the interface of loom's.
    pub(in crate::qp) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in crate::qp) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `read` with a pointer for reading.
        #[inline(always)]
        pub(in crate::qp) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Calls `write` with a pointer for writing.
        #[inline(always)]
        pub(in crate::qp) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }

    #[inline(always)]
    pub(in crate::qp) fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
        mutex.lock()
    }
}

#[cfg(all(loom, test))]
mod modelled {
    pub(in crate::qp) use loom::cell::UnsafeCell;
    pub(in crate::qp) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    pub(in crate::qp) use loom::sync::{Mutex, MutexGuard};

    pub(in crate::qp) fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
        mutex.lock().expect("no thread panics while it holds the lock")
    }
}

#[cfg(all(loom, test))]
pub(super) use modelled::*;
#[cfg(not(all(loom, test)))]
pub(super) use real::*;
