//! What ends a sleep from outside.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::helm::Ring;
use crate::helm::sync::{AtomicU8, Ordering};

/// Ends a sleep in [`Control::sleep`](super::Control::sleep), or the next one, from any thread.
///
/// Rings in between are one. One that finds nobody asleep costs no system call.
#[derive(Debug, Clone)]
pub(crate) struct Bell(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clapper: Clapper,
    eventfd: OwnedFd,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared { clapper: Clapper::new(), eventfd })))
    }

    /// Whether the sleeper may sleep: nobody has rung since it last woke up.
    pub(super) fn fall_asleep(&self) -> bool {
        self.0.clapper.fall_asleep()
    }

    /// The sleeper is awake again, whatever woke it.
    pub(super) fn wake_up(&self) {
        self.0.clapper.wake_up();
    }
}

impl Ring for Bell {
    fn ring(&self) {
        if self.0.clapper.strike() {
            // It says EAGAIN after 2⁶⁴ - 2 rings, and fails in no other way.
            let _ = rustix::io::write(&self.0.eventfd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.eventfd.as_fd()
    }
}

/// Whether a ring has to wake somebody.
///
/// Sleeper and ringer each change this one word in a single operation. So one of them is first: a ring that is first keeps the
/// sleeper awake, and a sleeper that is first is seen to be asleep.
#[derive(Debug)]
pub(crate) struct Clapper(AtomicU8);

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const RUNG: u8 = 2;

impl Clapper {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(AWAKE))
    }

    /// Whether the sleeper is asleep, so that it has to be woken. What was done before is seen by whoever this keeps from sleeping.
    pub(crate) fn strike(&self) -> bool {
        self.0.swap(RUNG, Ordering::AcqRel) == ASLEEP
    }

    /// `false` if it was struck since the last [`wake_up`](Self::wake_up).
    pub(crate) fn fall_asleep(&self) -> bool {
        let fell = self.0.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !fell {
            self.wake_up();
        }
        fell
    }

    pub(crate) fn wake_up(&self) {
        self.0.swap(AWAKE, Ordering::AcqRel);
    }
}
