//! Closes descriptors that could let this thread wait.
//!
//! Another process may pass any descriptor. To close the last one of a socket waits for its data
//! (`SO_LINGER`), and to close one of a file asks its file system, which may be a program of that process
//! (FUSE); so does `fstat`. Packets that were not received have descriptors, too, and whoever closes the socket
//! closes them. Files in memory do not wait, so they alone are looked at and closed by the thread that polls.
//! One thread closes all others and all sockets, in their order.
//!
//! Who lets it wait costs this process the descriptors that are to be closed after it. While there are many,
//! no connection is accepted ([`is_behind`]), and a wrong descriptor ends the link that it came over.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::{io, thread};

use farreach_memory::process_epoch;
use rustix::fs::fcntl_get_seals;

/// The descriptors that may wait to be closed, before no connection is accepted.
const WAITING_MAX: usize = 128;

/// Descriptors that wait to be closed.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The way to the thread, and the process that has started it.
static CLOSER: Mutex<Option<(u64, Sender<OwnedFd>)>> = Mutex::new(None);

/// Returns whether a descriptor is a file in memory. The call does not wait, whatever it is.
pub(crate) fn is_memory(descriptor: &OwnedFd) -> bool {
    fcntl_get_seals(descriptor.as_fd()).is_ok()
}

/// Returns whether many descriptors wait to be closed.
pub(crate) fn is_behind() -> bool {
    WAITING.load(Ordering::Relaxed) > WAITING_MAX
}

/// Closes a descriptor in another thread.
pub(crate) fn close(descriptor: OwnedFd) {
    let epoch = process_epoch();
    // It is replaced as a whole.
    let mut closer = CLOSER.lock().unwrap_or_else(PoisonError::into_inner);
    // A forked child has no thread.
    if closer.as_ref().is_none_or(|(of, _)| *of != epoch) {
        WAITING.store(0, Ordering::Relaxed);
        *closer = start().ok().map(|sender| (epoch, sender));
    }
    // A process that may have no more threads has to close it here.
    let Some((_, sender)) = &*closer else { return };
    WAITING.fetch_add(1, Ordering::Relaxed);
    // The thread ends only with the process.
    let _ = sender.send(descriptor);
}

fn start() -> io::Result<Sender<OwnedFd>> {
    let (sender, receiver) = channel::<OwnedFd>();
    let close = move || {
        for descriptor in receiver {
            drop(descriptor);
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
    };
    thread::Builder::new().name("farreach-close".to_owned()).spawn(close).map(|_| sender)
}
