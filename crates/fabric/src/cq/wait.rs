//! Waiting for completions.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use farreach_fabric_sys as sys;

use super::{CompletionQueue, Poller};
use crate::Error;
use crate::backoff::Backoff;

/// The maximum sleep on a descriptor. A provider that fails to wake the sleeper costs a little
/// time, but does not prolong the wait beyond its deadline.
const SLEEP_MAX: Duration = Duration::from_millis(50);

impl CompletionQueue {
    /// Returns the descriptor that becomes readable when there may be events, if the provider has
    /// one. Call [`may_sleep`](Self::may_sleep) before sleeping on it.
    ///
    /// It returns `None` after an endpoint that completed to this queue was closed, if that
    /// [spoils](crate::Profile::close_spoils_waits) the descriptor with this provider, or if the
    /// domain is [spent](crate::Domain::is_spent): open another queue with the next endpoint.
    #[doc(alias = "FI_GETWAIT")]
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        if *self.lock_waits() {
            return None;
        }
        // SAFETY: the provider owns the descriptor and keeps it open until the queue is closed,
        // which is not before the borrow of `self` ends.
        self.0.wait_fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Returns `true` if it is safe to sleep on the descriptor: `fi_trywait(3)`. Otherwise there is
    /// something to poll first, or no descriptor.
    #[doc(alias = "fi_trywait")]
    pub fn may_sleep(&self) -> Result<bool, Error> {
        let _moving = self.moving()?;
        let is_spoiled = self.lock_waits();
        // Without a descriptor the provider has nothing to check, but accesses its wait set
        // nevertheless.
        if *is_spoiled || self.0.wait_fd.is_none() {
            return Ok(false);
        }
        let fabric = self.domain().fabric();
        // SAFETY: `before_close_of_endpoint` marks the queue before an endpoint is closed, if that
        // spoils waits. The mark is not set, and cannot be set before the lock is released, after
        // the call.
        match unsafe { fabric.handle().trywait(self.handle()) } {
            0 => Ok(true),
            status if status == -sys::FI_EAGAIN => Ok(false),
            status => Err(fabric.library().error("fi_trywait", status)),
        }
    }
}

impl Poller<'_> {
    /// Waits until there are events, at most until `deadline`. Returns `false` if the deadline
    /// passed first. It lets the provider make progress meanwhile, and sleeps on the queue's
    /// descriptor if there is one.
    pub fn wait(&mut self, deadline: Instant) -> Result<bool, Error> {
        let mut backoff = Backoff::new();
        loop {
            if self.fill()? {
                return Ok(true);
            }
            let now = Instant::now();
            if now >= deadline {
                return Ok(false);
            }
            let left = deadline - now;
            // Polling for a short while costs less than a sleep.
            if backoff.is_spinning() {
                backoff.pause(left);
                continue;
            }
            match self.cq().wait_fd() {
                Some(fd) if self.cq().may_sleep()? => sleep_on(fd, left.min(SLEEP_MAX)),
                Some(_) => thread::yield_now(),
                None => backoff.pause(left),
            }
        }
    }
}

/// Sleeps until the descriptor is readable, the time is over, or a signal comes: the caller polls
/// again in any case.
fn sleep_on(fd: BorrowedFd<'_>, time: Duration) {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout_ms = time.as_millis().max(1) as i32;
    // SAFETY: `polled` is one entry, a local, and its descriptor is open as long as it is borrowed.
    unsafe { libc::poll(&raw mut polled, 1, timeout_ms) };
}
