//! The passive side: who listens, and who asks.

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

/// Requests that wait to be taken, unless another number is asked for. As many as a burst of clients has at once.
const BACKLOG: u16 = 128;

/// Waits for others to connect. It owns a channel, on which nothing but requests arrives.
///
/// Each request owns an id of its own, can be sent to another thread (its *agent*), and moves to a channel of its own when it is
/// accepted: from then on agent and listener have nothing to wait for each other.
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
    /// Listens for connections, in the port space [`Tcp`](PortSpace::Tcp). Port 0 lets the kernel choose one; an unspecified
    /// address (`0.0.0.0`, `::`) stands for every address of every device, also of those to come.
    pub fn bind(local: SocketAddr) -> Result<Self, Error> {
        Self::bind_with(PortSpace::Tcp, local, BACKLOG, |_| Ok(()))
    }

    /// As [`bind`](Self::bind), in another port space, with another number of requests that may wait, and with options that
    /// `set` sets on the id first.
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

    /// The id that listens.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// Where it listens.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.id.local_address()
    }

    /// The next request, if there is one.
    pub fn get_request(&self) -> Result<Option<ConnectionRequest>, Error> {
        while let Some(event) = self.channel.get_event()? {
            if let Some(request) = request_of(event)? {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// The next request: sleeps until it comes. [`Error::TimedOut`] when the deadline comes first,
    /// [`Error::DeviceRemoved`] when the device goes on whose address alone it listens.
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
    /// Readable while there are requests.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// The request; none where the event is of no consequence to a listener, as that an address changed.
fn request_of(event: CmEvent) -> Result<Option<ConnectionRequest>, Error> {
    match event.into_request() {
        Ok(request) => Ok(Some(request)),
        Err(event) => match event.failure() {
            Some(failure) => Err(failure),
            None => Ok(None),
        },
    }
}

/// Somebody wants to connect. Accept it, or reject it; dropping it rejects it too.
///
/// It is not tied to the thread or the channel of its listener: send it where it is to be served.
///
/// ```no_run
/// # fn judge(request: farreach_verbs::cm::ConnectionRequest) -> Result<(), farreach_verbs::cm::Error> {
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

    /// The id that the connection will have.
    pub fn id(&self) -> &CmId {
        self.event.id()
    }

    /// What the other side sent along: as much as [`PortSpace::connect_data_max`], zeroes after its end.
    pub fn private_data(&self) -> &[u8] {
        self.event.private_data()
    }

    /// Of a connected port space: what the other side asks for.
    pub fn parameters(&self) -> Option<&CmParameters> {
        self.event.parameters()
    }

    /// Who asks.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.id().peer_address()
    }

    /// The device, open: where the queue pair is to be made. All requests of one listener share it.
    pub fn context(&self) -> Result<Context, Error> {
        self.id().context()
    }

    /// Moves the id to a channel: that of an agent, whose events then come there.
    pub fn migrate(&self, to: &EventChannel) -> Result<(), Error> {
        self.id().migrate(to)
    }

    /// Moves the queue pair to INIT, so that receives may be posted before the other side can send.
    pub fn prepare(&self, qp: &QueuePair) -> Result<(), Error> {
        self.id().init_qp(qp)
    }

    /// Says yes, makes the queue pair ready, and waits until the other side has agreed. The connection gets a channel of its own.
    ///
    /// Whatever goes wrong, the request is gone, and the other side is told.
    pub fn accept(
        self,
        qp: &QueuePair,
        parameters: &CmParameters,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        let channel = EventChannel::with_contexts(Arc::clone(self.id().contexts()))?;
        self.accept_on(&channel, qp, parameters, deadline)
    }

    /// As [`accept`](Self::accept), on a channel of the caller's. Until it returns, the channel must have no other events: they
    /// would be taken for this connection's.
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
            // Datagrams: the answer says where to send, and nothing follows.
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

    /// Says no, with a word for the other side: [`RejectReason::Consumer`](super::RejectReason::Consumer) and these bytes. They fit up to
    /// [`PortSpace::reject_data_max`].
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

/// Answers with no more reads and atomics than were asked for and the device has, where the caller leaves it open.
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
