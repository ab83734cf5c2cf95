//! A thread that handles events.

use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use super::channel::EventChannel;
use super::error::Error;
use super::event::CmEvent;
use super::wait::until_readable;

/// A thread that passes the events of a channel to a closure: [`EventChannel::spawn`].
///
/// Dropping it stops the thread and waits until the closure has returned from the current event. If
/// the closure itself drops it, the thread stops without waiting for itself.
///
/// ```no_run
/// use farreach_verbs::cm::EventChannel;
///
/// let thread = EventChannel::new()?.spawn(|event| println!("{}", event.kind()))?;
/// thread.stop()?;
/// # Ok::<(), farreach_verbs::cm::Error>(())
/// ```
#[derive(Debug)]
pub struct EventThread {
    /// Closing the pipe wakes and stops the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl EventThread {
    pub(super) fn start(
        channel: EventChannel,
        mut handler: impl FnMut(CmEvent) + Send + 'static,
    ) -> Result<Self, Error> {
        let refused = |operation, error: io::Error| {
            Error::call(operation, "the event thread", error.raw_os_error().unwrap_or(0))
        };
        let (stopped, stop) = io::pipe().map_err(|error| refused("pipe", error))?;
        let body = move || {
            loop {
                until_readable(&[channel.as_fd(), stopped.as_fd()], None)?;
                // Checks for the stop before each event, so that a busy channel cannot delay it.
                if until_readable(&[stopped.as_fd()], Some(std::time::Instant::now()))? {
                    return Ok(());
                }
                if let Some(event) = channel.get_event()? {
                    handler(event);
                }
            }
        };
        let thread = thread::Builder::new()
            .name("rdma-cm-events".to_owned())
            .spawn(body)
            .map_err(|error| refused("pthread_create", error))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// Returns `true` while the thread takes events. It ends by itself only if the channel fails.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Stops the thread. Returns the error that ended it before, if any. Resumes a panic of the
    /// closure.
    pub fn stop(mut self) -> Result<(), Error> {
        match self.end() {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }

    /// Returns the thread's result, or `None` if it is called on the thread itself.
    fn end(&mut self) -> Option<thread::Result<Result<(), Error>>> {
        self.stop = None;
        let thread = self.thread.take()?;
        (thread.thread().id() != thread::current().id()).then(|| thread.join())
    }
}

impl Drop for EventThread {
    fn drop(&mut self) {
        // `stop` returns the result.
        let _ = self.end();
    }
}
