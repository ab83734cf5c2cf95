//! Events: how the connection manager answers.

use farreach_verbs_sys as sys;

use super::error::Error;
use super::id::CmId;
use super::listener::ConnectionRequest;
use super::parameters::CmParameters;
use super::reject::RejectReason;
use crate::ah::{AddressAttributes, Lid};
use crate::error::Errno;

c_enum! {
    /// What happened. It displays as a person says it.
    ///
    /// ```
    /// use farreach_verbs::cm::EventKind;
    ///
    /// assert_eq!(EventKind::DeviceRemoval.to_string(), "device removal");
    /// ```
    #[doc(alias = "rdma_cm_event_type")]
    #[doc(alias = "rdma_event_str")]
    pub enum EventKind(u32) {
        /// The address was resolved: the id has a device.
        AddressResolved = sys::RDMA_CM_EVENT_ADDR_RESOLVED, "address resolved";
        /// The address was not resolved.
        AddressError = sys::RDMA_CM_EVENT_ADDR_ERROR, "address error";
        /// A route was found: the id can connect.
        RouteResolved = sys::RDMA_CM_EVENT_ROUTE_RESOLVED, "route resolved";
        /// No route was found.
        RouteError = sys::RDMA_CM_EVENT_ROUTE_ERROR, "route error";
        /// Somebody wants to connect to the listener: [`CmEvent::into_request`].
        ConnectRequest = sys::RDMA_CM_EVENT_CONNECT_REQUEST, "connect request";
        /// The listener accepted: the queue pair is to be made ready, and then the connection
        /// [established](super::CmId::establish).
        ConnectResponse = sys::RDMA_CM_EVENT_CONNECT_RESPONSE, "connect response";
        /// The handshake broke off.
        ConnectError = sys::RDMA_CM_EVENT_CONNECT_ERROR, "connect error";
        /// The other side does not answer.
        Unreachable = sys::RDMA_CM_EVENT_UNREACHABLE, "unreachable";
        /// The other side said no: [`CmEvent::reject_reason`].
        Rejected = sys::RDMA_CM_EVENT_REJECTED, "rejected";
        /// The connection is made.
        Established = sys::RDMA_CM_EVENT_ESTABLISHED, "established";
        /// The connection has ended.
        Disconnected = sys::RDMA_CM_EVENT_DISCONNECTED, "disconnected";
        /// The device goes. Each id on it is told. Some devices, as Soft-RoCE, are gone only when no program has them open: drop
        /// what is on it, and call [`get_devices`](super::get_devices), which lets librdmacm close it too; where it was the last device,
        /// only the end of the program does.
        DeviceRemoval = sys::RDMA_CM_EVENT_DEVICE_REMOVAL, "device removal";
        /// The multicast group was joined: [`CmEvent::destination`].
        MulticastJoin = sys::RDMA_CM_EVENT_MULTICAST_JOIN, "multicast join";
        /// The multicast group was not joined, or was lost.
        MulticastError = sys::RDMA_CM_EVENT_MULTICAST_ERROR, "multicast error";
        /// The net device below has another address now, or failed over to another port.
        AddressChange = sys::RDMA_CM_EVENT_ADDR_CHANGE, "address change";
        /// No packet of the ended connection is under way any more: its queue pair may be used again.
        TimewaitExit = sys::RDMA_CM_EVENT_TIMEWAIT_EXIT, "timewait exit";
        /// The fabric's name service has answered.
        AddressInfoResolved = sys::RDMA_CM_EVENT_ADDRINFO_RESOLVED, "address info resolved";
        /// The fabric's name service has no answer.
        AddressInfoError = sys::RDMA_CM_EVENT_ADDRINFO_ERROR, "address info error";
        /// The program's own: [`CmId::write_event`](super::CmId::write_event).
        User = sys::RDMA_CM_EVENT_USER, "user event";
        /// A library's own.
        Internal = sys::RDMA_CM_EVENT_INTERNAL, "internal event";
    }
}

/// An event of an id.
///
/// It is a copy: `rdma_ack_cm_event(3)` was called before it was handed out, so no event that somebody keeps can make
/// destroying, migrating or leaving wait for ever, as in C. It holds its id, which lives as long as the event.
///
/// ```no_run
/// use std::time::{Duration, Instant};
/// use farreach_verbs::cm::{EventChannel, EventKind};
///
/// let channel = EventChannel::new()?;
/// let event = channel.wait_event(Instant::now() + Duration::from_secs(1))?;
/// match event.kind() {
///     EventKind::Disconnected => println!("{:?} is gone", event.id().peer_address()),
///     EventKind::Rejected => println!("no: {}", event.reject_reason().unwrap()),
///     kind => println!("{kind}"),
/// }
/// # Ok::<(), farreach_verbs::cm::Error>(())
/// ```
#[doc(alias = "rdma_cm_event")]
#[doc(alias = "rdma_ack_cm_event")]
#[derive(Debug)]
pub struct CmEvent {
    pub(super) told: Told,
    pub(super) id: CmId,
    pub(super) listener: Option<CmId>,
}

impl CmEvent {
    /// What happened.
    pub fn kind(&self) -> EventKind {
        self.told.kind
    }

    /// 0, or why not: minus an errno; for a rejection the reason's number.
    pub fn status(&self) -> i32 {
        self.told.status
    }

    /// Whose event it is. Of a request: the new id, which the request owns.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// Of a request: the id that listens.
    pub fn listener(&self) -> Option<&CmId> {
        self.listener.as_ref()
    }

    /// What the other side's program sent along. May be longer than what was sent: see [`CmParameters`].
    pub fn private_data(&self) -> &[u8] {
        match &self.told.parameters {
            Parameters::Connection(parameters) => &parameters.private_data,
            Parameters::Datagram { private_data, .. } => private_data,
            Parameters::User(_) => &[],
        }
    }

    /// Of a connected port space: what the other side said. Zeroes in events that come without.
    pub fn parameters(&self) -> Option<&CmParameters> {
        match &self.told.parameters {
            Parameters::Connection(parameters) => Some(parameters),
            Parameters::Datagram { .. } | Parameters::User(_) => None,
        }
    }

    /// Of datagrams and multicast: where to send to.
    pub fn destination(&self) -> Option<&DatagramDestination> {
        match &self.told.parameters {
            Parameters::Datagram { destination, .. } => Some(destination),
            Parameters::Connection(_) | Parameters::User(_) => None,
        }
    }

    /// Of a [user event](EventKind::User): the number that came with it.
    pub fn argument(&self) -> Option<u64> {
        match self.told.parameters {
            Parameters::User(argument) => Some(argument),
            Parameters::Connection(_) | Parameters::Datagram { .. } => None,
        }
    }

    /// Why the other side said no, if it did.
    pub fn reject_reason(&self) -> Option<RejectReason> {
        self.told.reject_reason()
    }

    /// The request, if that is what it is; itself otherwise.
    pub fn into_request(self) -> Result<ConnectionRequest, Self> {
        match self.kind() {
            EventKind::ConnectRequest => Ok(ConnectionRequest::new(self)),
            _ => Err(self),
        }
    }

    /// What went wrong, if the event tells of something that did.
    pub fn failure(&self) -> Option<Error> {
        let peer = self.id.peer_address();
        let errno = self.told.errno();
        if let Some(reason) = self.reject_reason() {
            let private_data = match reason {
                RejectReason::Consumer | RejectReason::VendorOption => self.private_data().into(),
                // A kernel's rejection carries no program's word.
                _ => Box::default(),
            };
            return Some(Error::Rejected { peer, reason, private_data });
        }
        match self.kind() {
            EventKind::AddressError => Some(Error::AddressNotResolved { peer, errno }),
            EventKind::RouteError => Some(Error::RouteNotResolved { peer, errno }),
            EventKind::ConnectError => Some(Error::ConnectFailed { peer, errno }),
            EventKind::Unreachable => Some(Error::Unreachable { peer, errno }),
            EventKind::Disconnected => Some(Error::Disconnected { peer }),
            EventKind::DeviceRemoval => Some(Error::DeviceRemoved { subject: self.id.to_string() }),
            EventKind::MulticastError => Some(Error::MulticastFailed { errno }),
            _ => None,
        }
    }
}

/// Where datagrams go: the other side's queue pair, or a multicast group.
///
/// ```no_run
/// # fn send(event: farreach_verbs::cm::CmEvent) {
/// if let Some(destination) = event.destination() {
///     println!("queue pair {} at {:?}", destination.qp_num, destination.address.gid);
/// }
/// # }
/// ```
#[doc(alias = "rdma_ud_param")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramDestination {
    /// The queue pair; of a multicast group a number that stands for every member.
    pub qp_num: u32,
    /// The key that its messages must carry.
    pub qkey: u32,
    /// The way there: what an [`AddressHandle`](crate::ah::AddressHandle) is made of. Of a multicast group, its GID and LID are what the
    /// queue pair is [attached](crate::qp::QueuePair::attach_mcast) to for receiving.
    pub address: AddressAttributes,
}

impl DatagramDestination {
    pub(super) fn from_raw(raw: &sys::rdma_ud_param) -> Self {
        let address = &raw.ah_attr;
        Self {
            qp_num: raw.qp_num,
            qkey: raw.qkey,
            address: AddressAttributes {
                port: address.port_num,
                gid: (address.is_global != 0).then(|| address.grh.dgid.into()),
                gid_index: address.grh.sgid_index,
                lid: Lid(address.dlid),
                service_level: address.sl,
                traffic_class: address.grh.traffic_class,
                flow_label: address.grh.flow_label,
                hop_limit: address.grh.hop_limit,
            },
        }
    }
}

/// The copy of what C told.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) kind: EventKind,
    pub(super) status: i32,
    pub(super) parameters: Parameters,
    pub(super) is_datagram: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Parameters {
    Connection(CmParameters),
    Datagram { private_data: Vec<u8>, destination: DatagramDestination },
    User(u64),
}

impl Told {
    pub(super) fn reject_reason(&self) -> Option<RejectReason> {
        match self.kind {
            EventKind::Rejected => Some(RejectReason::from_status(self.status)),
            // Datagrams are not rejected but answered with a status.
            EventKind::Unreachable if self.is_datagram && self.status > 0 => {
                Some(RejectReason::from_sidr_status(self.status))
            }
            _ => None,
        }
    }

    /// The status as an error number; a timeout where it is 0, since an error without a number is one of silence.
    pub(super) fn errno(&self) -> Errno {
        match self.status {
            0 => Errno(libc::ETIMEDOUT),
            status => Errno(status.unsigned_abs().try_into().unwrap_or(libc::EIO)),
        }
    }
}
