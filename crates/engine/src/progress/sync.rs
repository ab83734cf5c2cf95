//! Synchronisation primitives. A model uses those of loom instead, which explores every thread
//! interleaving and every value that a load may return.

#[cfg(test)]
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(all(loom, test))]
pub(crate) use modelled::*;
#[cfg(not(all(loom, test)))]
pub(crate) use real::*;

/// Stands for "no deadline", and does not overflow an `Instant`.
pub(crate) const FAR_AWAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Lets one thread sleep. Other threads that hold a reference end that sleep, or the next one.
///
/// `std::thread::park` is not used, because other code shares it: a wakeup meant for an executor
/// could be consumed here.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    is_unparked: Mutex<bool>,
    has_changed: Condvar,
}

impl Parker {
    /// Sleeps until it is unparked, or `until`. A call of `unpark` before this one ends it at once.
    /// Returns whether it was unparked.
    pub(crate) fn park(&self, until: Option<Instant>) -> bool {
        let mut is_late = until.is_some_and(has_passed);
        let mut is_unparked = lock(&self.is_unparked);
        while !*is_unparked && !is_late {
            (is_unparked, is_late) = wait(&self.has_changed, is_unparked, until);
        }
        std::mem::take(&mut *is_unparked)
    }

    /// Ends the sleep, or the next one.
    pub(crate) fn unpark(&self) {
        *lock(&self.is_unparked) = true;
        self.has_changed.notify_one();
    }
}

/// A waker, as the thread of an executor has one.
#[cfg(test)]
impl std::task::Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }
}

#[cfg(not(all(loom, test)))]
mod real {
    use std::cell::Cell;
    use std::sync::Arc;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use std::thread;
    use std::time::Instant;

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

    use super::Parker;

    /// How often a waiter that finds a leader for one step asks again before it parks.
    pub(crate) const LOOKS_BEFORE_PARKING: u32 = 32;

    #[inline(always)]
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    pub(super) fn has_passed(until: Instant) -> bool {
        until <= Instant::now()
    }

    thread_local! {
        static LEADS: Cell<bool> = const { Cell::new(false) };
        static PARKER: Arc<Parker> = Arc::default();
    }

    /// Returns the parker of this thread. One who has waited before may unpark it late, which ends a
    /// later sleep early.
    pub(crate) fn parker() -> Arc<Parker> {
        // It is gone while the other thread-local values of a thread that ends are dropped.
        PARKER.try_with(Arc::clone).unwrap_or_default()
    }

    /// Returns whether this thread leads. If it does, the call comes from a rail.
    pub(crate) fn is_leading() -> bool {
        LEADS.get()
    }

    /// Marks this thread as leading until the result is dropped.
    pub(crate) fn lead() -> Leading {
        Leading { before: LEADS.replace(true) }
    }

    /// Restores the previous mark when it is dropped.
    pub(crate) struct Leading {
        before: bool,
    }

    impl Drop for Leading {
        fn drop(&mut self) {
            LEADS.set(self.before);
        }
    }

    /// Sleeps until the condition is notified or `until`. Returns `true` if the time has passed.
    pub(super) fn wait<'a, T>(
        condition: &Condvar,
        mut guard: MutexGuard<'a, T>,
        until: Option<Instant>,
    ) -> (MutexGuard<'a, T>, bool) {
        let is_late = match until {
            Some(until) => condition.wait_until(&mut guard, until).timed_out(),
            None => {
                condition.wait(&mut guard);
                false
            }
        };
        (guard, is_late)
    }
}

#[cfg(all(loom, test))]
mod modelled {
    use std::time::Instant;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread;

    /// Zero, because each retry would add interleavings that show nothing new.
    pub(crate) const LOOKS_BEFORE_PARKING: u32 = 0;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no thread panics under the lock")
    }

    /// A new one: a parker of an earlier wait would only add early ends of a sleep.
    pub(crate) fn parker() -> std::sync::Arc<super::Parker> {
        std::sync::Arc::default()
    }

    /// Always `false`, because no waker in a model calls the engine.
    pub(crate) fn is_leading() -> bool {
        false
    }

    pub(crate) fn lead() {}

    /// Time does not pass in a model. A near deadline passes once the other threads had a chance to
    /// run; a distant one never does.
    pub(super) fn has_passed(until: Instant) -> bool {
        let is_soon = until < Instant::now() + super::FAR_AWAY / 2;
        if is_soon {
            thread::yield_now();
        }
        is_soon
    }

    pub(super) fn wait<'a, T>(
        condition: &Condvar,
        guard: MutexGuard<'a, T>,
        _until: Option<Instant>,
    ) -> (MutexGuard<'a, T>, bool) {
        (condition.wait(guard).expect("no thread panics under the lock"), false)
    }
}
