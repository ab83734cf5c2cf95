//! Event channels, which deliver the events of ids.

use std::fmt;
use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use farreach_verbs_sys::Rdmacm;

use super::contexts::Contexts;
use super::error::Error;
use super::event::{CmEvent, EventKind};
use super::handle::{Channel, Taken, last_errno};
use super::id::CmId;
use super::port_space::PortSpace;
use super::thread::EventThread;
use super::wait::until_readable;
use crate::fd;

/// The device node of event channels.
const NODE: &str = "/dev/infiniband/rdma_cm";

/// Delivers the events of ids. It is cheap to clone, and lives as long as a clone or an id on it.
///
/// There are three ways to wait, and each of them ends:
///
/// - *blocking*: [`wait_event`](Self::wait_event) sleeps until an event arrives or the deadline
///   passes;
/// - *non-blocking*: [`get_event`](Self::get_event) never sleeps, and the channel is a descriptor
///   ([`AsFd`]) for `poll(2)`, epoll or an async reactor, together with a completion channel if
///   needed;
/// - *on a thread of its own*: [`spawn`](Self::spawn) passes each event to a closure until it is
///   stopped.
///
/// Any number of threads may wait on one channel; each event goes to one of them. Calls on the ids
/// of one channel are serialised. Connections that should not wait for each other need separate
/// channels.
///
/// ```no_run
/// use std::time::{Duration, Instant};
/// use farreach_verbs::cm::{EventChannel, PortSpace};
///
/// let channel = EventChannel::new()?;
/// let id = channel.create_id(PortSpace::Tcp)?;
/// let deadline = Instant::now() + Duration::from_secs(2);
/// id.resolve_addr(None, "192.0.2.1:18520".parse().unwrap(), deadline)?;
/// println!("{}", channel.wait_event(deadline)?.kind());
/// # Ok::<(), farreach_verbs::cm::Error>(())
/// ```
#[doc(alias = "rdma_event_channel")]
#[derive(Clone)]
pub struct EventChannel(Arc<Channel>);

impl EventChannel {
    /// Opens a channel: `rdma_create_event_channel(3)`.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Self, Error> {
        Self::with_contexts(Arc::default())
    }

    /// Opens a channel whose ids reuse the devices that are open in `contexts`.
    pub(super) fn with_contexts(contexts: Arc<Contexts>) -> Result<Self, Error> {
        let lib = Rdmacm::get()?;
        let channel = Self(Channel::open(lib, contexts)?.ok_or_else(open_error)?);
        // `rdma_get_cm_event` must not block in the kernel, where no deadline applies.
        fd::set_nonblocking(channel.as_fd())
            .map_err(|error| Error::call("fcntl", NODE, error.raw_os_error().unwrap_or(0)))?;
        Ok(channel)
    }

    /// Creates an id whose events arrive on this channel: `rdma_create_id(3)`.
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(&self, port_space: PortSpace) -> Result<CmId, Error> {
        self.0.create_id(port_space).map(CmId)
    }

    /// Returns the next event, if there is one, without waiting: `rdma_get_cm_event(3)`.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn get_event(&self) -> Result<Option<CmEvent>, Error> {
        // The loop ends: the kernel queues no more events for an id that is gone, so its events are
        // among the last ones; and a repeated resolution is not answered at once.
        loop {
            match self.0.take()? {
                Taken::Nothing => return Ok(None),
                Taken::Event { told, id, listener } => {
                    let event = CmEvent { told, id: CmId(id), listener: listener.map(CmId) };
                    match event.kind() {
                        EventKind::DeviceRemoval => event.id().forget_device(),
                        EventKind::AddressError if event.id().resolve_again(event.status()) => continue,
                        _ => {}
                    }
                    return Ok(Some(event));
                }
                Taken::Orphan(id) => drop(id),
            }
        }
    }

    /// Sleeps until the next event. Returns [`Error::TimedOut`] if the deadline passes first.
    pub fn wait_event(&self, deadline: Instant) -> Result<CmEvent, Error> {
        loop {
            if let Some(event) = self.get_event()? {
                return Ok(event);
            }
            if !until_readable(&[self.as_fd()], Some(deadline))? {
                return Err(Error::TimedOut { awaited: "event", subject: "the event channel".to_owned() });
            }
        }
    }

    /// Starts a thread that passes each event to `handler`, until [`EventThread::stop`] or its
    /// drop.
    ///
    /// To queue events for another thread, pass a closure that sends them:
    ///
    /// ```no_run
    /// use std::sync::mpsc;
    /// use farreach_verbs::cm::EventChannel;
    ///
    /// let (sender, events) = mpsc::channel();
    /// let thread = EventChannel::new()?.spawn(move |event| drop(sender.send(event)))?;
    /// println!("{}", events.recv().unwrap().kind());
    /// thread.stop()?;
    /// # Ok::<(), farreach_verbs::cm::Error>(())
    /// ```
    pub fn spawn(&self, handler: impl FnMut(CmEvent) + Send + 'static) -> Result<EventThread, Error> {
        EventThread::start(self.clone(), handler)
    }

    pub(super) fn inner(&self) -> &Arc<Channel> {
        &self.0
    }
}

impl AsFd for EventChannel {
    /// Returns a descriptor that is readable while events are pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").field("fd", &self.as_fd().as_raw_fd()).finish_non_exhaustive()
    }
}

/// Returns the error for a channel that did not open. After the library is refused its node, it
/// searches for another one, and the `errno` that it leaves is that of the search. So this opens
/// the node itself to find the cause, unless there is no device at all.
fn open_error() -> Error {
    let errno = last_errno();
    let told = Error::call("rdma_create_event_channel", NODE, errno);
    if errno == libc::ENODEV {
        return told;
    }
    match OpenOptions::new().read(true).write(true).open(NODE).map_err(|error| error.raw_os_error()) {
        Err(Some(errno)) => Error::call("rdma_create_event_channel", NODE, errno),
        Err(None) | Ok(_) => told,
    }
}
