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

/// How long it has beside, if this whole process did not run meanwhile.
const AND_THEN: Duration = Duration::from_secs(1);

/// Watches until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard(Arc<Mutex<Option<Engine>>>);

impl Guard {
    /// Watches an engine and its connection to a peer. Where it answers nothing any more, `give_up` is called, which ends the process.
    pub(crate) fn new(
        connection: TcpStream,
        engine: &Engine,
        give_up: impl FnOnce() + Clone + Send + 'static,
    ) -> Self {
        let guard = Self(Arc::new(Mutex::new(Some(engine.clone()))));
        let watched = Arc::clone(&guard.0);
        let watch = move || {
            let mut has_ended = false;
            while !has_ended {
                has_ended = ends_within(&connection, ASK_EVERY);
                // Held meanwhile, so that the engine does not outlive its owner: that would leave its files behind.
                let engine = watched.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(engine) = &*engine else { return };
                ask(engine, give_up.clone());
            }
        };
        // Without a thread to be had there is no guard, and in most cases none is needed.
        let _ = thread::Builder::new().name("guard".to_owned()).spawn(watch);
        guard
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The engine ends with its owner, in good order.
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Whatever the engine answers, it is not inside of a library for ever.
fn ask(engine: &Engine, give_up: impl FnOnce() + Send + 'static) {
    let (answered, answer) = mpsc::channel();
    thread::spawn(move || {
        let is_silent = |patience| answer.recv_timeout(patience) == Err(RecvTimeoutError::Timeout);
        if is_silent(PATIENCE) && is_silent(AND_THEN) {
            give_up();
        }
    });
    let _ = engine.peer_count();
    let _ = answered.send(());
}

/// Whether a connection has ended, or does meanwhile. Nothing is read here: that is the engine's to do.
fn ends_within(connection: &TcpStream, patience: Duration) -> bool {
    let mut fds = [PollFd::new(connection, PollFlags::RDHUP)];
    let timeout = Timespec::try_from(patience).ok();
    let found = poll(&mut fds, timeout.as_ref());
    found.is_ok() && fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}
