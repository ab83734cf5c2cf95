//! Asynchronous events: what a device tells that no work request asked for.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use farreach_verbs_sys as sys;

use crate::context::Context;
use crate::error::Error;
use crate::fd;

/// The events of an open device. Its descriptor is readable where there is one, and non-blocking.
///
/// Every event is acknowledged before it is handed out, so that an event in hand keeps no object from being
/// destroyed.
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
    /// Of a port.
    Port {
        /// Which one.
        port: u8,
        /// What happened.
        kind: EventType,
    },
    /// Of a queue pair.
    QueuePair {
        /// Its [number](crate::qp::QueuePair::qp_num).
        qp_num: u32,
        /// What happened.
        kind: EventType,
    },
    /// Of a completion queue.
    CompletionQueue {
        /// Its [handle](crate::cq::CompletionQueue::handle).
        handle: u32,
        /// What happened.
        kind: EventType,
    },
    /// Of a shared receive queue.
    SharedReceiveQueue {
        /// Its [handle](crate::srq::SharedReceiveQueue::handle).
        handle: u32,
        /// What happened.
        kind: EventType,
    },
    /// Of the device, or of something that this crate does not know.
    Device {
        /// What happened.
        kind: EventType,
    },
}

impl AsyncEvent {
    /// What happened.
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
    /// What happened.
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
        /// A queue pair failed without a completion to say so.
        QpFatal = sys::IBV_EVENT_QP_FATAL, "queue pair fatal";
        /// A peer sent what is no request.
        QpRequestError = sys::IBV_EVENT_QP_REQ_ERR, "invalid request";
        /// A peer asked for what it has no right to.
        QpAccessError = sys::IBV_EVENT_QP_ACCESS_ERR, "access violation";
        /// The first message came while the queue pair was not yet ready to send.
        CommunicationEstablished = sys::IBV_EVENT_COMM_EST, "communication established";
        /// Everything that was being sent is sent.
        SendQueueDrained = sys::IBV_EVENT_SQ_DRAINED, "send queue drained";
        /// The connection went over to its other path.
        PathMigrated = sys::IBV_EVENT_PATH_MIG, "path migrated";
        /// The connection did not go over to its other path.
        PathMigrationError = sys::IBV_EVENT_PATH_MIG_ERR, "path migration failed";
        /// The device failed, or is being removed: nothing on it works any more.
        DeviceFatal = sys::IBV_EVENT_DEVICE_FATAL, "device fatal";
        /// A port carries data.
        PortActive = sys::IBV_EVENT_PORT_ACTIVE, "port active";
        /// A port does not carry data any more.
        PortError = sys::IBV_EVENT_PORT_ERR, "port error";
        /// The subnet manager gave a port another LID.
        LidChange = sys::IBV_EVENT_LID_CHANGE, "LID changed";
        /// A P_Key table changed.
        PkeyChange = sys::IBV_EVENT_PKEY_CHANGE, "P_Key table changed";
        /// There is another subnet manager.
        SmChange = sys::IBV_EVENT_SM_CHANGE, "subnet manager changed";
        /// A shared receive queue failed.
        SrqError = sys::IBV_EVENT_SRQ_ERR, "shared receive queue error";
        /// Fewer requests wait in a shared receive queue than its limit.
        SrqLimitReached = sys::IBV_EVENT_SRQ_LIMIT_REACHED, "limit reached";
        /// A queue pair in error takes no more from its shared receive queue.
        LastWqeReached = sys::IBV_EVENT_QP_LAST_WQE_REACHED, "last receive taken";
        /// The subnet manager asks everybody to register again.
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
    /// The device's events: `ibv_get_async_event(3)`. All who ask share one stream; each event comes to one of them.
    #[doc(alias = "ibv_get_async_event")]
    pub fn async_events(&self) -> Result<AsyncEvents, Error> {
        let events = AsyncEvents(self.clone());
        fd::set_nonblocking(events.as_fd()).map_err(|error| events.failed("fcntl", &error))?;
        Ok(events)
    }
}

impl AsyncEvents {
    /// The open device.
    pub fn context(&self) -> &Context {
        &self.0
    }

    /// Takes the next event, without waiting; none where there is none.
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

    /// As [`get`](Self::get), and waits for an event: for `timeout` at most, or for as long as it takes.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>, Error> {
        // A time that the clock cannot count to is one that never comes.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.get()? {
                return Ok(Some(event));
            }
            // Another thread may take the event that this one wakes for.
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
