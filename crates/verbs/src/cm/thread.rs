//! A thread that handles events.

use std::io::{self, PipeWriter};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use super::channel::EventChannel;
use super::error::Error;
use super::event::CmEvent;
use super::wait::until_readable;

/// A thread that hands the events of a channel to a closure: [`EventChannel::spawn`].
///
/// Dropping it ends the thread and waits until the closure has returned from the event that it is at; dropped *by* the closure, it
/// ends the thread without waiting for itself.
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
    /// Closing it wakes and ends the thread.
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
                // One event, then a look whether to end: a busy channel cannot keep the thread from it.
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

    /// Whether it still takes events. It ends by itself only if the channel fails.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Ends it, and tells why it had ended before if it had. A panic of the closure goes on here.
    pub fn stop(mut self) -> Result<(), Error> {
        match self.end() {
            None => Ok(()),
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
        }
    }

    /// The thread's outcome, unless it is the thread itself that asks.
    fn end(&mut self) -> Option<thread::Result<Result<(), Error>>> {
        self.stop = None;
        let thread = self.thread.take()?;
        (thread.thread().id() != thread::current().id()).then(|| thread.join())
    }
}

impl Drop for EventThread {
    fn drop(&mut self) {
        // Whoever wants the outcome calls `stop`.
        let _ = self.end();
    }
}
