//! A channel for one value, from the machine to the caller that submitted a command.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::sync::{AtomicBool, Mutex, Ordering, lock};
use super::{Awaited, Listener, wake_all};

/// The receiving side. It may be dropped at any time.
pub(crate) struct Receiver<T>(Arc<Cell<T>>);

/// The sending side. Dropping it without sending a value closes the channel.
pub(crate) struct Sender<T>(Arc<Cell<T>>);

/// The state that both sides share.
struct Cell<T> {
    /// Whether there is a value, or there will never be one. A leader that checks after each step
    /// takes no lock for it.
    is_ready: AtomicBool,
    state: Mutex<State<T>>,
}

enum State<T> {
    Open(Option<Listener>),
    Sent(T),
    /// There will never be a value.
    Closed,
    /// The value was taken.
    Taken,
}

/// Creates a channel.
pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let cell = Arc::new(Cell::new());
    (Sender(Arc::clone(&cell)), Receiver(cell))
}

/// Returns the receiving side of a channel whose value was sent already.
pub(crate) fn sent<T>(value: T) -> Receiver<T> {
    let (sender, receiver) = channel();
    // There is no listener yet, so no waker is left over.
    sender.send(value, &mut Vec::new());
    receiver
}

impl<T> Sender<T> {
    /// Sends the value. The waker of a waiting task is pushed to `wakers`, and the caller has to
    /// run it.
    pub(crate) fn send(self, value: T, wakers: &mut Vec<Waker>) {
        self.0.end(State::Sent(value), wakers);
    }
}

impl<T> Sender<T> {
    /// Returns whether the receiver was dropped.
    pub(crate) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Returns whether the value goes to this receiver.
    pub(crate) fn is_for(&self, receiver: &Receiver<T>) -> bool {
        Arc::ptr_eq(&self.0, &receiver.0)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        // `send` ends here, too, and its value must stay.
        if !self.0.is_ready.load(Ordering::Acquire) {
            let mut wakers = Vec::new();
            self.0.end(State::Closed, &mut wakers);
            wake_all(wakers);
        }
    }
}

impl<T> Cell<T> {
    fn new() -> Self {
        Self { is_ready: AtomicBool::new(false), state: Mutex::new(State::Open(None)) }
    }

    fn end(&self, end: State<T>, wakers: &mut Vec<Waker>) {
        let mut state = lock(&self.state);
        let before = std::mem::replace(&mut *state, end);
        // After the value: a receiver that sees the flag must find it.
        self.is_ready.store(true, Ordering::Release);
        // A group and a parker have locks of their own, and none is taken under this one.
        drop(state);
        if let State::Open(Some(listener)) = before {
            listener.tell(wakers);
        }
    }
}

/// No value will be sent, because the engine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed;

impl<T> Receiver<T> {
    /// Creates a channel in the memory of this one. `None` if the sender of this one is still there.
    pub(crate) fn renew(&mut self) -> Option<Sender<T>> {
        // A sender that is left could send the answer of the earlier operation into the new
        // channel.
        *Arc::get_mut(&mut self.0)? = Cell::new();
        Some(Sender(Arc::clone(&self.0)))
    }

    /// Takes the value, if there is one.
    ///
    /// # Panics
    ///
    /// Panics if the value was taken before.
    pub(crate) fn take(&self) -> Option<Result<T, Closed>> {
        if !self.is_ready() {
            return None;
        }
        let mut state = lock(&self.0.state);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Sent(value) => Some(Ok(value)),
            State::Taken => {
                drop(state);
                panic!("the result was taken before");
            }
            // An open channel is not ready, so this one is closed. A later call finds the same.
            _ => {
                *state = State::Closed;
                Some(Err(Closed))
            }
        }
    }
}

impl<T> Awaited for Receiver<T> {
    fn is_ready(&self) -> bool {
        self.0.is_ready.load(Ordering::Acquire)
    }

    fn listen(&self, listener: &Listener) {
        let mut state = lock(&self.0.state);
        // The value is there, and the caller checks for it after this.
        let State::Open(before) = &mut *state else { return };
        if !before.as_ref().is_some_and(|before| before.is_same(listener)) {
            let before = before.replace(listener.clone());
            // Dropping a waker may run any code, so no lock is held.
            drop(state);
            drop(before);
        }
    }
}

/// Polling makes no progress by itself: some thread has to lead.
impl<T> Future for Receiver<T> {
    type Output = Result<T, Closed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Registered before the check, so that a value sent in between wakes the task.
        self.listen(&Listener::Task(cx.waker().clone()));
        self.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("is_ready", &self.is_ready()).finish()
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}
