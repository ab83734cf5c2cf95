//! One answer, from the machine to whoever asked.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Awaited;
use super::sync::{AtomicBool, Mutex, Ordering, lock};

/// The asking side. It can be dropped at any time.
pub(crate) struct Ticket<T>(Arc<Cell<T>>);

/// The answering side. Dropped without an answer, it says so to the other.
pub(crate) struct Promise<T>(Arc<Cell<T>>);

struct Cell<T> {
    /// Whether there is an answer, or will never be one: so that a driver that looks after each step takes no lock for it.
    is_ready: AtomicBool,
    state: Mutex<State<T>>,
}

enum State<T> {
    Open(Option<Waker>),
    Answered(T),
    /// There will never be an answer.
    Broken,
    /// There was one.
    Taken,
}

/// Both sides of one answer.
pub(crate) fn promise<T>() -> (Promise<T>, Ticket<T>) {
    let cell = Cell { is_ready: AtomicBool::new(false), state: Mutex::new(State::Open(None)) };
    let cell = Arc::new(cell);
    (Promise(Arc::clone(&cell)), Ticket(cell))
}

impl<T> Promise<T> {
    /// Answers. It wakes somebody only if somebody sleeps for it.
    pub(crate) fn keep(self, answer: T) {
        self.0.settle(State::Answered(answer));
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        if !self.0.is_ready.load(Ordering::Acquire) {
            self.0.settle(State::Broken);
        }
    }
}

impl<T> Cell<T> {
    fn settle(&self, end: State<T>) {
        let mut state = lock(&self.state);
        let before = std::mem::replace(&mut *state, end);
        self.is_ready.store(true, Ordering::Release);
        drop(state);
        // A waker may do anything, so no lock is held.
        if let State::Open(Some(waker)) = before {
            super::wake(waker);
        }
    }
}

/// Nobody will answer: the engine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

impl<T> Ticket<T> {
    /// The answer, if it is there.
    ///
    /// # Panics
    ///
    /// If it was taken before.
    pub(crate) fn take(&self) -> Option<Result<T, Broken>> {
        if !self.is_ready() {
            return None;
        }
        let mut state = lock(&self.0.state);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Answered(answer) => Some(Ok(answer)),
            State::Taken => {
                drop(state);
                panic!("it has ended, and its outcome was taken before");
            }
            _ => {
                *state = State::Broken;
                Some(Err(Broken))
            }
        }
    }
}

impl<T> Awaited for Ticket<T> {
    fn is_ready(&self) -> bool {
        self.0.is_ready.load(Ordering::Acquire)
    }

    fn wake(&self, waker: &Waker) {
        let mut state = lock(&self.0.state);
        let State::Open(before) = &mut *state else { return };
        if !before.as_ref().is_some_and(|before| before.will_wake(waker)) {
            let before = before.replace(waker.clone());
            // Dropping a waker may do anything, so no lock is held.
            drop(state);
            drop(before);
        }
    }
}

/// Somebody else has to drive: the future says so to the helm.
impl<T> Future for Ticket<T> {
    type Output = Result<T, Broken>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Registered before looking, so that an answer in between wakes.
        self.wake(cx.waker());
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("is_ready", &self.is_ready()).finish()
    }
}

impl<T> fmt::Debug for Promise<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").finish_non_exhaustive()
    }
}
