//! Progress of an engine: one thread at a time, the *leader*, drives the machine. All other waiting
//! threads are its *followers*.
//!
//! Callers queue commands and never wait for a step of the leader. If there is no leader, the
//! caller leads for one step, so that its own thread posts its command. Commands that may call a slow
//! function of a library are an exception: the worker applies them, or a thread that waits. A caller that waits leads
//! until its wait ends, so a result needs no switch to another thread. Callers that begin to wait
//! in the meantime park as followers, and the first of them leads next. The worker, if there is
//! one, leads when no other thread does: for futures, and for peers while all callers are busy
//! elsewhere.
//!
//! No user code runs on a thread while it leads. Waiting threads are unparked during a step. Tasks
//! are woken after the leader has stepped down, so a waker may call the engine and may block.
//!
//! Invariant: at most one [`Leader`](leader::Leader) exists. It owns the machine, so a step takes
//! no lock.
//!
//! | file | responsibility |
//! |---|---|
//! | `followers` | which thread leads and which ones park; the queued commands; behind one lock |
//! | `leader` | the box that the leading thread owns: the machine and its commands |
//! | `lead` | the work of a leader: apply commands, step, sleep |
//! | `backoff` | spin, yield or sleep after a step |
//! | `listener` | notifies a thread or a task that its wait may be over, or one of several results |
//! | `oneshot` | a channel for one result |
//! | `sync` | synchronisation primitives: real ones, or those of loom |
//! | `model` | loom models: `cargo xtask model` |

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
use std::time::{Duration, Instant};

pub use backoff::Progress;
pub(crate) use listener::{Group, Listener, wake_all};
pub(crate) use sync::FAR_AWAY;

use followers::{Followers, Handover, QueueAction, SubmitAction, WaitAction, WorkerAction};
use lead::Led;
use sync::{AtomicBool, LOOKS_BEFORE_PARKING, Mutex, MutexGuard, Ordering, Parker, lock, thread};

/// A machine that a leader drives.
pub(crate) trait Drive: Send {
    /// A request of a caller.
    type Command: Send;
    /// Ends the machine's sleep.
    type Wakeup: Wakeup;
    /// Marks the thread that leads.
    type Leading;

    /// Returns a handle that ends [`sleep`](Self::sleep).
    fn wakeup(&self) -> Self::Wakeup;

    /// Applies a command. A [step](Self::step) follows at once.
    fn apply(&mut self, command: Self::Command);

    /// Makes one bounded step that never waits. Returns whether anything happened.
    fn step(&mut self) -> bool;

    /// Returns whether something is in flight, which goes on only with more steps.
    fn is_busy(&self) -> bool;

    /// Sleeps until an event may have happened, a wakeup has arrived since the last sleep, or
    /// `until`.
    fn sleep(&mut self, until: Instant);

    /// Marks this thread as the one that leads, until the result is dropped on it.
    fn lead(&self) -> Self::Leading;

    /// Returns the wakers of the tasks whose results are ready. The leader takes them out, steps
    /// down, and runs them.
    fn wakers(&mut self) -> &mut Vec<Waker>;
}

/// Ends a sleep, or the next one, from any thread.
pub(crate) trait Wakeup: Send + Sync {
    /// Wakes the sleeper. Several calls before the next sleep have the effect of one.
    fn wake(&self);
}

/// A result that a caller can wait for.
pub(crate) trait Awaited {
    /// Returns whether the wait is over.
    fn is_ready(&self) -> bool;

    /// Registers a listener for the end of the wait. The caller checks [`is_ready`](Self::is_ready)
    /// again afterwards.
    fn listen(&self, listener: &Listener);
}

/// A step of the machine has panicked, so no thread leads any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the engine has ended because one of its steps panicked: report the panic message, and open a new engine"
)]
pub(crate) struct LeaderPanicked;

/// A machine with its leader and followers.
pub(crate) struct LeaderFollowers<M: Drive> {
    followers: Mutex<Followers<M>>,
    /// Whether something was queued for the leader. It saves the leader from taking the lock after
    /// each step. It is changed under the lock. A leader that sleeps or steps down does not rely on
    /// it.
    has_news: AtomicBool,
    wakeup: M::Wakeup,
    mode: Progress,
    worker: Mutex<Option<thread::JoinHandle<()>>>,
    /// Unparked when the worker ends, after it has dropped its reference to this.
    worker_has_ended: Arc<Parker>,
}

impl<M: Drive> LeaderFollowers<M> {
    /// Creates a machine without a leader.
    pub(crate) fn new(machine: M, mode: Progress) -> Self {
        let wakeup = machine.wakeup();
        let followers = Mutex::new(Followers::new(machine));
        Self {
            followers,
            has_news: AtomicBool::new(false),
            wakeup,
            mode,
            worker: Mutex::new(None),
            worker_has_ended: Arc::default(),
        }
    }

    /// Queues a command. Without a leader, this thread applies it now and makes one step; otherwise
    /// the leader applies it before it sleeps or steps down. After [`LeaderPanicked`], the command
    /// is dropped.
    pub(crate) fn submit(&self, command: M::Command) {
        // It stays in its place until it is applied: it is too long to be passed around.
        let mut command = Some(command);
        let mut followers = self.followers();
        match followers.submit(&mut command) {
            SubmitAction::Lead(leader) => {
                drop(followers);
                self.lead_once(leader, &mut command);
            }
            SubmitAction::Queued { must_wake } => {
                self.has_news.store(true, Ordering::Relaxed);
                drop(followers);
                // After the lock is released: this is a system call, for which no other caller has
                // to wait.
                if must_wake {
                    self.wakeup.wake();
                }
            }
            SubmitAction::Ended => {
                // Dropping a command closes its channel and may run a waker, which may need the
                // lock.
                drop(followers);
                drop(command);
            }
        }
    }

    /// Queues a command that may take long. This thread does not apply it, so that a task can call this:
    /// the leader does, or a thread that waits, or the worker. After [`LeaderPanicked`], the command is
    /// dropped.
    pub(crate) fn queue(&self, command: M::Command) {
        let mut command = Some(command);
        let mut followers = self.followers();
        match followers.queue(&mut command) {
            QueueAction::Queued { must_wake, worker } => {
                self.has_news.store(true, Ordering::Relaxed);
                drop(followers);
                if must_wake {
                    self.wakeup.wake();
                }
                if let Some(worker) = worker {
                    worker.unpark();
                }
            }
            QueueAction::Ended => {
                // As in `submit`: a waker may run.
                drop(followers);
                drop(command);
            }
        }
    }

    /// Lets `perform` do the work of a command at once, on this thread, if no other thread leads and
    /// nothing is queued. Returns what it was given and its result. If it cannot, `command` makes the
    /// command from what it was given, which is [submitted](Self::submit).
    pub(crate) fn perform_or_submit<S, R>(
        &self,
        given: S,
        perform: impl FnOnce(&mut M, &mut S) -> Option<R>,
        command: impl FnOnce(S) -> M::Command,
    ) -> Option<(S, R)> {
        // In a statement of its own, so that the lock is released: `submit` takes it, too.
        let leader = self.followers().lead_briefly();
        let Some(leader) = leader else {
            self.submit(command(given));
            return None;
        };
        let mut result = None;
        self.lead_briefly(leader, |leader| {
            let mut given = given;
            // Commands that other callers have queued come first.
            let performed =
                if leader.commands.is_empty() { perform(&mut leader.machine, &mut given) } else { None };
            match performed {
                Some(performed) => result = Some((given, performed)),
                // This thread leads, so it applies the command itself instead of queueing it.
                None => leader.step(Some(command(given))),
            }
        });
        result
    }

    /// Waits for `awaited`, and leads if no other waiter does. Returns `false` if the deadline
    /// passed first.
    ///
    /// Called by a rail from within a step, it returns at once, because the leader would wait for
    /// itself.
    pub(crate) fn wait(&self, awaited: &dyn Awaited, deadline: Instant) -> Result<bool, LeaderPanicked> {
        if sync::is_leading() {
            return Ok(awaited.is_ready());
        }
        // A submitter leads for one step only. To ask again costs less than to park and be woken.
        let mut looks = 0..LOOKS_BEFORE_PARKING;
        let mut parking = None;
        let mut place = None;
        while !awaited.is_ready() {
            let parker = || Arc::clone(parking.get_or_insert_with(sync::parker));
            let mut followers = self.followers();
            match followers.lead_or_park(&mut place, parker, looks.next().is_some()) {
                WaitAction::Lead(leader) => {
                    drop(followers);
                    match self.lead_until(leader, awaited, deadline) {
                        // It has stepped down only to run wakers. The wait is not over.
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
                    // If the worker leads, it steps down when it sees this flag.
                    self.has_news.store(true, Ordering::Relaxed);
                    drop(followers);
                    if must_wake {
                        self.wakeup.wake();
                    }
                }
                // The result may have been sent before the panic.
                WaitAction::Ended => return if awaited.is_ready() { Ok(true) } else { Err(LeaderPanicked) },
            }
            // Registered before the check, so that a result in between unparks this thread.
            let Some(parker) = &parking else { continue };
            awaited.listen(&Listener::Thread(Arc::clone(parker)));
            if !awaited.is_ready() {
                parker.park(Some(deadline));
                // A late wakeup of an earlier wait also ends the park, so the clock decides.
                if Instant::now() >= deadline {
                    break;
                }
            }
        }
        // After a timeout, too: this thread may have been woken to lead, and must wake another one
        // then.
        let next = self.followers().leave(place);
        self.hand_over(next);
        Ok(awaited.is_ready())
    }

    /// Makes sure that a thread leads for a pending future: the worker, at once or when the leader
    /// steps down. Must be called after the future's waker was registered. Returns `false` after
    /// [`LeaderPanicked`]: no thread will lead.
    pub(crate) fn call_worker(&self) -> bool {
        let mut followers = self.followers();
        if followers.has_ended() {
            return false;
        }
        // A thread that leads needs no wakeup: it polls for the future as well, also in its sleep.
        let worker = followers.call_worker();
        drop(followers);
        if let Some(worker) = worker {
            worker.unpark();
        }
        true
    }

    /// Runs the worker until [`stop`](Self::stop) or [`LeaderPanicked`].
    pub(crate) fn run_worker(&self) {
        let parker = Arc::new(Parker::default());
        self.followers().add_worker(Arc::clone(&parker));
        loop {
            // In a statement of its own: the lock must not be held while the worker leads or parks.
            let action = self.followers().worker_action();
            match action {
                WorkerAction::Lead(leader) => self.lead_as_worker(leader),
                WorkerAction::Retry(after) => drop(parker.park(Some(Instant::now() + after))),
                WorkerAction::Rest => drop(parker.park(None)),
                WorkerAction::End => return,
            }
        }
    }

    /// Stops the worker and waits until it has ended, for at most `timeout`. It does not wait if the
    /// worker itself calls this through a waker that it runs.
    ///
    /// If this is the last reference besides the worker's, the worker drops the machine, and is
    /// waited for: that may call libraries that do not return.
    pub(crate) fn stop(self: Arc<Self>, timeout: Duration) {
        self.tell_worker_to_stop();
        // Taken out before this reference is dropped, which may be the last one besides the
        // worker's.
        let (worker, has_ended) = (lock(&self.worker).take(), Arc::clone(&self.worker_has_ended));
        drop(self);
        if let Some(worker) = worker.filter(|worker| worker.thread().id() != thread::current().id())
            // `join` has no timeout. Once the thread has dropped its reference, nothing is left
            // that may hang.
            && has_ended.park(Some(Instant::now() + timeout))
        {
            // The panic hook has reported its panic, and all waiters got an error.
            let _ = worker.join();
        }
    }

    fn tell_worker_to_stop(&self) {
        let mut followers = self.followers();
        let (must_wake, worker) = followers.stop_worker();
        // If the worker leads, it looks at the lock now, and steps down.
        self.has_news.store(true, Ordering::Relaxed);
        drop(followers);
        if must_wake {
            self.wakeup.wake();
        }
        if let Some(worker) = worker {
            worker.unpark();
        }
    }

    /// Performs the action that remains after stepping down or leaving a place.
    fn hand_over(&self, next: Handover<M>) {
        match next {
            Handover::Nothing => {}
            Handover::Wake(parker) => parker.unpark(),
            // Commands were queued while this thread led, and no other one is about to apply them.
            Handover::Lead(leader) => self.lead_once(leader, &mut None),
        }
    }

    fn followers(&self) -> MutexGuard<'_, Followers<M>> {
        lock(&self.followers)
    }
}

impl<M: Drive + 'static> LeaderFollowers<M> {
    /// Starts the worker. Must be called at most once.
    pub(crate) fn start_worker(self: &Arc<Self>) -> io::Result<()> {
        let (shared, has_ended) = (Arc::clone(self), Arc::clone(&self.worker_has_ended));
        let run = move || {
            // Dropped in reverse order, also by a panic: first the reference, then the mark.
            let _has_ended = UnparkOnDrop(has_ended);
            let shared = shared;
            shared.run_worker();
        };
        let worker = thread::Builder::new().name("farreach".to_owned()).spawn(run)?;
        *lock(&self.worker) = Some(worker);
        Ok(())
    }
}

struct UnparkOnDrop(Arc<Parker>);

impl Drop for UnparkOnDrop {
    fn drop(&mut self) {
        self.0.unpark();
    }
}

impl<M: Drive> fmt::Debug for LeaderFollowers<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderFollowers").field("mode", &self.mode).finish_non_exhaustive()
    }
}
