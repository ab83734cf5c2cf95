//! What threads share here is made of these. A model has those of loom instead, which tries every order in which threads can run and
//! every value that a load may see.

#[cfg(not(all(loom, test)))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use std::thread;

    use std::time::Instant;

    pub(crate) use parking_lot::{Mutex, MutexGuard};

    /// How often who finds the helm taken for one step looks again before it parks.
    pub(crate) const LOOKS_BEFORE_PARKING: u32 = 32;

    #[inline(always)]
    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock()
    }

    /// Where the thread that made it sleeps. Whoever has a copy ends that sleep, or the next one.
    #[derive(Debug, Clone)]
    pub(crate) struct Parker(thread::Thread);

    impl Parker {
        pub(crate) fn new() -> Self {
            Self(thread::current())
        }

        /// Sleeps until it is unparked, or `until`, or for no reason.
        pub(crate) fn park(&self, until: Option<Instant>) {
            match until {
                Some(until) => thread::park_timeout(until.saturating_duration_since(Instant::now())),
                None => thread::park(),
            }
        }

        pub(crate) fn unpark(&self) {
            self.0.unpark();
        }
    }
}

#[cfg(all(loom, test))]
mod modelled {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    pub(crate) use loom::thread;

    use std::sync::Arc;
    use std::time::Instant;

    use loom::sync::Condvar;

    /// None: each would be one more order of the threads that shows nothing new.
    pub(crate) const LOOKS_BEFORE_PARKING: u32 = 0;

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("nobody panics under it")
    }

    /// Loom's own parking takes a thread that waits for a lock for a parked one, so this is made of a lock and a condition.
    #[derive(Debug, Clone)]
    pub(crate) struct Parker(Arc<(Mutex<bool>, Condvar)>);

    impl Parker {
        pub(crate) fn new() -> Self {
            Self(Arc::new((Mutex::new(false), Condvar::new())))
        }

        /// Here time is either over or never comes: with `until` it lets the others run, and returns.
        pub(crate) fn park(&self, until: Option<Instant>) {
            let (is_unparked, condition) = &*self.0;
            let is_soon = |until: Instant| until < Instant::now() + super::FAR_AWAY / 2;
            if until.is_some_and(is_soon) {
                *lock(is_unparked) = false;
                return thread::yield_now();
            }
            let mut is_unparked = lock(is_unparked);
            while !*is_unparked {
                is_unparked = condition.wait(is_unparked).expect("nobody panics under it");
            }
            *is_unparked = false;
        }

        pub(crate) fn unpark(&self) {
            let (is_unparked, condition) = &*self.0;
            *lock(is_unparked) = true;
            condition.notify_one();
        }
    }
}

use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

#[cfg(all(loom, test))]
pub(crate) use modelled::*;
#[cfg(not(all(loom, test)))]
pub(crate) use real::*;

/// As good as for ever, without running out of what a clock can say.
pub(crate) const FAR_AWAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// So that what is awaited can end the sleep.
impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}
