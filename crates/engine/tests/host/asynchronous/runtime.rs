//! Executors, with the little that a test needs of them: to spawn a task, and to sleep.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_executor::ThreadPool;

/// The time after which a test hangs.
const HANGS: Duration = Duration::from_secs(120);

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An executor that runs a test.
#[derive(Clone)]
pub(super) struct Runtime {
    spawn: Arc<dyn Fn(Boxed) + Send + Sync>,
    sleep: fn(Duration) -> Boxed,
}

impl Runtime {
    /// Runs a future as a task of its own.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Task<T> {
        let cell = Arc::new(Cell { result: Mutex::default(), body: Mutex::new(Some(Box::pin(future) as _)) });
        let running = Arc::clone(&cell);
        (self.spawn)(Box::pin(async move {
            let ran = poll_fn(|cx| running.poll(cx)).await;
            running.end(ran);
        }));
        Task(cell)
    }

    /// Awaits a future for a limited time. It is not dropped by a timeout if it is borrowed.
    pub(super) async fn within<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let (mut sleep, mut future) = ((self.sleep)(time), pin!(future));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => sleep.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// Lets other tasks run.
    pub(super) async fn yields(&self) {
        let mut has_yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut has_yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Awaits a condition that no future tells of.
    pub(super) async fn until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < HANGS / 2, "not within {:?}: {what}", HANGS / 2);
            self.within(Duration::from_millis(1), std::future::pending::<()>()).await;
        }
    }
}

/// A task. Dropping it lets the task run on.
pub(super) struct Task<T>(Arc<Cell<T>>);

type Body<T> = Pin<Box<dyn Future<Output = T> + Send>>;

struct Cell<T> {
    result: Mutex<(Option<Option<T>>, Option<Waker>)>,
    /// `None` when the task has ended or was cancelled.
    body: Mutex<Option<Body<T>>>,
}

impl<T> Cell<T> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut body = self.body.lock().unwrap();
        let Some(running) = &mut *body else { return Poll::Ready(None) };
        let output = running.as_mut().poll(cx);
        if output.is_ready() {
            *body = None;
        }
        output.map(Some)
    }

    fn end(&self, ran: Option<T>) {
        let mut result = self.result.lock().unwrap();
        result.0.get_or_insert(ran);
        let waker = result.1.take();
        drop(result);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<T> Task<T> {
    /// Drops the future of the task, from this thread. Whoever awaits it gets `None`, unless it has
    /// ended before.
    pub(super) fn cancel(&self) {
        let body = self.0.body.lock().unwrap().take();
        if body.is_some() {
            drop(body);
            self.0.end(None);
        }
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut result = self.0.result.lock().unwrap();
        match result.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                assert!(!self.0.body.is_poisoned(), "the task has panicked");
                result.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Runs a test in a thread of its own, so that one that blocks its executor is found.
fn run(test: impl FnOnce() + Send + 'static) {
    let (sender, ended) = mpsc::channel();
    let running = thread::spawn(move || {
        // Dropped by a panic, too.
        let _sender: mpsc::Sender<()> = sender;
        test();
    });
    let waited = ended.recv_timeout(HANGS);
    assert_ne!(waited, Err(RecvTimeoutError::Timeout), "the test hangs");
    if let Err(panic) = running.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs a test on the only thread of its executor.
pub(super) fn tokio_current_thread<F: Future<Output = ()> + Send + 'static>(test: fn(Runtime) -> F) {
    run(move || over_tokio(tokio::runtime::Builder::new_current_thread(), test));
}

/// Runs a test as a task that moves between threads.
pub(super) fn tokio_multi_thread<F: Future<Output = ()> + Send + 'static>(test: fn(Runtime) -> F) {
    run(move || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2);
        over_tokio(builder, test);
    });
}

fn over_tokio<F: Future<Output = ()> + Send + 'static>(
    mut builder: tokio::runtime::Builder,
    test: fn(Runtime) -> F,
) {
    let tokio = builder.enable_time().build().unwrap();
    let handle = tokio.handle().clone();
    let spawn = move |task: Boxed| drop(handle.spawn(task));
    let sleep = |time| Box::pin(tokio::time::sleep(time)) as Boxed;
    let ended = tokio.block_on(tokio.spawn(test(Runtime { spawn: Arc::new(spawn), sleep })));
    if let Err(error) = ended {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Runs a test on the thread pool of `futures-executor`.
pub(super) fn thread_pool<F: Future<Output = ()> + Send + 'static>(test: fn(Runtime) -> F) {
    run(move || {
        let pool = ThreadPool::builder().pool_size(2).create().unwrap();
        let spawn = move |task: Boxed| pool.spawn_ok(task);
        futures_executor::block_on(test(Runtime { spawn: Arc::new(spawn), sleep: thread_sleep }));
    });
}

/// A sleep of an executor that has no timer.
fn thread_sleep(time: Duration) -> Boxed {
    let (mut sleeper, is_over) = (None, Arc::new(Mutex::new((false, None::<Waker>))));
    Box::pin(poll_fn(move |cx| {
        let mut state = is_over.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(cx.waker().clone());
        drop(state);
        let is_over = Arc::clone(&is_over);
        sleeper.get_or_insert_with(|| {
            thread::spawn(move || {
                thread::sleep(time);
                let mut state = is_over.lock().unwrap();
                state.0 = true;
                let waker = state.1.take();
                drop(state);
                waker.into_iter().for_each(Waker::wake);
            })
        });
        Poll::Pending
    }))
}
