//! Notification of a thread or a task that its wait may be over.

use std::sync::Arc;
use std::task::Waker;

use super::sync::Parker;

/// A waiting thread or task.
#[derive(Debug, Clone)]
pub(crate) enum Listener {
    Thread(Arc<Parker>),
    Task(Waker),
}

impl Listener {
    /// Returns whether notifying either of them has the same effect.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Thread(parker), Self::Thread(other)) => Arc::ptr_eq(parker, other),
            (Self::Task(waker), Self::Task(other)) => waker.will_wake(other),
            _ => false,
        }
    }

    /// Notifies the listener. A thread is unparked at once. A waker is user code and may do
    /// anything, so it is pushed to `wakers` and runs after this thread has stepped down.
    pub(crate) fn tell(self, wakers: &mut Vec<Waker>) {
        match self {
            Self::Thread(parker) => parker.unpark(),
            Self::Task(waker) => wakers.push(waker),
        }
    }
}

/// Runs wakers. The panic hook reports a waker's panic, which has no other effect here.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        // A model has to see the panic.
        if cfg!(all(loom, test)) {
            waker.wake();
        } else {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
        }
    }
}
