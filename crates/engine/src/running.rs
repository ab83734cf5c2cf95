//! Keeps an engine running.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::driver::{Command, Driver};
use crate::error::Error;
use crate::progress::{LeaderFollowers, oneshot};

/// An engine that runs as long as a handle of it exists: the user's engine, its peers, grants,
/// counters and pending operations. Dropping the last handle stops the worker and then drops the
/// rest.
pub(crate) struct Running(Arc<LeaderFollowers<Driver>>);

impl Running {
    pub(crate) fn new(progress: Arc<LeaderFollowers<Driver>>) -> Arc<Self> {
        Arc::new(Self(progress))
    }

    /// Lets the leader execute a call in its next step.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Driver, u64) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.submit(Command::Call(Box::new(move |driver, now| {
            let answer = call(driver, now);
            driver.answer(sender, answer);
        })));
        receiver
    }

    /// Lets the leader execute a call in its next step, and waits for it.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Driver, u64) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let receiver = self.ask(call);
        let _ = self.wait(&receiver, Instant::now() + CALL_TIMEOUT);
        match receiver.take() {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(_)) => Err(Error::ended()),
            None => Err(Error::timed_out("call the engine", CALL_TIMEOUT)),
        }
    }
}

/// The timeout of a call. A step takes no longer than a registration, so a longer wait is a defect.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

impl Deref for Running {
    type Target = LeaderFollowers<Driver>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
    }
}
