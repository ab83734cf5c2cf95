//! Who makes an engine's progress: one thread at a time, the *leader*. All others that wait are its *followers*.
//!
//! Callers queue commands and never wait for a step of the leader. If there is no leader, the caller leads for one step, so that its command is
//! posted by its own thread. A caller that waits leads until its wait ends: a result needs no switch to another thread. Callers that begin to wait
//! meanwhile park as followers, and the first of them leads next. The worker, where there is one, leads when nobody else does: for futures, and for
//! peers while all callers are busy elsewhere.
//!
//! No code of the user's runs while its thread leads. Threads that wait are unparked during a step; tasks are woken after the leader has stepped
//! down, so that a waker may do whatever it likes.
//!
//! Invariant: at most one [`Leader`](leader::Leader) exists. It owns the machine, so that no step takes a lock.
//!
//! | file | responsibility |
//! |---|---|
//! | `followers` | decides who leads and who parks, and keeps queued commands, behind one lock |
//! | `leader` | what a leader does: apply commands, step, sleep |
//! | `backoff` | spin, yield or sleep after a step |
//! | `listener` | who is told that a wait may be over: a thread, or a task |
//! | `oneshot` | one result for the caller that asked |
//! | `model` | all of it in every order of the threads: `cargo xtask model` |

mod backoff;
mod followers;
mod lead;
mod leader;
mod listener;
#[cfg(all(loom, test))]
mod model;
pub(crate) mod oneshot;
pub(crate) mod sync;
#[cfg(all(test, not(loom)))]
mod tests;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

pub use backoff::Progress;
pub(crate) use listener::{Listener, wake_all};
pub(crate) use sync::FAR_AWAY;

use followers::{Followers, Handover, SubmitAction, WaitAction, WorkerAction};
use lead::Led;
use sync::{AtomicBool, LOOKS_BEFORE_PARKING, Mutex, MutexGuard, Ordering, Parker, lock, thread};

/// What a leader drives.
pub(crate) trait Drive: Send {
    /// What callers ask of it.
    type Command: Send;
    /// Ends its sleep.
    type Wakeup: Wakeup;

    /// Returns what ends [`sleep`](Self::sleep).
    fn wakeup(&self) -> Self::Wakeup;

    /// Applies a command.
    fn apply(&mut self, command: Self::Command);

    /// Makes one bounded step that never waits. Returns whether anything happened.
    fn step(&mut self) -> bool;

    /// Sleeps until something may have happened, a wakeup came or has come since the last sleep, or `until`.
    fn sleep(&mut self, until: Instant);

    /// The tasks that are to be woken for what was applied or has happened. The leader takes them out, steps down, and wakes them.
    fn wakers(&mut self) -> &mut Vec<Waker>;
}

/// Ends a sleep, or the next one, from any thread.
pub(crate) trait Wakeup: Send + Sync {
    /// Wakes the sleeper. Several calls before the next sleep have the effect of one.
    fn wake(&self);
}

/// What a caller can wait for.
pub(crate) trait Awaited {
    /// Returns whether the wait is over.
    fn is_ready(&self) -> bool;

    /// Registers who is told of the end of the wait. The caller checks [`is_ready`](Self::is_ready) again afterwards.
    fn listen(&self, listener: &Listener);
}

/// A step of the machine panicked, so that nobody leads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the engine has ended by a panic in one of its own steps: see the panic's message, and make a new engine"
)]
pub(crate) struct LeaderPanicked;

/// A machine, and the threads that lead and follow.
pub(crate) struct LeaderFollowers<M: Drive> {
    followers: Mutex<Followers<M>>,
    /// Whether something was queued for the leader, so that it takes no lock after each step. Changed under the lock. A leader that
    /// sleeps or steps down does not rely on it.
    has_news: AtomicBool,
    wakeup: M::Wakeup,
    mode: Progress,
    worker: Mutex<Option<thread::JoinHandle<()>>>,
}

impl<M: Drive> LeaderFollowers<M> {
    /// Creates one without a leader.
    pub(crate) fn new(machine: M, mode: Progress) -> Self {
        let wakeup = machine.wakeup();
        let followers = Mutex::new(Followers::new(machine));
        Self { followers, has_news: AtomicBool::new(false), wakeup, mode, worker: Mutex::new(None) }
    }

    /// Queues a command. Without a leader it is applied here and now, with one step; otherwise the leader applies it before it sleeps or
    /// steps down. After [`LeaderPanicked`] it is dropped.
    pub(crate) fn submit(&self, command: M::Command) {
        let mut followers = self.followers();
        match followers.submit(command) {
            SubmitAction::Lead(leader, command) => {
                drop(followers);
                self.lead_once(leader, Some(command));
            }
            SubmitAction::Queued { must_wake } => {
                self.has_news.store(true, Ordering::Relaxed);
                drop(followers);
                if must_wake {
                    self.wakeup.wake();
                }
            }
            SubmitAction::Ended(command) => {
                drop(followers);
                drop(command);
            }
        }
    }

    /// Waits, and leads if no other waiter does. Returns `false` if the deadline passed first.
    ///
    /// A rail that calls this from a step gets an answer at once: the leader would wait for itself.
    pub(crate) fn wait(&self, awaited: &dyn Awaited, deadline: Instant) -> Result<bool, LeaderPanicked> {
        if sync::is_leading() {
            return Ok(awaited.is_ready());
        }
        let mut looks = 0..LOOKS_BEFORE_PARKING;
        let mut parking = None;
        let mut place = None;
        while !awaited.is_ready() {
            let parker = || Arc::clone(parking.get_or_insert_with(|| Arc::new(Parker::default())));
            let mut followers = self.followers();
            match followers.lead_or_park(&mut place, parker, looks.next().is_some()) {
                WaitAction::Lead(leader) => {
                    drop(followers);
                    match self.lead_until(leader, awaited, deadline) {
                        Led::ForWakers if Instant::now() < deadline => continue,
                        _ => return Ok(awaited.is_ready()),
                    }
                }
                WaitAction::Retry => {
                    drop(followers);
                    thread::yield_now();
                    continue;
                }
                WaitAction::Park { must_wake } => {
                    // The leader may be the worker, which steps down when it sees this.
                    self.has_news.store(true, Ordering::Relaxed);
                    drop(followers);
                    if must_wake {
                        self.wakeup.wake();
                    }
                }
                WaitAction::Ended => return if awaited.is_ready() { Ok(true) } else { Err(LeaderPanicked) },
            }
            let Some(parker) = &parking else { continue };
            awaited.listen(&Listener::Thread(Arc::clone(parker)));
            if !awaited.is_ready() {
                parker.park(Some(deadline));
                if Instant::now() >= deadline {
                    break;
                }
            }
        }
        let next = self.followers().leave(place);
        self.hand_over(next);
        Ok(awaited.is_ready())
    }

    /// Makes sure that somebody leads for a pending future: the worker, at once or when the leader steps down. To be called after
    /// the future's waker was registered.
    pub(crate) fn call_worker(&self) {
        let worker = self.followers().call_worker();
        if let Some(worker) = worker {
            worker.unpark();
        }
    }

    /// Runs the worker until [`stop`](Self::stop) or [`LeaderPanicked`].
    pub(crate) fn run_worker(&self) {
        let parker = Arc::new(Parker::default());
        self.followers().add_worker(Arc::clone(&parker));
        loop {
            let action = self.followers().worker_action();
            match action {
                WorkerAction::Lead(leader) => self.lead_as_worker(leader),
                WorkerAction::Retry => parker.park(Some(Instant::now() + backoff::WORKER_RETRY)),
                WorkerAction::Rest => parker.park(None),
                WorkerAction::End => return,
            }
        }
    }

    /// Ends the worker, and waits for its end; unless the worker itself calls this, by way of a waker that it runs.
    pub(crate) fn stop(&self) {
        self.tell_worker_to_stop();
        let worker = lock(&self.worker).take();
        if let Some(worker) = worker.filter(|worker| worker.thread().id() != thread::current().id()) {
            // Its panic was reported when it happened, and all waiters were told.
            let _ = worker.join();
        }
    }

    fn tell_worker_to_stop(&self) {
        let mut followers = self.followers();
        let (must_wake, worker) = followers.stop_worker();
        self.has_news.store(true, Ordering::Relaxed);
        drop(followers);
        if must_wake {
            self.wakeup.wake();
        }
        if let Some(worker) = worker {
            worker.unpark();
        }
    }

    /// Does what is left to do after stepping down, or leaving a place.
    fn hand_over(&self, next: Handover<M>) {
        match next {
            Handover::Nothing => {}
            Handover::Wake(parker) => parker.unpark(),
            Handover::Lead(leader) => self.lead_once(leader, None),
        }
    }

    fn followers(&self) -> MutexGuard<'_, Followers<M>> {
        lock(&self.followers)
    }
}

impl<M: Drive + 'static> LeaderFollowers<M> {
    /// Starts a worker, once.
    pub(crate) fn start_worker(self: &Arc<Self>) -> io::Result<()> {
        let shared = Arc::clone(self);
        let worker = thread::Builder::new().name("farreach".to_owned()).spawn(move || shared.run_worker())?;
        *lock(&self.worker) = Some(worker);
        Ok(())
    }
}

impl<M: Drive> fmt::Debug for LeaderFollowers<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderFollowers").field("mode", &self.mode).finish_non_exhaustive()
    }
}
