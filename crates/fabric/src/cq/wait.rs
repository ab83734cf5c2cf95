//! Waiting for something to happen.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use farreach_fabric_sys as sys;

use super::{CompletionQueue, Poller};
use crate::Error;
use crate::backoff::Backoff;

/// A sleep on a descriptor is at most this long. A provider that forgets to wake us costs a little time, and never the
/// wait's end.
const SLEEP_MAX: Duration = Duration::from_millis(50);

impl CompletionQueue {
    /// The descriptor that becomes readable when there may be something, where the provider has one. Before sleeping on it, ask
    /// [`may_sleep`](Self::may_sleep).
    ///
    /// There is none any more when an endpoint that completed to this queue was closed, where the provider then
    /// [spoils](crate::Profile::close_spoils_waits) it, or the domain is [spent](crate::Domain::is_spent): open another queue with the next endpoint.
    #[doc(alias = "FI_GETWAIT")]
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        if *self.lock_waits() {
            return None;
        }
        // SAFETY: the descriptor is the provider's, which keeps it open until the queue is closed: not before the borrow of `self` ends.
        self.0.wait_fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Whether it is safe to sleep on the descriptor: `fi_trywait(3)`. Otherwise there is something to poll for first, or no descriptor.
    #[doc(alias = "fi_trywait")]
    pub fn may_sleep(&self) -> Result<bool, Error> {
        let _moving = self.moving()?;
        let is_spoiled = self.lock_waits();
        // Without a descriptor the provider has nothing to look into, and looks all the same.
        if *is_spoiled || self.0.wait_fd.is_none() {
            return Ok(false);
        }
        let fabric = self.domain().fabric();
        // SAFETY: `before_close_of_endpoint` marks the queue before an endpoint is closed where that spoils waits. The mark is not there, and comes
        // no sooner than the lock is let go of, after the call.
        match unsafe { fabric.handle().trywait(self.handle()) } {
            0 => Ok(true),
            status if status == -sys::FI_EAGAIN => Ok(false),
            status => Err(fabric.library().error("fi_trywait", status)),
        }
    }
}

impl Poller<'_> {
    /// Waits until there is something to take, at most until `deadline`; whether there is. It keeps the provider moving
    /// meanwhile, and sleeps on the queue's descriptor where there is one.
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
            // A short while of looking costs less than a sleep.
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

/// Until the descriptor is readable, or the time is over, or a signal comes: whoever waits looks again anyway.
fn sleep_on(fd: BorrowedFd<'_>, time: Duration) {
    let mut polled = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let timeout_ms = time.as_millis().max(1) as i32;
    // SAFETY: `polled` is one entry, a local, and its descriptor is open as long as it is borrowed.
    unsafe { libc::poll(&raw mut polled, 1, timeout_ms) };
}
