//! What threads share here is made of these. A model has those of loom instead, which tries every order in which threads can run and
//! every value that a load may see.

use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

#[cfg(all(loom, test))]
pub(crate) use modelled::*;
#[cfg(not(all(loom, test)))]
pub(crate) use real::*;

/// As good as for ever, without running out of what a clock can say.
pub(crate) const FAR_AWAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Where one thread sleeps. Whoever has it too ends that sleep, or the next one.
///
/// The thread's own parking would do, if it were not also everybody else's: an executor's wake-up could be lost in it.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    is_unparked: Mutex<bool>,
    has_changed: Condvar,
}

impl Parker {
    /// Sleeps until it is unparked, or `until`.
    pub(crate) fn park(&self, until: Option<Instant>) {
        let mut is_late = until.is_some_and(has_passed);
        let mut is_unparked = lock(&self.is_unparked);
        while !*is_unparked && !is_late {
            (is_unparked, is_late) = wait(&self.has_changed, is_unparked, until);
        }
        *is_unparked = false;
    }

    pub(crate) fn unpark(&self) {
        *lock(&self.is_unparked) = true;
        self.has_changed.notify_one();
    }
}

/// So that what is awaited can end the sleep.
impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}

/// Wakes. Whoever drives runs wakers of others: a panic of theirs is told by the panic hook, and ends nothing here.
pub(crate) fn wake(waker: Waker) {
    // In a model, a panic is what was looked for.
    if cfg!(all(loom, test)) {
        waker.wake();
    } else {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
    }
}

#[cfg(not(all(loom, test)))]
mod real {
    use std::cell::Cell;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use std::thread;
    use std::time::Instant;

    pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};

    /// How often who finds the helm taken for one step looks again before it parks.
    pub(crate) const LOOKS_BEFORE_PARKING: u32 = 32;

    #[inline(always)]
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    pub(super) fn has_passed(until: Instant) -> bool {
        until <= Instant::now()
    }

    thread_local! {
        static DRIVES: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether this thread drives an engine: it is in a waker then, or in a drop.
    pub(crate) fn is_driving() -> bool {
        DRIVES.get()
    }

    /// This thread drives, until this is dropped.
    pub(crate) fn drive() -> Driving {
        Driving { before: DRIVES.replace(true) }
    }

    pub(crate) struct Driving {
        before: bool,
    }

    impl Drop for Driving {
        fn drop(&mut self) {
            DRIVES.set(self.before);
        }
    }

    /// Sleeps until the condition is notified or the time is over, and which of the two.
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

    /// None: each would be one more order of the threads that shows nothing new.
    pub(crate) const LOOKS_BEFORE_PARKING: u32 = 0;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("nobody panics under it")
    }

    /// Nobody's waker does anything here.
    pub(crate) fn is_driving() -> bool {
        false
    }

    pub(crate) fn drive() {}

    /// Time does not pass here. It is over once the others had a chance to run, or never comes.
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
        (condition.wait(guard).expect("nobody panics under it"), false)
    }
}
