//! The active side of a connection, and the connection of either side.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use super::channel::EventChannel;
use super::error::Error;
use super::event::{CmEvent, EventKind};
use super::id::CmId;
use super::parameters::CmParameters;
use super::port_space::PortSpace;
use crate::context::Context;
use crate::qp::QueuePair;

/// Connects in the required order of steps, each by the deadline.
///
/// First it resolves the address and the route, which determines the device. Then the caller
/// creates a queue pair on the device and posts the first receives. Then it connects.
///
/// ```no_run
/// use std::time::{Duration, Instant};
/// use farreach_verbs::cm::{CmParameters, Connector, Error};
/// # use farreach_verbs::{context::Context, qp::QueuePair};
/// # fn make_queue_pair(_: &Context) -> Result<QueuePair, Error> { unimplemented!() }
///
/// let deadline = Instant::now() + Duration::from_secs(5);
/// let connector = Connector::resolve("192.0.2.1:18520".parse().unwrap(), deadline)?;
/// let qp = make_queue_pair(&connector.context()?)?;
/// connector.prepare(&qp)?; // now post the first receives
/// let hello = CmParameters::new().with_private_data(*b"hello");
/// let connection = connector.connect(&qp, &hello, deadline)?;
/// println!("{:?} answered {:?}", connection.peer_address(), connection.private_data());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Connector {
    id: CmId,
    channel: EventChannel,
}

impl Connector {
    /// Finds the device and the route to `peer`, for a connection.
    pub fn resolve(peer: SocketAddr, deadline: Instant) -> Result<Self, Error> {
        Self::resolve_with(PortSpace::Tcp, peer, deadline, |_| Ok(()))
    }

    /// Like [`resolve`](Self::resolve), in another port space. `set` is called first, to set
    /// options of the id or to bind it to a local address.
    pub fn resolve_with(
        port_space: PortSpace,
        peer: SocketAddr,
        deadline: Instant,
        set: impl FnOnce(&CmId) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let channel = EventChannel::new()?;
        let id = channel.create_id(port_space)?;
        set(&id)?;
        id.resolve_addr(None, peer, deadline)?;
        wait_for(&channel, &id, &[EventKind::AddressResolved], "resolved address", deadline)?;
        id.resolve_route(deadline)?;
        wait_for(&channel, &id, &[EventKind::RouteResolved], "resolved route", deadline)?;
        Ok(Self { id, channel })
    }

    /// Returns the id of the connection.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// Returns the open device to create the queue pair on.
    pub fn context(&self) -> Result<Context, Error> {
        self.id.context()
    }

    /// Moves the queue pair to INIT, so that receives may be posted before the peer can send.
    pub fn prepare(&self, qp: &QueuePair) -> Result<(), Error> {
        self.id.init_qp(qp)
    }

    /// Sends the connect request, moves the queue pair to RTS, and confirms that to the peer.
    ///
    /// [`Error::Rejected`] contains the reason. If nothing is listening, that is
    /// [`InvalidServiceId`](super::RejectReason::InvalidServiceId).
    pub fn connect(
        self,
        qp: &QueuePair,
        parameters: &CmParameters,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        let Self { id, channel } = self;
        id.init_qp(qp)?;
        id.connect(&CmParameters { qp_num: qp.qp_num(), has_srq: qp.srq().is_some(), ..parameters.clone() })?;
        let answers = [EventKind::ConnectResponse, EventKind::Established];
        let answer = wait_for(&channel, &id, &answers, "connect response", deadline)?;
        // iWARP and datagrams are established by the response itself.
        if answer.kind() == EventKind::ConnectResponse {
            // The id holds the negotiated values: the peer may have requested less.
            id.ready_qp(qp, &CmParameters::new())?;
            id.establish()?;
        }
        Ok(Connection::new(id, channel, answer.private_data().to_vec()))
    }
}

/// An established connection. It owns its id and the channel of its events, but not the queue pair.
///
/// Dropping it ends the connection.
///
/// ```no_run
/// # fn end(connection: farreach_verbs::cm::Connection) -> Result<(), farreach_verbs::cm::Error> {
/// use std::time::{Duration, Instant};
///
/// connection.disconnect()?;
/// connection.wait_disconnected(Instant::now() + Duration::from_secs(5))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Connection {
    id: CmId,
    channel: EventChannel,
    private_data: Vec<u8>,
}

impl Connection {
    pub(super) fn new(id: CmId, channel: EventChannel, private_data: Vec<u8>) -> Self {
        Self { id, channel, private_data }
    }

    /// Returns the id.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// Returns the channel of its events.
    pub fn channel(&self) -> &EventChannel {
        &self.channel
    }

    /// Returns the private data that the peer sent when it connected or accepted, including
    /// trailing zeroes.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns the local address and port.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// Returns the peer's address and port.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.id.peer_address()
    }

    /// Disconnects: `rdma_disconnect(3)`. Both sides get a disconnected event.
    pub fn disconnect(&self) -> Result<(), Error> {
        self.id.disconnect()
    }

    /// Sleeps until either side has disconnected, and confirms that to the peer. Returns
    /// [`Error::DeviceRemoved`] if the device was removed, and [`Error::TimedOut`] if the deadline
    /// passes first.
    pub fn wait_disconnected(&self, deadline: Instant) -> Result<(), Error> {
        wait_for(&self.channel, &self.id, &[EventKind::Disconnected], "disconnected event", deadline)?;
        // If this side disconnected first, this call does nothing or fails with EINVAL. The
        // connection has ended either way.
        let _ = self.id.disconnect();
        Ok(())
    }

    /// Sleeps until no packet of the ended connection can be in the network any more, so that its
    /// queue pair may be used again.
    pub fn wait_timewait_exit(&self, deadline: Instant) -> Result<(), Error> {
        wait_for(&self.channel, &self.id, &[EventKind::TimewaitExit], "timewait exit", deadline).map(drop)
    }

    /// Returns the id and the channel, for a program that handles the events itself. It can
    /// [migrate](CmId::migrate) the ids of many connections to one channel, so that a thousand of
    /// them need one descriptor.
    pub fn into_parts(self) -> (CmId, EventChannel) {
        (self.id, self.channel)
    }
}

impl AsFd for Connection {
    /// Returns a descriptor that is readable while events are pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Waits for one of these events of an id that is alone on its channel. Returns an error for an
/// event that reports a failure, and skips events without consequence.
pub(super) fn wait_for(
    channel: &EventChannel,
    id: &CmId,
    kinds: &[EventKind],
    awaited: &'static str,
    deadline: Instant,
) -> Result<CmEvent, Error> {
    loop {
        let event = match channel.wait_event(deadline) {
            Err(Error::TimedOut { .. }) => return Err(Error::TimedOut { awaited, subject: id.to_string() }),
            other => other?,
        };
        if kinds.contains(&event.kind()) {
            return Ok(event);
        }
        if let Some(failure) = event.failure() {
            return Err(failure);
        }
        match event.kind() {
            EventKind::AddressChange | EventKind::TimewaitExit | EventKind::User => {}
            kind => return Err(Error::Unexpected { awaited, subject: id.to_string(), kind }),
        }
    }
}
