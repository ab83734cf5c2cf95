//! Sees to it that a lost peer ends this process, also where a library does not let it.
//!
//! Over shared memory, libfabric 1.17 takes locks that lie in the memory of both processes. One that is killed or stopped while it holds such a lock
//! leaves the other in a loop without end, inside the library, which no deadline of ours reaches.

use std::net::TcpStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use farreach::Engine;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How often the engine is asked whether it answers.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// How long it may take: cards that are cut off have kept it for three seconds.
const PATIENCE: Duration = Duration::from_secs(6);

/// How long its end may take, which is that of all its queue pairs and regions.
const CLOSING_PATIENCE: Duration = Duration::from_secs(10);

/// How long it has beside, if this whole process did not run meanwhile.
const AND_THEN: Duration = Duration::from_secs(1);

/// Watches until it is dropped.
pub(crate) struct Guard {
    engine: Arc<Mutex<Option<Engine>>>,
    give_up: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl Guard {
    /// Watches an engine and its connection to a peer. Where it answers nothing any more, `give_up` is called, which ends the process.
    pub(crate) fn new(
        connection: TcpStream,
        engine: &Engine,
        give_up: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let guard = Self { engine: Arc::new(Mutex::new(Some(engine.clone()))), give_up: Arc::new(give_up) };
        let (watched, give_up) = (Arc::clone(&guard.engine), Arc::clone(&guard.give_up));
        let watch = move || {
            loop {
                let has_ended = ends_within(&connection, ASK_EVERY);
                {
                    // Held meanwhile, so that the engine does not outlive its owner: that would leave its files behind.
                    let engine = watched.lock().unwrap_or_else(PoisonError::into_inner);
                    let Some(engine) = &*engine else { return };
                    within(PATIENCE, &give_up, || engine.peer_count());
                }
                // One that answers now may go on to take leave of the lost peer, and not come back from that.
                if has_ended {
                    thread::sleep(ASK_EVERY);
                }
            }
        };
        // Without a thread to be had there is no guard, and in most cases none is needed.
        let _ = thread::Builder::new().name("guard".to_owned()).spawn(watch);
        guard
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The engine ends with its owner, in good order; unless the library does not come back from that, either.
        let engine = self.engine.lock().unwrap_or_else(PoisonError::into_inner).take();
        within(CLOSING_PATIENCE, &self.give_up, || drop(engine));
    }
}

/// Does something that a library may never come back from: whatever comes of it, it is in time, or `give_up` is called.
fn within<T>(patience: Duration, give_up: &Arc<dyn Fn() + Send + Sync>, work: impl FnOnce() -> T) {
    let (done, is_done) = mpsc::channel();
    let give_up = Arc::clone(give_up);
    thread::spawn(move || {
        let is_silent = |time| is_done.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        if is_silent(patience) && is_silent(AND_THEN) {
            give_up();
        }
    });
    work();
    let _ = done.send(());
}

/// Whether a connection has ended, or does meanwhile. Nothing is read here: that is the engine's to do.
fn ends_within(connection: &TcpStream, patience: Duration) -> bool {
    let mut fds = [PollFd::new(connection, PollFlags::RDHUP)];
    let timeout = Timespec::try_from(patience).ok();
    let found = poll(&mut fds, timeout.as_ref());
    found.is_ok() && fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}
