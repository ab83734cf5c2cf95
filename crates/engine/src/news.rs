//! What is told of all peers together: messages, events, and that there will be no more of either.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use crate::events::EventQueue;
use crate::inboxes::Inboxes;

/// See the [module](self). The leader tells, and the handles of the engine and its peers take.
#[derive(Debug, Default)]
pub(crate) struct News {
    pub(crate) inboxes: Inboxes,
    pub(crate) events: EventQueue,
    /// Whether the program has closed the engine, or has dropped its last handle: it can get no further
    /// peer.
    is_closed: AtomicBool,
    /// Whether the machine is gone.
    has_ended: AtomicBool,
}

impl News {
    /// Notes that the program gets no further peer.
    pub(crate) fn close(&self, wakers: &mut Vec<Waker>) {
        // The flag comes first. Who is woken looks at it.
        self.is_closed.store(true, Ordering::SeqCst);
        self.notify(wakers);
    }

    /// Notes that the machine is gone.
    pub(crate) fn end(&self, wakers: &mut Vec<Waker>) {
        // As in `close`: the flag comes first.
        self.has_ended.store(true, Ordering::SeqCst);
        self.notify(wakers);
    }

    /// Notes that a peer is lost, or its last handle: it may have been the last peer.
    pub(crate) fn note_parting(&self, wakers: &mut Vec<Waker>) {
        // An engine that is not closed may get another peer, so the last one ends no wait.
        if self.is_closed.load(Ordering::SeqCst) {
            self.notify(wakers);
        }
    }

    /// Returns whether the program gets no further peer.
    pub(crate) fn is_closed(&self) -> bool {
        // A machine that has panicked is gone although the program has closed nothing.
        self.is_closed.load(Ordering::SeqCst) || self.has_ended.load(Ordering::SeqCst)
    }

    /// Returns whether nothing more will be told. `has_peers` says whether a peer is left of which the
    /// program has a handle.
    pub(crate) fn is_over(&self, has_peers: impl FnOnce() -> bool) -> bool {
        // The peers are asked for last, because that takes a lock.
        self.has_ended.load(Ordering::SeqCst) || (self.is_closed.load(Ordering::SeqCst) && !has_peers())
    }

    fn notify(&self, wakers: &mut Vec<Waker>) {
        self.inboxes.watch.notify(wakers);
        self.events.watch.notify(wakers);
    }
}
