//! Event channels: where the events of ids arrive.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::Rdmacm;

use super::contexts::Contexts;
use super::error::Error;
use super::event::{CmEvent, EventKind, Told};
use super::id::{self, CmId};
use super::port_space::PortSpace;
use super::thread::EventThread;
use super::wait::until_readable;
use crate::fd;

/// The node that every channel is an open file of.
const NODE: &str = "/dev/infiniband/rdma_cm";

/// Where the events of ids arrive. Cheap to clone; it lives as long as a clone, or an id on it.
///
/// Three ways to wait, each with its end:
///
/// - *blocking*: [`wait_event`](Self::wait_event) sleeps until an event or the deadline comes;
/// - *non-blocking*: [`get_event`](Self::get_event) never sleeps, and the channel is a descriptor ([`AsFd`]) for `poll(2)`, epoll or
///   an async reactor, beside a completion channel if you like;
/// - *on a thread of its own*: [`spawn`](Self::spawn) hands each event to a closure until it is told to end.
///
/// Any number of threads may wait on one channel: each event goes to one of them. Calls on the ids of one channel take turns;
/// connections that should not wait for each other get channels of their own.
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
pub struct EventChannel(Arc<Inner>);

impl EventChannel {
    /// Opens one: `rdma_create_event_channel(3)`.
    #[doc(alias = "rdma_create_event_channel")]
    pub fn new() -> Result<Self, Error> {
        Self::with_contexts(Arc::default())
    }

    /// One whose ids open no device anew that is open in `contexts`.
    pub(super) fn with_contexts(contexts: Arc<Contexts>) -> Result<Self, Error> {
        let lib = Rdmacm::get()?;
        // SAFETY: the function takes nothing.
        let channel = unsafe { lib.rdma_create_event_channel() }?;
        let channel = NonNull::new(channel).ok_or_else(open_error)?;
        let channel = Self(Arc::new(Inner { lib, channel, gate: Mutex::new(()), contexts }));
        // So that getting an event never waits in the kernel, where no deadline reaches it.
        fd::set_nonblocking(channel.as_fd())
            .map_err(|error| Error::call("fcntl", NODE, error.raw_os_error().unwrap_or(0)))?;
        Ok(channel)
    }

    /// An id whose events arrive here: `rdma_create_id(3)`.
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(&self, port_space: PortSpace) -> Result<CmId, Error> {
        let mut id = null_mut();
        let channel = &self.0;
        // SAFETY: the channel lives; the id is valid for writing. Nothing is asked of it yet, so that no event can come
        // before it has its context.
        let status = unsafe {
            channel.lib.rdma_create_id(channel.channel.as_ptr(), &raw mut id, null_mut(), port_space.raw())
        }?;
        match NonNull::new(id) {
            // SAFETY: the id is new, of this channel and port space, and nobody else's.
            Some(id) if status == 0 => Ok(unsafe { id::adopt(channel, id, port_space, &channel.contexts) }),
            _ => Err(Error::call("rdma_create_id", "the event channel", last_errno())),
        }
    }

    /// The next event, if there is one: `rdma_get_cm_event(3)`, which does not wait here.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn get_event(&self) -> Result<Option<CmEvent>, Error> {
        // Ends: the kernel queues nothing for an id that is gone, so each event of one is among the last; and what is asked
        // again is not answered at once.
        loop {
            // What was taken is dropped, if it is, after the gate has been left: dropping an id enters it.
            let taken = {
                let _gate = self.0.lock();
                self.0.take()
            }?;
            match taken {
                Taken::Nothing => return Ok(None),
                Taken::Event(event) => {
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

    /// The next event: sleeps until it comes. [`Error::TimedOut`] when the deadline comes first.
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

    /// Starts a thread that hands each event to `handler`, until [`EventThread::stop`] or its drop.
    ///
    /// A queue between threads is a closure that sends into it:
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

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl AsFd for EventChannel {
    /// Readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor does not change, and is open as long as self.
        unsafe { BorrowedFd::borrow_raw((*self.0.channel.as_ptr()).fd) }
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventChannel").field("fd", &self.as_fd().as_raw_fd()).finish_non_exhaustive()
    }
}

/// The C channel, destroyed when nobody waits on it and no id is on it any more.
///
/// **The rule that everything here rests on**: librdmacm reads and writes its ids when it is called on them *and* when it gets an
/// event, without a lock of its own. So whoever does either on this channel's ids goes through its gate, one at a time; and an
/// event is acknowledged before the gate is left again, so that nothing that waits for acknowledgements ever waits.
pub(super) struct Inner {
    pub(super) lib: &'static Rdmacm,
    channel: NonNull<sys::rdma_event_channel>,
    gate: Mutex<()>,
    contexts: Arc<Contexts>,
}

// SAFETY: the library takes a channel from any thread; its ids are reached through the gate.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// What came of asking for an event.
enum Taken {
    Nothing,
    Event(CmEvent),
    /// Something of an id that is gone; a request to it comes along, and rejects itself by being dropped.
    Orphan(Option<CmId>),
}

impl Inner {
    /// Enters the gate.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        // Nothing is left half done: what the gate protects is C's.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn as_ptr(&self) -> *mut sys::rdma_event_channel {
        self.channel.as_ptr()
    }

    /// Gets an event, copies and acknowledges it, inside the gate. It drops no id.
    fn take(self: &Arc<Self>) -> Result<Taken, Error> {
        let mut event = null_mut();
        // SAFETY: the channel lives and does not block; the event is valid for writing; the gate is entered.
        let status = unsafe { self.lib.rdma_get_cm_event(self.channel.as_ptr(), &raw mut event) }?;
        let errno = last_errno();
        let Some(event) = NonNull::new(event).filter(|_| status == 0) else {
            return match errno {
                libc::EAGAIN | libc::EINTR => Ok(Taken::Nothing),
                errno => Err(Error::call("rdma_get_cm_event", "the event channel", errno)),
            };
        };
        // SAFETY: the event is good until it is acknowledged, and so are the ids that it names: destroying one waits.
        let taken = unsafe { self.read(event.as_ref(), errno) };
        // A library that has rdma_get_cm_event has this too.
        // SAFETY: acknowledged once, and not used after.
        let _ = unsafe { self.lib.rdma_ack_cm_event(event.as_ptr()) };
        Ok(taken)
    }

    /// # Safety
    ///
    /// The event is new, of this channel, and the gate is entered.
    unsafe fn read(self: &Arc<Self>, event: &sys::rdma_cm_event, errno: i32) -> Taken {
        let is_request = event.event == sys::RDMA_CM_EVENT_CONNECT_REQUEST;
        let owner = if is_request { event.listen_id } else { event.id };
        // SAFETY: the event's ids live; whether of datagrams, they tell.
        let told = unsafe {
            let is_datagram = (*owner).qp_type == sys::IBV_QPT_UD;
            Told::read(event, is_datagram, errno)
        };
        // SAFETY: every id on a channel of ours was adopted, or is the new one of a request.
        let owner = unsafe { id::find(owner) };
        if told.kind != EventKind::ConnectRequest {
            return match owner {
                Some(id) => Taken::Event(CmEvent { told, id, listener: None }),
                None => Taken::Orphan(None),
            };
        }
        let Some(id) = NonNull::new(event.id) else { return Taken::Orphan(owner) };
        let (port_space, contexts) = match &owner {
            Some(listener) => (listener.port_space(), listener.contexts()),
            None => (PortSpace::Tcp, &self.contexts),
        };
        // SAFETY: the id came with the request: it is new, of this channel and its listener's port space, and nobody else's.
        let id = unsafe { id::adopt(self, id, port_space, contexts) };
        match owner {
            Some(listener) => Taken::Event(CmEvent { told, id, listener: Some(listener) }),
            None => Taken::Orphan(Some(id)),
        }
    }
}

impl Drop for Inner {
    #[doc(alias = "rdma_destroy_event_channel")]
    fn drop(&mut self) {
        // SAFETY: every id on the channel holds it, so there is none left.
        let _ = unsafe { self.lib.rdma_destroy_event_channel(self.channel.as_ptr()) };
    }
}

/// Why a channel did not open. Refused its node, the library goes on to search for another, and the `errno` that it leaves is of
/// that search: so the node itself is asked, unless there is no device to begin with.
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

pub(super) fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
