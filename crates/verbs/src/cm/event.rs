//! Events, by which the connection manager reports results.

use farreach_verbs_sys as sys;

use super::error::Error;
use super::id::CmId;
use super::listener::ConnectionRequest;
use super::parameters::CmParameters;
use super::reject::RejectReason;
use crate::ah::{AddressAttributes, Lid};
use crate::error::Errno;

c_enum! {
    /// The type of an event.
    ///
    /// ```
    /// use farreach_verbs::cm::EventKind;
    ///
    /// assert_eq!(EventKind::DeviceRemoval.to_string(), "device removal");
    /// ```
    #[doc(alias = "rdma_cm_event_type")]
    #[doc(alias = "rdma_event_str")]
    pub enum EventKind(u32) {
        /// The address was resolved. The id has a device.
        AddressResolved = sys::RDMA_CM_EVENT_ADDR_RESOLVED, "address resolved";
        /// The address was not resolved.
        AddressError = sys::RDMA_CM_EVENT_ADDR_ERROR, "address error";
        /// A route was found. The id can connect.
        RouteResolved = sys::RDMA_CM_EVENT_ROUTE_RESOLVED, "route resolved";
        /// No route was found.
        RouteError = sys::RDMA_CM_EVENT_ROUTE_ERROR, "route error";
        /// A peer requests a connection to the listener: [`CmEvent::into_request`].
        ConnectRequest = sys::RDMA_CM_EVENT_CONNECT_REQUEST, "connect request";
        /// The listener accepted. The caller must move the queue pair to RTS, and then
        /// [establish](super::CmId::establish) the connection.
        ConnectResponse = sys::RDMA_CM_EVENT_CONNECT_RESPONSE, "connect response";
        /// The handshake was aborted.
        ConnectError = sys::RDMA_CM_EVENT_CONNECT_ERROR, "connect error";
        /// The peer does not answer.
        Unreachable = sys::RDMA_CM_EVENT_UNREACHABLE, "unreachable";
        /// The peer rejected the connection: [`CmEvent::reject_reason`].
        Rejected = sys::RDMA_CM_EVENT_REJECTED, "rejected";
        /// The connection is established.
        Established = sys::RDMA_CM_EVENT_ESTABLISHED, "established";
        /// The connection has ended.
        Disconnected = sys::RDMA_CM_EVENT_DISCONNECTED, "disconnected";
        /// The device is being removed. Each id on it gets this event. Some devices, such as
        /// Soft-RoCE, are removed only when no program has them open: drop all objects on it, and
        /// call [`get_devices`](super::get_devices), which makes librdmacm close it too. If it was
        /// the last device, only the end of the program closes it.
        DeviceRemoval = sys::RDMA_CM_EVENT_DEVICE_REMOVAL, "device removal";
        /// The multicast group was joined: [`CmEvent::destination`].
        MulticastJoin = sys::RDMA_CM_EVENT_MULTICAST_JOIN, "multicast join";
        /// The multicast group was not joined, or was lost.
        MulticastError = sys::RDMA_CM_EVENT_MULTICAST_ERROR, "multicast error";
        /// The net device has another address now, or failed over to another port.
        AddressChange = sys::RDMA_CM_EVENT_ADDR_CHANGE, "address change";
        /// No packet of the ended connection can be in the network any more. Its queue pair may be
        /// used again.
        TimewaitExit = sys::RDMA_CM_EVENT_TIMEWAIT_EXIT, "timewait exit";
        /// The fabric's name service answered.
        AddressInfoResolved = sys::RDMA_CM_EVENT_ADDRINFO_RESOLVED, "address info resolved";
        /// The fabric's name service found no answer.
        AddressInfoError = sys::RDMA_CM_EVENT_ADDRINFO_ERROR, "address info error";
        /// An event of the program itself: [`CmId::write_event`](super::CmId::write_event).
        User = sys::RDMA_CM_EVENT_USER, "user event";
        /// An internal event of a library.
        Internal = sys::RDMA_CM_EVENT_INTERNAL, "internal event";
    }
}

/// An event of an id.
///
/// It is a copy: `rdma_ack_cm_event(3)` is called before it is returned. In C, an event that is
/// kept makes destroying, migrating or leaving a group wait for ever; here it cannot. It holds its
/// id, which lives at least as long as the event.
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
    /// Returns the type of the event.
    pub fn kind(&self) -> EventKind {
        self.told.kind
    }

    /// Returns 0, a negative errno, or the reason number of a rejection.
    pub fn status(&self) -> i32 {
        self.told.status
    }

    /// Returns the id of the event. For a connect request, this is the new id, which the request
    /// owns.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// Returns the listening id of a connect request.
    pub fn listener(&self) -> Option<&CmId> {
        self.listener.as_ref()
    }

    /// Returns the private data that the peer's program sent. It may be longer than what was sent:
    /// see [`CmParameters`].
    pub fn private_data(&self) -> &[u8] {
        match &self.told.parameters {
            Parameters::Connection(parameters) => &parameters.private_data,
            Parameters::Datagram { private_data, .. } => private_data,
            Parameters::User(_) => &[],
        }
    }

    /// Returns the peer's parameters, for a connected port space. They are zero in events that
    /// carry none.
    pub fn parameters(&self) -> Option<&CmParameters> {
        match &self.told.parameters {
            Parameters::Connection(parameters) => Some(parameters),
            Parameters::Datagram { .. } | Parameters::User(_) => None,
        }
    }

    /// Returns the destination to send to, for datagrams and multicast.
    pub fn destination(&self) -> Option<&DatagramDestination> {
        match &self.told.parameters {
            Parameters::Datagram { destination, .. } => Some(destination),
            Parameters::Connection(_) | Parameters::User(_) => None,
        }
    }

    /// Returns the argument of a [user event](EventKind::User).
    pub fn argument(&self) -> Option<u64> {
        match self.told.parameters {
            Parameters::User(argument) => Some(argument),
            Parameters::Connection(_) | Parameters::Datagram { .. } => None,
        }
    }

    /// Returns the reason of a rejection.
    pub fn reject_reason(&self) -> Option<RejectReason> {
        self.told.reject_reason()
    }

    /// Returns the request if this is a connect request, and `self` otherwise.
    pub fn into_request(self) -> Result<ConnectionRequest, Self> {
        match self.kind() {
            EventKind::ConnectRequest => Ok(ConnectionRequest::new(self)),
            _ => Err(self),
        }
    }

    /// Returns the error, if the event reports a failure.
    pub fn failure(&self) -> Option<Error> {
        let peer = self.id.peer_address();
        let errno = self.told.errno();
        if let Some(reason) = self.reject_reason() {
            let private_data = match reason {
                RejectReason::Consumer | RejectReason::VendorOption => self.private_data().into(),
                // A kernel's rejection carries no private data of a program.
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

/// The destination of datagrams: the peer's queue pair, or a multicast group.
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
    /// The queue pair number. For a multicast group, a number that addresses every member.
    pub qp_num: u32,
    /// The Q_Key that the messages must carry.
    pub qkey: u32,
    /// The path, from which an [`AddressHandle`](crate::ah::AddressHandle) is created. For a
    /// multicast group, a queue pair is [attached](crate::qp::QueuePair::attach_mcast) to its GID
    /// and LID to receive.
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

/// A copy of the C event.
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
            // Requests for datagrams are not rejected but answered with a status.
            EventKind::Unreachable if self.is_datagram && self.status > 0 => {
                Some(RejectReason::from_sidr_status(self.status))
            }
            _ => None,
        }
    }

    /// Returns the status as an error number. Status 0 becomes a timeout: an error without a number
    /// means that the peer did not answer.
    pub(super) fn errno(&self) -> Errno {
        match self.status {
            0 => Errno(libc::ETIMEDOUT),
            status => Errno(status.unsigned_abs().try_into().unwrap_or(libc::EIO)),
        }
    }
}
