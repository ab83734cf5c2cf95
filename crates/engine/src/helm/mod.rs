//! Who drives: the one machine of an engine is driven by one thread at a time, and whoever waits is the first choice.
//!
//! Callers leave commands and never wait for another one's step. If nobody drives, the caller takes the helm for one step, so that what it
//! asked for leaves on its own thread. Somebody who waits takes the helm and keeps it until the wait ends: an answer needs no other
//! thread. The next one who waits meanwhile parks, and gets the helm afterwards. A worker, where there is one, drives when nobody else
//! does: for futures, and for peers while all callers are busy elsewhere.
//!
//! | file | what |
//! |---|---|
//! | `seats` | who has the helm, who would like it, what was left: the decisions, behind one lock |
//! | `steer` | what the one at the helm does |
//! | `pace` | step again, let others run, or sleep |
//! | `ticket` | one answer for whoever asked |
//! | `model` | all of it in every order of the threads: `cargo xtask model` |

#[cfg(all(loom, test))]
mod model;
mod pace;
mod seats;
mod steer;
pub(crate) mod sync;
#[cfg(all(test, not(loom)))]
mod tests;
mod ticket;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

pub use pace::Progress;
pub(crate) use sync::{FAR_AWAY, wake};
pub(crate) use ticket::{Promise, Ticket, promise};

use seats::{Look, Next, Seats, Submitted, Turn};
use sync::{AtomicBool, LOOKS_BEFORE_PARKING, Mutex, MutexGuard, Ordering, Parker, lock, thread};

/// What is driven.
pub(crate) trait Drive: Send {
    /// What callers ask of it.
    type Command: Send;
    /// What ends its sleep.
    type Bell: Ring;

    /// The bell that ends [`sleep`](Self::sleep).
    fn bell(&self) -> Self::Bell;

    /// Takes a command.
    fn apply(&mut self, command: Self::Command);

    /// One step: bounded, and never waiting. Whether anything has happened.
    fn step(&mut self) -> bool;

    /// Sleeps until something may have happened, the bell is rung or was since the last sleep, or `until`.
    fn sleep(&mut self, until: Instant);
}

/// Ends a sleep, or the next one, from any thread.
pub(crate) trait Ring: Send + Sync {
    /// Rings. Rings in between are one.
    fn ring(&self);
}

/// What somebody can wait for.
pub(crate) trait Awaited {
    /// Whether the wait is over.
    fn is_ready(&self) -> bool;

    /// Whom to wake when it is. Whoever registers looks once more afterwards.
    fn wake(&self, waker: &Waker);
}

/// The machine panicked in a step, so nobody drives it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the engine has ended by a panic in one of its own steps: see the panic's message, and make a new engine"
)]
pub(crate) struct HelmLost;

/// A machine, and who drives it.
pub(crate) struct Helm<M: Drive> {
    seats: Mutex<Seats<M>>,
    /// Whether something was left for the driver, so that it takes no lock after each step. Changed under the lock. A driver that
    /// sleeps or lets go does not rely on it.
    has_news: AtomicBool,
    bell: M::Bell,
    progress: Progress,
    worker: Mutex<Option<thread::JoinHandle<()>>>,
}

impl<M: Drive> Helm<M> {
    /// Nobody drives.
    pub(crate) fn new(machine: M, progress: Progress) -> Self {
        let bell = machine.bell();
        let seats = Mutex::new(Seats::new(machine));
        Self { seats, has_news: AtomicBool::new(false), bell, progress, worker: Mutex::new(None) }
    }

    /// Leaves a command. If nobody drives, it is applied here and now, with one step; otherwise the driver applies it before it sleeps or
    /// lets go. After [`HelmLost`] it is dropped.
    pub(crate) fn submit(&self, command: M::Command) {
        let mut seats = self.seats();
        match seats.submit(command) {
            Submitted::Drive(wheel, command) => {
                drop(seats);
                self.drive_once(wheel, Some(command));
            }
            Submitted::Left { must_ring } => {
                self.has_news.store(true, Ordering::Relaxed);
                drop(seats);
                if must_ring {
                    self.bell.ring();
                }
            }
            Submitted::Lost(command) => {
                drop(seats);
                drop(command);
            }
        }
    }

    /// Waits, and drives if nobody else who waits does. Whether it is ready; `false` after the deadline.
    ///
    /// Called by a waker, which the driver itself runs, it does not wait: what it would wait for is done by the one who is in the waker.
    pub(crate) fn wait(&self, awaited: &dyn Awaited, deadline: Instant) -> Result<bool, HelmLost> {
        if sync::is_driving() {
            return Ok(awaited.is_ready());
        }
        let mut looks = 0..LOOKS_BEFORE_PARKING;
        let mut parking = None;
        let mut place = None;
        while !awaited.is_ready() {
            let parker = || Arc::clone(parking.get_or_insert_with(|| Arc::new(Parker::default())));
            let mut seats = self.seats();
            match seats.take_or_park(&mut place, parker, looks.next().is_some()) {
                Turn::Drive(wheel) => {
                    drop(seats);
                    return Ok(self.drive_until(wheel, awaited, deadline));
                }
                Turn::Again => {
                    drop(seats);
                    thread::yield_now();
                    continue;
                }
                Turn::Park { must_ring } => {
                    // The driver may be the worker, which lets go when it sees this.
                    self.has_news.store(true, Ordering::Relaxed);
                    drop(seats);
                    if must_ring {
                        self.bell.ring();
                    }
                }
                Turn::Lost => return if awaited.is_ready() { Ok(true) } else { Err(HelmLost) },
            }
            let Some(parker) = &parking else { continue };
            awaited.wake(&Waker::from(Arc::clone(parker)));
            if !awaited.is_ready() {
                parker.park(Some(deadline));
                if Instant::now() >= deadline {
                    break;
                }
            }
        }
        let next = self.seats().leave(place);
        self.go_on(next);
        Ok(awaited.is_ready())
    }

    /// For a future that is pending: if nobody drives, the worker does at once, and otherwise when the driver lets go. To be called after
    /// the future's waker was registered.
    pub(crate) fn call_worker(&self) {
        let worker = self.seats().call_worker();
        if let Some(worker) = worker {
            worker.unpark();
        }
    }

    /// The worker's life, until [`stop`](Self::stop) or [`HelmLost`].
    pub(crate) fn run_worker(&self) {
        let parker = Arc::new(Parker::default());
        self.seats().hire(Arc::clone(&parker));
        loop {
            let look = self.seats().look();
            match look {
                Look::Drive(wheel) => self.drive_as_worker(wheel),
                Look::Again => parker.park(Some(Instant::now() + pace::LOOK_EVERY)),
                Look::Rest => parker.park(None),
                Look::End => return,
            }
        }
    }

    /// Ends the worker, and waits for its end; unless it is the worker itself that stops, by way of a waker that it runs.
    pub(crate) fn stop(&self) {
        self.tell_worker_to_stop();
        let worker = lock(&self.worker).take();
        if let Some(worker) = worker.filter(|worker| worker.thread().id() != thread::current().id()) {
            // How it panicked was told then, and whoever waited knows.
            let _ = worker.join();
        }
    }

    fn tell_worker_to_stop(&self) {
        let mut seats = self.seats();
        let (must_ring, worker) = seats.stop_worker();
        self.has_news.store(true, Ordering::Relaxed);
        drop(seats);
        if must_ring {
            self.bell.ring();
        }
        if let Some(worker) = worker {
            worker.unpark();
        }
    }

    /// Does what is left to do after letting go, or giving up a place.
    fn go_on(&self, next: Next<M>) {
        match next {
            Next::Nothing => {}
            Next::Wake(parker) => parker.unpark(),
            Next::Drive(wheel) => self.drive_once(wheel, None),
        }
    }

    fn seats(&self) -> MutexGuard<'_, Seats<M>> {
        lock(&self.seats)
    }
}

impl<M: Drive + 'static> Helm<M> {
    /// Starts a worker, once.
    pub(crate) fn start_worker(self: &Arc<Self>) -> io::Result<()> {
        let helm = Arc::clone(self);
        let worker = thread::Builder::new().name("farreach".to_owned()).spawn(move || helm.run_worker())?;
        *lock(&self.worker) = Some(worker);
        Ok(())
    }
}

impl<M: Drive> fmt::Debug for Helm<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Helm").field("progress", &self.progress).finish_non_exhaustive()
    }
}
