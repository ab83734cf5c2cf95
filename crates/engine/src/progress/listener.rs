//! Who is told that a wait may be over.

use std::sync::Arc;
use std::task::Waker;

use super::sync::Parker;

/// A thread that waits, or a task.
#[derive(Debug, Clone)]
pub(crate) enum Listener {
    Thread(Arc<Parker>),
    Task(Waker),
}

impl Listener {
    /// Whether both are told the same way.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Thread(parker), Self::Thread(other)) => Arc::ptr_eq(parker, other),
            (Self::Task(waker), Self::Task(other)) => waker.will_wake(other),
            _ => false,
        }
    }

    /// Tells it. A thread goes on at once. A waker is code of the user's and may do anything: it is kept in `wakers`, and runs when this thread
    /// leads no more.
    pub(crate) fn tell(self, wakers: &mut Vec<Waker>) {
        match self {
            Self::Thread(parker) => parker.unpark(),
            Self::Task(waker) => wakers.push(waker),
        }
    }
}

/// Runs wakers. A panic of one is told by the panic hook, and ends nothing here.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        // In a model, a panic is what was looked for.
        if cfg!(all(loom, test)) {
            waker.wake();
        } else {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
        }
    }
}
