//! Operations whose result is available later: a thread waits for it, or a task awaits it.

use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farreach_proto::machine::{OpId, PeerKey};
use farreach_proto::time::Time;

use crate::Error;
use crate::driver::{Command, Driver};
use crate::hung_call::Timeout;
use crate::progress::{Awaited, Listener, oneshot};
use crate::running::Running;
use crate::time;
use crate::watch::{PeerCell, PeerWait};

/// An operation that was started, and its result.
///
/// A thread [waits](Self::wait) for the result, and drives the engine while it does. Or a task of
/// any executor awaits it, and the engine's worker drives the engine. The operation continues in
/// either case; dropping the `Pending` does not stop it.
///
/// A task is woken by a thread that waits or by the engine's worker, outside of the engine's steps
/// and with no lock held. A waker may therefore call any function of the engine and wait for it. A
/// panic in a waker ends only the waker.
///
/// While a waker runs on the worker, only waiting threads drive the engine. If a waker blocks there
/// for longer than [`Settings::peer_timeout`](crate::Settings::peer_timeout), peers consider this
/// engine lost.
///
/// ```no_run
/// use std::time::Duration;
/// use farreach::Engine;
///
/// # fn main() -> Result<(), farreach::Error> {
/// let engine = Engine::new()?;
/// let peer = engine.connect("10.0.0.7:18520")?.wait(Duration::from_secs(5))?;
/// println!("{}", peer.name());
/// # Ok(())
/// # }
/// # async fn or_so(engine: Engine) -> Result<(), farreach::Error> {
/// let peer = engine.connect("10.0.0.7:18520")?.await?;
/// # drop(peer);
/// # Ok(())
/// # }
/// ```
#[must_use = "the operation continues without it, but the result is only available here"]
pub struct Pending<T, E = Error> {
    progress: Arc<Running>,
    answer: Recycled<Result<T, E>>,
    /// Exists from the first wait, if the peer must be watched for the result.
    wait: Option<PeerWait>,
}

/// Finds the result of a started operation.
pub(crate) trait Answer<R>: Send + Sync {
    /// Returns whether the result is available.
    fn is_ready(&self) -> bool;
    /// Registers a listener for the result.
    fn listen(&self, listener: &Listener);
    /// Takes the result, if it is available.
    fn take(&mut self) -> Option<R>;
    /// Returns the result of a wait that timed out.
    fn timed_out(&mut self, timeout: &Timeout) -> R;
    /// Returns the result if the engine has ended.
    fn ended(&mut self) -> R;
    /// Notes that a wait has begun. Called again as long as it lasts.
    fn begin_wait(&mut self) {}
    /// Notes that a wait has ended without a result.
    fn end_wait(&mut self) {}
    /// Returns whether [`take`](Self::take) may begin to wait for something else, which no listener is
    /// registered for.
    fn has_stages(&self) -> bool {
        false
    }
    /// Goes through its stages as far as it can. Returns whether the result is available, and stays so.
    fn advance(&mut self) -> bool {
        self.is_ready()
    }
    /// Returns the operation, if it can be aborted.
    fn operation(&self) -> Option<(PeerKey, OpId)> {
        None
    }
    /// Returns the peer that has to do something for the result, if the machine does not know that.
    fn awaited_peer(&self) -> Option<(PeerKey, &Arc<PeerCell>)> {
        None
    }
    /// Called instead of dropping it, so that its allocations can be used again.
    fn recycle(self: Box<Self>) {}
}

/// An answer, and what becomes of it when it is dropped.
struct Recycled<R>(Option<Box<dyn Answer<R>>>);

impl<R> Drop for Recycled<R> {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take() {
            answer.recycle();
        }
    }
}

impl<R> Deref for Recycled<R> {
    type Target = dyn Answer<R>;

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().expect("it is taken only when it is dropped")
    }
}

impl<R> DerefMut for Recycled<R> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_deref_mut().expect("it is taken only when it is dropped")
    }
}

/// Something that the leader creates in its next step, and that is undone if the caller drops the
/// [`Pending`] without taking it.
pub(crate) struct Making<M: Send + 'static, F> {
    progress: Arc<Running>,
    /// `None` when the result was taken.
    receiver: Option<oneshot::Receiver<M>>,
    operation: &'static str,
    /// Makes the result from the created value, or from the error of a wait.
    finish: F,
    undo: fn(&mut Driver, Time, M),
}

impl<M: Send + 'static, F> Making<M, F> {
    pub(crate) fn new(
        progress: &Arc<Running>,
        operation: &'static str,
        make: impl FnOnce(&mut Driver, Time) -> M + Send + 'static,
        finish: F,
        undo: fn(&mut Driver, Time, M),
    ) -> Self {
        Self::of(progress, operation, progress.ask_others(make), finish, undo)
    }

    /// Awaits something that is created already, or elsewhere.
    pub(crate) fn of(
        progress: &Arc<Running>,
        operation: &'static str,
        receiver: oneshot::Receiver<M>,
        finish: F,
        undo: fn(&mut Driver, Time, M),
    ) -> Self {
        Self { progress: Arc::clone(progress), receiver: Some(receiver), operation, finish, undo }
    }
}

impl<M, T, E, F> Answer<Result<T, E>> for Making<M, F>
where
    M: Send + 'static,
    F: Fn(Result<M, Error>) -> Result<T, E> + Send + Sync,
{
    fn is_ready(&self) -> bool {
        // A result that was taken counts as ready: a wait for several must not hang on it.
        self.receiver.as_ref().is_none_or(Awaited::is_ready)
    }

    fn listen(&self, listener: &Listener) {
        if let Some(receiver) = &self.receiver {
            receiver.listen(listener);
        }
    }

    fn take(&mut self) -> Option<Result<T, E>> {
        let receiver = self.receiver.as_ref().expect("the result was taken before");
        let made = receiver.take()?;
        self.receiver = None;
        Some((self.finish)(made.map_err(|_| Error::ended())))
    }

    fn timed_out(&mut self, timeout: &Timeout) -> Result<T, E> {
        // The receiver stays: a later wait takes the value, or the drop undoes it.
        (self.finish)(Err(Error::timed_out(self.operation, timeout)))
    }

    fn ended(&mut self) -> Result<T, E> {
        (self.finish)(Err(Error::ended()))
    }
}

impl<M: Send + 'static, F> Drop for Making<M, F> {
    fn drop(&mut self) {
        // The result was taken, and its own drop ends what was made.
        let Some(receiver) = self.receiver.take() else { return };
        let undo = self.undo;
        // The leader executes commands in their order, so it has created the value before it
        // executes this one.
        self.progress.submit(Command::Call(Box::new(move |driver, now| {
            if let Some(Ok(made)) = receiver.take() {
                undo(driver, now, made);
            }
        })));
    }
}

/// A result that was available when its operation was started.
struct Finished<R>(Option<R>);

impl<R: Send + Sync> Answer<R> for Finished<R> {
    fn is_ready(&self) -> bool {
        true
    }

    fn listen(&self, _: &Listener) {}

    fn take(&mut self) -> Option<R> {
        Some(self.0.take().expect("the result was taken before"))
    }

    fn timed_out(&mut self, _: &Timeout) -> R {
        unreachable!("nothing waits for a result that is available")
    }

    fn ended(&mut self) -> R {
        unreachable!("nothing waits for a result that is available")
    }
}

struct Wait<'a, R>(&'a dyn Answer<R>);

impl<R> Awaited for Wait<'_, R> {
    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.0.listen(listener);
    }
}

impl<T, E> Pending<T, E> {
    pub(crate) fn new(progress: &Arc<Running>, answer: impl Answer<Result<T, E>> + 'static) -> Self {
        Self::boxed(progress, Box::new(answer))
    }

    pub(crate) fn boxed(progress: &Arc<Running>, answer: Box<dyn Answer<Result<T, E>>>) -> Self {
        Self { progress: Arc::clone(progress), answer: Recycled(Some(answer)), wait: None }
    }

    /// Returns an operation whose result is available.
    pub(crate) fn finished(progress: &Arc<Running>, result: Result<T, E>) -> Self
    where
        T: Send + Sync + 'static,
        E: Send + Sync + 'static,
    {
        Self::new(progress, Finished(Some(result)))
    }

    /// Takes the result if it is available. Otherwise begins a wait.
    fn take_or_wait(&mut self) -> Option<Result<T, E>> {
        let answer = self.answer.take();
        match answer {
            // The peer is not pinged for this wait any more.
            Some(_) => self.wait = None,
            None => self.begin_wait(),
        }
        answer
    }

    fn begin_wait(&mut self) {
        self.answer.begin_wait();
        if self.wait.is_none()
            && let Some((key, cell)) = self.answer.awaited_peer()
        {
            let (wait, is_first) = cell.begin_wait();
            self.wait = Some(wait);
            // One watch of the machine serves all waits for a peer.
            if is_first {
                self.progress.submit(Command::Watch(key));
            }
        }
    }

    /// Ends a wait without a result.
    pub(crate) fn end_wait(&mut self) {
        self.wait = None;
        self.answer.end_wait();
    }

    /// Registers a listener for the result. Returns whether it is available: then no wait begins.
    pub(crate) fn listen(&mut self, listener: &Listener) -> bool {
        self.answer.listen(listener);
        // The next stage has no listener yet, and its result may be there already.
        while self.answer.has_stages() && self.answer.is_ready() && !self.answer.advance() {
            self.answer.listen(listener);
        }
        let is_ready = self.is_ready();
        if !is_ready {
            self.begin_wait();
        }
        is_ready
    }

    /// Returns whether the result is available.
    pub(crate) fn is_ready(&mut self) -> bool {
        if self.answer.has_stages() { self.answer.advance() } else { self.answer.is_ready() }
    }

    pub(crate) fn operation(&self) -> Option<(PeerKey, OpId)> {
        self.answer.operation()
    }

    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.progress
    }

    /// Waits for the result, for at most `timeout`. After a timeout the same operation can be
    /// waited for again.
    ///
    /// The thread blocks. It drives the engine while it waits.
    ///
    /// If a call into the library of a rail does not return, the thread that made it cannot end its
    /// wait, because nothing can end such a call. All other threads end theirs in time. If the call
    /// has lasted for a second or longer, their error names it, and so does
    /// [`Engine::warnings`](crate::Engine::warnings). A task that awaits the result does not make such
    /// calls while it waits, because the engine's worker does. A function that starts a transfer or sends a
    /// message may make one step itself, in a task as well. Functions that allocate, register, grant,
    /// publish, prepare, connect or open a counter leave that to the worker too.
    ///
    /// # Panics
    ///
    /// Panics if the result was taken before, by this function or as a future, and is not
    /// repeatable. Results of [`Counter::reach`](crate::Counter::reach),
    /// [`Peer::recv`](crate::Peer::recv), [`Engine::accept`](crate::Engine::accept),
    /// [`Engine::recv_any`](crate::Engine::recv_any) and
    /// [`Engine::next_event`](crate::Engine::next_event) are.
    pub fn wait(&mut self, timeout: Duration) -> Result<T, E> {
        let mut deadline = None;
        loop {
            if let Some(answer) = self.take_or_wait() {
                return answer;
            }
            // The results of short operations are there already, and need no clock.
            let deadline = *deadline.get_or_insert_with(|| time::after(timeout));
            match self.progress.wait(&Wait(&*self.answer), deadline) {
                Ok(true) => {}
                // The result may have arrived at the last moment.
                Ok(false) => {
                    let found = self.answer.take();
                    self.end_wait();
                    return found.unwrap_or_else(|| self.answer.timed_out(&self.progress.timeout(timeout)));
                }
                // No thread will lead any more, so no later result is missed.
                Err(_) => return self.answer.ended(),
            }
        }
    }

    /// Takes the result if it is available. Does not block.
    pub fn try_take(&mut self) -> Option<Result<T, E>> {
        self.take_or_wait()
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Lets the leader execute a call, whose result needs no undoing. `operation` names it in the
    /// error of a timeout.
    pub(crate) fn call(
        progress: &Arc<Running>,
        operation: &'static str,
        call: impl FnOnce(&mut Driver, Time) -> Result<T, Error> + Send + 'static,
    ) -> Self {
        let finish = |made: Result<Result<T, Error>, Error>| made?;
        Self::new(progress, Making::new(progress, operation, call, finish, |_, _, made| drop(made)))
    }
}

impl<T, E> Future for Pending<T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let listener = Listener::Task(cx.waker().clone());
        loop {
            // Registered before the check, so that a result in between wakes the task.
            self.answer.listen(&listener);
            if let Some(answer) = self.take_or_wait() {
                return Poll::Ready(answer);
            }
            if !self.answer.has_stages() {
                break;
            }
            // `take_or_wait` may have begun another stage, which has no listener yet.
            self.answer.listen(&listener);
            if !self.answer.is_ready() {
                break;
            }
        }
        // After the listener was registered: the worker may find the result at once.
        if self.progress.call_worker() {
            return Poll::Pending;
        }
        // A result may have arrived before the engine has ended.
        let found = self.answer.take();
        self.end_wait();
        Poll::Ready(found.unwrap_or_else(|| self.answer.ended()))
    }
}

impl<T, E> std::fmt::Debug for Pending<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("is_ready", &self.answer.is_ready()).finish_non_exhaustive()
    }
}
