//! Ends a sleep from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::progress;
use crate::progress::sync::{AtomicU8, Ordering};

/// Ends a sleep in [`Control::sleep`](super::Control::sleep), or the next one, from any thread.
///
/// Several wakeups before the next sleep have the effect of one. A wakeup while no thread sleeps
/// costs no system call.
#[derive(Debug, Clone)]
pub(crate) struct Wakeup(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: WakeupState,
    eventfd: OwnedFd,
}

impl Wakeup {
    pub(super) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared { state: WakeupState::new(), eventfd })))
    }

    /// Returns whether the sleeper may sleep: no wakeup has arrived since it last woke up.
    pub(super) fn fall_asleep(&self) -> bool {
        self.0.state.fall_asleep()
    }

    /// Notes that the sleeper is awake again, for whatever reason.
    pub(super) fn wake_up(&self) {
        self.0.state.wake_up();
    }
}

impl progress::Wakeup for Wakeup {
    fn wake(&self) {
        if self.0.state.signal() {
            // The write fails only with EAGAIN, after 2⁶⁴ - 2 unread wakeups.
            let _ = rustix::io::write(&self.0.eventfd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }
}

/// Decides whether a wakeup has to write to the eventfd.
///
/// The sleeper and the thread that wakes it each change this one word in a single atomic operation,
/// so one of them is first. If the wakeup is first, the sleeper stays awake. If the sleeper is
/// first, the wakeup sees that it is asleep.
#[derive(Debug)]
pub(crate) struct WakeupState(AtomicU8);

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const SIGNALLED: u8 = 2;

impl WakeupState {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// Returns whether the sleeper is asleep and has to be woken. A sleeper that this keeps awake
    /// sees all writes that were made before the call.
    pub(crate) fn signal(&self) -> bool {
        // Also if the sleeper is awake: it may have looked for work already, and be about to sleep.
        self.0.swap(SIGNALLED, Ordering::AcqRel) == ASLEEP
    }

    /// Returns `false` if there was a signal since the last [`wake_up`](Self::wake_up).
    pub(crate) fn fall_asleep(&self) -> bool {
        let fell = self.0.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok();
        // This signal has had its effect. The next sleep must not end because of it.
        if !fell {
            self.wake_up();
        }
        fell
    }

    pub(crate) fn wake_up(&self) {
        // A swap, because a store would not acquire: what a waker has written before its signal
        // must be seen after the sleep.
        self.0.swap(AWAKE, Ordering::AcqRel);
    }
}
