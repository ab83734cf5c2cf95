//! Sees to it that a lost peer ends this process, also where a library does not let it.
//!
//! Over shared memory, libfabric 1.17 takes locks that lie in the memory of both processes. One that is killed while it holds such a lock leaves the
//! other in a loop without end, inside the library, which no deadline of ours reaches.

use std::net::TcpStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use farreach::Engine;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long an engine may take to find out by itself that its peer is gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// Watches until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard(Arc<Mutex<Option<Engine>>>);

impl Guard {
    /// Watches the connection to a peer. When it has ended, and the engine answers nothing any more, `give_up` is called, which ends the process.
    pub(crate) fn new(
        connection: TcpStream,
        engine: &Engine,
        give_up: impl FnOnce() + Send + 'static,
    ) -> Self {
        let guard = Self(Arc::new(Mutex::new(Some(engine.clone()))));
        let watched = Arc::clone(&guard.0);
        let watch = move || {
            wait_for_end(&connection);
            // Held meanwhile, so that the engine does not outlive its owner: that would leave its files behind.
            let engine = watched.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(engine) = &*engine else { return };
            let (answered, answer) = mpsc::channel();
            thread::spawn(move || {
                if answer.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    give_up();
                }
            });
            // Whatever it says: it is not inside of the library for ever.
            let _ = engine.peer_count();
            let _ = answered.send(());
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

fn wait_for_end(connection: &TcpStream) {
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    loop {
        let mut fds = [PollFd::new(connection, PollFlags::RDHUP)];
        // Nothing is read here: that is the engine's to do.
        let found = poll(&mut fds, None::<&Timespec>);
        if found.is_ok() && fds[0].revents().intersects(ended) {
            return;
        }
    }
}
