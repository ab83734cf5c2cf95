//! Keeps an engine running.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::driver::{Command, Driver};
use crate::error::Error;
use crate::hung_call::{LibraryCalls, Timeout};
use crate::progress::{LeaderFollowers, oneshot};
use crate::time::nanoseconds;
use crate::warning::{Warning, Warnings};
use farreach_proto::time::Time;

/// An engine that runs as long as a handle of it exists: the user's engine, its peers, grants,
/// counters and pending operations. Dropping the last handle stops the worker, which drops the rest.
pub(crate) struct Running {
    /// `None` only in the drop.
    progress: Option<Arc<LeaderFollowers<Driver>>>,
    calls: LibraryCalls,
    warnings: Warnings,
    performs_max: u64,
    /// The machine's time is counted from here.
    start: Instant,
}

impl Running {
    pub(crate) fn new(
        progress: Arc<LeaderFollowers<Driver>>,
        calls: LibraryCalls,
        warnings: Warnings,
        performs_max: u64,
        start: Instant,
    ) -> Arc<Self> {
        Arc::new(Self { progress: Some(progress), calls, warnings, performs_max, start })
    }

    /// Returns the maximum length of a page that a rail performs at once.
    #[inline]
    pub(crate) fn performs_max(&self) -> u64 {
        self.performs_max
    }

    /// Returns the machine's time.
    pub(crate) fn now(&self) -> Time {
        Time::from_nanos(nanoseconds(self.start.elapsed()))
    }

    /// Lets the leader execute a call in its next step.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Driver, Time) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (command, receiver) = answered(call);
        self.submit(command);
        receiver
    }

    /// Lets another thread execute a call that may take long, or this one when it waits.
    pub(crate) fn ask_others<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Driver, Time) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (command, receiver) = answered(call);
        self.queue(command);
        receiver
    }

    /// Lets the leader execute a call in its next step, and waits for it.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Driver, Time) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let receiver = self.ask(call);
        // The receiver tells how the wait has ended, also after a panic of a step.
        let _ = self.wait(&receiver, Instant::now() + CALL_TIMEOUT);
        match receiver.take() {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(_)) => Err(Error::ended()),
            None => Err(Error::timed_out("call the engine", &self.timeout(CALL_TIMEOUT))),
        }
    }

    /// Describes a wait that has timed out, with the call into a library that is its cause, if there
    /// is one. The first time, the call becomes a warning too.
    pub(crate) fn timeout(&self, after: Duration) -> Timeout {
        let hung = self.calls.hung();
        if let Some(warning) = hung.as_ref().and_then(|hung| self.calls.warning_of(hung)) {
            self.warn(warning);
        }
        Timeout { after, hung }
    }

    pub(crate) fn warn(&self, warning: Warning) {
        self.warnings.add(warning);
    }

    /// Returns the warnings, with that of a call that has hung until now.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.timeout(Duration::ZERO);
        self.warnings.all()
    }
}

/// The timeout of a call. A step takes no longer than a registration, so after a longer wait a library
/// hangs. The call is executed when it returns.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a drop waits for the worker, which drops the rails. Their libraries may take a while, and
/// may not return at all. The worker then drops the rails when they do.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

/// Returns a command that executes a call, and the receiver of its answer.
fn answered<T: Send + 'static>(
    call: impl FnOnce(&mut Driver, Time) -> T + Send + 'static,
) -> (Command, oneshot::Receiver<T>) {
    let (sender, receiver) = oneshot::channel();
    let command = Command::Call(Box::new(move |driver: &mut Driver, now| {
        let answer = call(driver, now);
        driver.answer(sender, answer);
    }));
    (command, receiver)
}

impl Deref for Running {
    type Target = LeaderFollowers<Driver>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.progress.as_ref().expect("it is there until the drop")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A call that hangs already is not waited for.
        let timeout = if self.calls.hung().is_some() { Duration::ZERO } else { STOP_TIMEOUT };
        // By value: the worker drops the machine only when no other reference is left.
        if let Some(progress) = self.progress.take() {
            progress.stop(timeout);
        }
    }
}
