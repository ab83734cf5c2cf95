//! What takes time: waited for by a thread, or awaited.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::progress::{Awaited, Listener};
use crate::running::Running;
use crate::time;

/// Something that was asked for. Either a thread [waits](Self::wait) for it, and drives the engine meanwhile; or it is awaited, as a
/// future of any executor, and the engine's worker drives.
///
/// It is under way whether anybody waits or not. One that is dropped gives nothing back early.
///
/// As a future it wakes its task from a thread that waits, or from the engine's worker: outside of the engine's steps and under no lock. So a waker
/// may call whatever it likes, and wait for the same engine, too. A panic in a waker ends nothing but the waker.
///
/// While a waker runs on the worker, only threads that wait drive the engine. A waker that blocks there for longer than the silence of
/// [`Settings::heartbeat`](crate::Settings::heartbeat) loses the engine its peers.
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
#[must_use = "it goes on by itself, but whether it went well is told here"]
pub struct Pending<A: Answer> {
    pub(crate) progress: Arc<Running>,
    pub(crate) answer: A,
}

/// What a [`Pending`] ends with. Only this crate has such.
pub trait Answer: sealed::Sealed + Unpin {
    /// What it ends with.
    type Output;
}

pub(crate) mod sealed {
    use super::{Duration, Listener};

    /// How an answer is found.
    pub trait Sealed {
        /// What it ends with.
        type Found;
        /// Whether it is there.
        fn is_ready(&self) -> bool;
        /// Who is told when it may be.
        fn listen(&self, listener: &Listener);
        /// It, if it is there.
        fn take(&mut self) -> Option<Self::Found>;
        /// What it is when the time is over.
        fn timed_out(&mut self, after: Duration) -> Self::Found;
        /// What it is when the engine has ended.
        fn ended(&mut self) -> Self::Found;
    }
}

struct Wait<'a, A>(&'a A);

impl<A: sealed::Sealed> Awaited for Wait<'_, A> {
    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    fn listen(&self, listener: &Listener) {
        self.0.listen(listener);
    }
}

impl<A: Answer<Output = <A as sealed::Sealed>::Found>> Pending<A> {
    /// Waits, at most so long. After that it may be waited for again.
    ///
    /// # Panics
    ///
    /// If it has ended and its outcome was taken before, by this or as a future, unless it is of the kind that can be asked for again: an
    /// arrival, a message, a peer.
    pub fn wait(&mut self, timeout: Duration) -> A::Output {
        let deadline = time::after(timeout);
        loop {
            if let Some(answer) = self.answer.take() {
                return answer;
            }
            match self.progress.wait(&Wait(&self.answer), deadline) {
                Ok(true) => {}
                // It may have come at the last moment.
                Ok(false) => return self.answer.take().unwrap_or_else(|| self.answer.timed_out(timeout)),
                Err(_) => return self.answer.ended(),
            }
        }
    }

    /// What it ended with, if it has.
    pub fn try_take(&mut self) -> Option<A::Output> {
        self.answer.take()
    }
}

impl<A: Answer<Output = <A as sealed::Sealed>::Found>> Future for Pending<A> {
    type Output = A::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Registered before looking, so that an answer in between wakes.
        self.answer.listen(&Listener::Task(cx.waker().clone()));
        match self.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                self.progress.call_worker();
                Poll::Pending
            }
        }
    }
}

impl<A: Answer> std::fmt::Debug for Pending<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("is_ready", &self.answer.is_ready()).finish_non_exhaustive()
    }
}
