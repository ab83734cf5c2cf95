//! The passive side of a connection: listeners and their requests.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use super::channel::EventChannel;
use super::connection::{Connection, wait_for};
use super::error::Error;
use super::event::{CmEvent, EventKind, Parameters};
use super::id::CmId;
use super::parameters::CmParameters;
use super::port_space::PortSpace;
use crate::context::Context;
use crate::qp::QueuePair;

/// The default number of requests that wait to be taken, enough for a burst of clients.
const BACKLOG: u16 = 128;

/// Listens for connections. It owns a channel, on which only requests arrive.
///
/// Each request owns an id, can be sent to another thread, and moves to a channel of its own when
/// it is accepted. From then on, that thread and the listener do not wait for each other.
///
/// ```no_run
/// use std::time::{Duration, Instant};
/// use farreach_verbs::cm::{CmParameters, ConnectionRequest, Error, Listener};
/// # use farreach_verbs::qp::QueuePair;
/// # fn make_queue_pair(_: &ConnectionRequest) -> Result<QueuePair, Error> { unimplemented!() }
///
/// let listener = Listener::bind("192.0.2.1:18520".parse().unwrap())?;
/// loop {
///     let request = listener.wait_request(Instant::now() + Duration::from_secs(3600))?;
///     std::thread::spawn(move || -> Result<(), Error> {
///         let qp = make_queue_pair(&request)?;
///         request.prepare(&qp)?; // now post the first receives
///         let deadline = Instant::now() + Duration::from_secs(5);
///         let connection = request.accept(&qp, &CmParameters::new(), deadline)?;
///         connection.wait_disconnected(Instant::now() + Duration::from_secs(60))
///     });
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Listener {
    id: CmId,
    channel: EventChannel,
}

impl Listener {
    /// Listens for connections, in the port space [`Tcp`](PortSpace::Tcp). Port 0 lets the kernel
    /// choose one. An unspecified address (`0.0.0.0`, `::`) means every address of every device,
    /// including devices that are added later.
    pub fn bind(local: SocketAddr) -> Result<Self, Error> {
        Self::bind_with(PortSpace::Tcp, local, BACKLOG, |_| Ok(()))
    }

    /// Like [`bind`](Self::bind), in another port space and with another backlog. `set` is called
    /// first, to set options of the id.
    pub fn bind_with(
        port_space: PortSpace,
        local: SocketAddr,
        backlog: u16,
        set: impl FnOnce(&CmId) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let channel = EventChannel::new()?;
        let id = channel.create_id(port_space)?;
        set(&id)?;
        id.bind(local)?;
        id.listen(backlog)?;
        Ok(Self { id, channel })
    }

    /// Returns the listening id.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// Returns the local address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// Returns the next request, if there is one, without waiting.
    pub fn get_request(&self) -> Result<Option<ConnectionRequest>, Error> {
        while let Some(event) = self.channel.get_event()? {
            if let Some(request) = request_of(event)? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// Sleeps until the next request. Returns [`Error::TimedOut`] if the deadline passes first, and
    /// [`Error::DeviceRemoved`] if the listener is bound to an address of a device that is removed.
    #[doc(alias = "rdma_get_request")]
    pub fn wait_request(&self, deadline: Instant) -> Result<ConnectionRequest, Error> {
        loop {
            match self.channel.wait_event(deadline) {
                Ok(event) => {
                    if let Some(request) = request_of(event)? {
                        return Ok(request);
                    }
                }
                Err(Error::TimedOut { .. }) => {
                    return Err(Error::TimedOut { awaited: "request", subject: self.id.to_string() });
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Listener {
    /// Returns a descriptor that is readable while requests are pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// Returns the request. `None` if the event has no consequence for a listener, such as a changed
/// address.
fn request_of(event: CmEvent) -> Result<Option<ConnectionRequest>, Error> {
    match event.into_request() {
        Ok(request) => Ok(Some(request)),
        Err(event) => match event.failure() {
            Some(failure) => Err(failure),
            None => Ok(None),
        },
    }
}

/// A request for a connection. It can be accepted or rejected; dropping it rejects it.
///
/// It is not tied to the thread or the channel of its listener, and can be sent to another thread.
///
/// ```no_run
/// # use farreach_verbs::cm::{ConnectionRequest, Error};
/// # fn judge(request: ConnectionRequest) -> Result<(), Error> {
/// if request.private_data().starts_with(b"farreach") {
///     println!("welcome, {:?}", request.peer_address());
/// } else {
///     request.reject(b"not my protocol")?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ConnectionRequest {
    event: CmEvent,
}

impl ConnectionRequest {
    pub(super) fn new(event: CmEvent) -> Self {
        Self { event }
    }

    /// Returns the id of the connection.
    pub fn id(&self) -> &CmId {
        self.event.id()
    }

    /// Returns the private data of the peer: [`PortSpace::connect_data_max`] bytes, with trailing
    /// zeroes.
    pub fn private_data(&self) -> &[u8] {
        self.event.private_data()
    }

    /// Returns the parameters that the peer requests, for a connected port space.
    pub fn parameters(&self) -> Option<&CmParameters> {
        self.event.parameters()
    }

    /// Returns the peer's address.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.id().peer_address()
    }

    /// Returns the open device to create the queue pair on. All requests of one listener share it.
    pub fn context(&self) -> Result<Context, Error> {
        self.id().context()
    }

    /// Moves the id, and with it its events, to another channel.
    pub fn migrate(&self, to: &EventChannel) -> Result<(), Error> {
        self.id().migrate(to)
    }

    /// Moves the queue pair to INIT, so that receives may be posted before the peer can send.
    pub fn prepare(&self, qp: &QueuePair) -> Result<(), Error> {
        self.id().init_qp(qp)
    }

    /// Accepts the request, moves the queue pair to RTS, and waits until the peer has confirmed.
    /// The connection gets a channel of its own.
    ///
    /// The request is consumed even on failure; the peer is then informed.
    pub fn accept(
        self,
        qp: &QueuePair,
        parameters: &CmParameters,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        let channel = EventChannel::with_contexts(Arc::clone(self.id().contexts()))?;
        self.accept_on(&channel, qp, parameters, deadline)
    }

    /// Like [`accept`](Self::accept), on a channel of the caller. Until it returns, the channel
    /// must have no other events: they would be taken for events of this connection.
    pub fn accept_on(
        self,
        channel: &EventChannel,
        qp: &QueuePair,
        parameters: &CmParameters,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        self.migrate(channel)?;
        let id = self.event.id;
        let mut answer =
            CmParameters { qp_num: qp.qp_num(), has_srq: qp.srq().is_some(), ..parameters.clone() };
        let Parameters::Connection(asked) = self.event.told.parameters else {
            // For datagrams, the response contains the destination, and no further message follows.
            id.init_qp(qp)?;
            id.accept(&answer)?;
            return Ok(Connection::new(id, channel.clone(), asked_bytes(self.event.told.parameters)));
        };
        limit(&mut answer, &asked, &id.context()?)?;
        id.ready_qp(qp, &answer)?;
        id.accept(&answer)?;
        wait_for(channel, &id, &[EventKind::Established], "established event", deadline)?;
        Ok(Connection::new(id, channel.clone(), asked.private_data))
    }

    /// Rejects the request with [`RejectReason::Consumer`](super::RejectReason::Consumer) and these
    /// bytes, which are limited to [`PortSpace::reject_data_max`].
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        self.id().reject(private_data)
    }
}

fn asked_bytes(parameters: Parameters) -> Vec<u8> {
    match parameters {
        Parameters::Datagram { private_data, .. } => private_data,
        Parameters::Connection(asked) => asked.private_data,
        Parameters::User(_) => Vec::new(),
    }
}

/// Limits the reads and atomics of the response to the requested number and the device's limit,
/// unless the caller has set them.
fn limit(answer: &mut CmParameters, asked: &CmParameters, context: &Context) -> Result<(), Error> {
    let open = CmParameters::DEVICE_MAX;
    if answer.responder_resources == open || answer.initiator_depth == open {
        let device = context.query_device()?;
        let within = |asked: u8, max: u32| u32::from(asked).min(max) as u8;
        if answer.responder_resources == open {
            answer.responder_resources = within(asked.responder_resources, device.max_qp_rd_atom);
        }
        if answer.initiator_depth == open {
            answer.initiator_depth = within(asked.initiator_depth, device.max_qp_init_rd_atom);
        }
    }
    Ok(())
}
