//! One answer, from the machine to whoever asked.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The asking side.
#[derive(Debug)]
pub(crate) struct Ticket<T>(Arc<Mutex<Cell<T>>>);

/// The answering side. Dropped without an answer, it answers nothing: the ticket says so.
#[derive(Debug)]
pub(crate) struct Promise<T>(Arc<Mutex<Cell<T>>>);

#[derive(Debug)]
struct Cell<T> {
    answer: Option<T>,
    is_broken: bool,
    waker: Option<Waker>,
}

/// Both sides of one answer.
pub(crate) fn promise<T>() -> (Promise<T>, Ticket<T>) {
    let cell = Arc::new(Mutex::new(Cell { answer: None, is_broken: false, waker: None }));
    (Promise(Arc::clone(&cell)), Ticket(cell))
}

impl<T> Promise<T> {
    /// Answers.
    pub(crate) fn keep(self, answer: T) {
        let mut cell = lock(&self.0);
        cell.answer = Some(answer);
        let waker = cell.waker.take();
        drop(cell);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut cell = lock(&self.0);
        cell.is_broken = cell.answer.is_none();
        let waker = cell.waker.take();
        drop(cell);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Nobody will answer: the engine has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

impl<T> Ticket<T> {
    /// The answer, if it is there.
    pub(crate) fn take(&self) -> Option<Result<T, Broken>> {
        let mut cell = lock(&self.0);
        match cell.answer.take() {
            Some(answer) => Some(Ok(answer)),
            None => cell.is_broken.then_some(Err(Broken)),
        }
    }

    /// Whether it can be taken.
    pub(crate) fn is_ready(&self) -> bool {
        let cell = lock(&self.0);
        cell.answer.is_some() || cell.is_broken
    }

    /// Who is to be woken when it can be.
    pub(crate) fn wake(&self, waker: &Waker) {
        lock(&self.0).waker = Some(waker.clone());
    }
}

impl<T> Future for Ticket<T> {
    type Output = Result<T, Broken>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Registered before looking, so that an answer in between wakes.
        self.wake(cx.waker());
        match self.take() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }
}

fn lock<T>(cell: &Mutex<Cell<T>>) -> MutexGuard<'_, Cell<T>> {
    // A panic under the lock leaves nothing half done.
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}
