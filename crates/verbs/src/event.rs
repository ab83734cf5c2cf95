//! Asynchronous events of a device, which no work request has caused.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use farreach_verbs_sys as sys;

use crate::context::Context;
use crate::error::Error;
use crate::fd;

/// The asynchronous events of an open device. Its descriptor is readable while an event is pending,
/// and non-blocking.
///
/// Invariant: every event is acknowledged before it is returned, so holding an event does not block
/// the destruction of its object.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use std::time::Duration;
/// use farreach_verbs::event::AsyncEvent;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// match context.async_events()?.wait(Some(Duration::from_secs(1)))? {
///     Some(AsyncEvent::Port { port, kind }) => println!("port {port}: {kind}"),
///     Some(other) => println!("{other}"),
///     None => println!("nothing within a second"),
/// }
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct AsyncEvents(Context);

/// One event, with the object that it concerns.
///
/// ```
/// use farreach_verbs::event::{AsyncEvent, EventType};
///
/// let event = AsyncEvent::Port { port: 1, kind: EventType::PortError };
/// assert_eq!(event.to_string(), "port 1: port error");
/// ```
#[doc(alias = "ibv_async_event")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// An event of a port.
    Port {
        /// The port number.
        port: u8,
        /// The type of the event.
        kind: EventType,
    },
    /// An event of a queue pair.
    QueuePair {
        /// The [number](crate::qp::QueuePair::qp_num) of the queue pair.
        qp_num: u32,
        /// The type of the event.
        kind: EventType,
    },
    /// An event of a completion queue.
    CompletionQueue {
        /// The [handle](crate::cq::CompletionQueue::handle) of the completion queue.
        handle: u32,
        /// The type of the event.
        kind: EventType,
    },
    /// An event of a shared receive queue.
    SharedReceiveQueue {
        /// The [handle](crate::srq::SharedReceiveQueue::handle) of the shared receive queue.
        handle: u32,
        /// The type of the event.
        kind: EventType,
    },
    /// An event of the device, or of an object that this crate does not know.
    Device {
        /// The type of the event.
        kind: EventType,
    },
}

impl AsyncEvent {
    /// Returns the type of the event.
    pub fn kind(&self) -> EventType {
        match *self {
            Self::Port { kind, .. }
            | Self::QueuePair { kind, .. }
            | Self::CompletionQueue { kind, .. }
            | Self::SharedReceiveQueue { kind, .. }
            | Self::Device { kind } => kind,
        }
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port { port, kind } => write!(f, "port {port}: {kind}"),
            Self::QueuePair { qp_num, kind } => write!(f, "queue pair {qp_num}: {kind}"),
            Self::CompletionQueue { handle, kind } => write!(f, "completion queue {handle}: {kind}"),
            Self::SharedReceiveQueue { handle, kind } => write!(f, "shared receive queue {handle}: {kind}"),
            Self::Device { kind } => write!(f, "device: {kind}"),
        }
    }
}

c_enum! {
    /// The type of an event.
    ///
    /// ```
    /// use farreach_verbs::event::EventType;
    ///
    /// assert_eq!(EventType::DeviceFatal.to_string(), "device fatal");
    /// ```
    #[doc(alias = "ibv_event_type")]
    pub enum EventType(u32) {
        /// A completion queue overran or failed.
        CqError = sys::IBV_EVENT_CQ_ERR, "completion queue error";
        /// A queue pair failed without a completion that reports it.
        QpFatal = sys::IBV_EVENT_QP_FATAL, "queue pair fatal";
        /// A peer sent an invalid request.
        QpRequestError = sys::IBV_EVENT_QP_REQ_ERR, "invalid request";
        /// A peer requested an access that it has no right to.
        QpAccessError = sys::IBV_EVENT_QP_ACCESS_ERR, "access violation";
        /// The first message arrived before the queue pair was ready to send.
        CommunicationEstablished = sys::IBV_EVENT_COMM_EST, "communication established";
        /// All work requests that were in progress have been sent.
        SendQueueDrained = sys::IBV_EVENT_SQ_DRAINED, "send queue drained";
        /// The connection moved to its alternate path.
        PathMigrated = sys::IBV_EVENT_PATH_MIG, "path migrated";
        /// The connection failed to move to its alternate path.
        PathMigrationError = sys::IBV_EVENT_PATH_MIG_ERR, "path migration failed";
        /// The device failed, or is being removed. No object on it works any more.
        DeviceFatal = sys::IBV_EVENT_DEVICE_FATAL, "device fatal";
        /// A port can carry data.
        PortActive = sys::IBV_EVENT_PORT_ACTIVE, "port active";
        /// A port can no longer carry data.
        PortError = sys::IBV_EVENT_PORT_ERR, "port error";
        /// The subnet manager gave a port another LID.
        LidChange = sys::IBV_EVENT_LID_CHANGE, "LID changed";
        /// A P_Key table changed.
        PkeyChange = sys::IBV_EVENT_PKEY_CHANGE, "P_Key table changed";
        /// The subnet manager changed.
        SmChange = sys::IBV_EVENT_SM_CHANGE, "subnet manager changed";
        /// A shared receive queue failed.
        SrqError = sys::IBV_EVENT_SRQ_ERR, "shared receive queue error";
        /// A shared receive queue has fewer work requests than its limit.
        SrqLimitReached = sys::IBV_EVENT_SRQ_LIMIT_REACHED, "limit reached";
        /// A queue pair in the error state takes no more work requests from its shared receive
        /// queue.
        LastWqeReached = sys::IBV_EVENT_QP_LAST_WQE_REACHED, "last receive taken";
        /// The subnet manager requests all clients to register again.
        ClientReregister = sys::IBV_EVENT_CLIENT_REREGISTER, "client registration";
        /// A GID table changed.
        GidChange = sys::IBV_EVENT_GID_CHANGE, "GID table changed";
        /// A work queue failed.
        WqFatal = sys::IBV_EVENT_WQ_FATAL, "work queue fatal";
        /// A port's speed changed.
        DeviceSpeedChange = sys::IBV_EVENT_DEVICE_SPEED_CHANGE, "speed changed";
    }
}

impl Context {
    /// Returns the device's events: `ibv_get_async_event(3)`. All callers share one stream; each
    /// event is delivered to one of them.
    #[doc(alias = "ibv_get_async_event")]
    pub fn async_events(&self) -> Result<AsyncEvents, Error> {
        let events = AsyncEvents(self.clone());
        fd::set_nonblocking(events.as_fd()).map_err(|error| events.failed("fcntl", &error))?;
        Ok(events)
    }
}

impl AsyncEvents {
    /// Returns the open device.
    pub fn context(&self) -> &Context {
        &self.0
    }

    /// Takes the next event without waiting. Returns `None` if there is none.
    #[doc(alias = "ibv_ack_async_event")]
    pub fn get(&self) -> Result<Option<AsyncEvent>, Error> {
        let event = self.0.handle().take_async_event()?;
        if event.is_none() {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(self.failed("ibv_get_async_event", &error));
            }
        }
        Ok(event)
    }

    /// Like [`get`](Self::get), but waits for an event, for at most `timeout`. `None` waits without
    /// limit.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Error> {
        // A deadline beyond the range of the clock never comes.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.get()? {
                return Ok(Some(event));
            }
            // Another thread may have taken the event that woke this one, so this loops.
            if !fd::wait_readable(self.as_fd(), deadline).map_err(|error| self.failed("poll", &error))? {
                return Ok(None);
            }
        }
    }

    fn failed(&self, operation: &'static str, error: &io::Error) -> Error {
        Error::call(operation, self.0.device().name(), error.raw_os_error().unwrap_or(0))
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.handle().async_fd()
    }
}
