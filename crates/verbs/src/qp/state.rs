//! Moves a queue pair from RESET to RTS without the connection manager.
//!
//! Each side moves its queue pair to INIT and sends its [`PeerAddress`] to the other, by any means.
//! Then both connect. [`ConnectionParameters`] provides defaults for all other values.

use std::fmt;

use farreach_verbs_sys as sys;

use super::{QueuePair, QueuePairState, QueuePairType};
use crate::ah::{AddressAttributes, Gid, Lid};
use crate::context::Context;
use crate::error::{Errno, Error, meaning};
use crate::gid::GidChoice;
use crate::mr::AccessFlags;
use crate::os;
use crate::port::{LinkLayer, Mtu};

/// The address that one side of a connection sends to the other.
///
/// ```
/// use farreach_verbs::ah::Lid;
/// use farreach_verbs::port::Mtu;
/// use farreach_verbs::qp::state::PeerAddress;
///
/// let own = PeerAddress {
///     qp_num: 17, psn: 0xabcdef, gid: "::ffff:192.0.2.1".parse().unwrap(), lid: Lid(0),
///     mtu: Mtu::Bytes1024, rd_atomic: 16, qkey: 0x1234,
/// };
/// assert_eq!(PeerAddress::from_bytes(own.to_bytes()), Some(own));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress {
    /// The queue pair number: 24 bits.
    pub qp_num: u32,
    /// The sequence number of the first packet that it sends: 24 bits.
    pub psn: u32,
    /// The GID of its port.
    pub gid: Gid,
    /// The address of its port within an InfiniBand subnet.
    pub lid: Lid,
    /// The largest path MTU of its port.
    pub mtu: Mtu,
    /// The number of RDMA READs and atomics that it serves at once.
    pub rd_atomic: u8,
    /// The Q_Key that datagrams to it must carry.
    pub qkey: u32,
}

/// The largest 24-bit number.
const NUMBER_MAX: u32 = 0xff_ffff;

impl PeerAddress {
    /// The size in bytes on the wire.
    pub const BYTES: usize = 32;

    /// Encodes the address in network order: queue pair number, PSN, Q_Key (four bytes each), GID
    /// (16), LID (two), MTU code, READs at once.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.qp_num.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.psn.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.qkey.to_be_bytes());
        bytes[12..28].copy_from_slice(&self.gid.to_bytes());
        bytes[28..30].copy_from_slice(&self.lid.0.to_be_bytes());
        // MTU codes range from 1 to 5.
        bytes[30] = self.mtu.raw() as u8;
        bytes[31] = self.rd_atomic;
        bytes
    }

    /// Decodes the result of [`to_bytes`](Self::to_bytes). Returns `None` if a number exceeds 24
    /// bits or the MTU code is invalid.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[12..28]);
        let address = Self {
            qp_num: word(0),
            psn: word(4),
            qkey: word(8),
            gid: Gid::from_bytes(gid),
            lid: Lid(u16::from_be_bytes([bytes[28], bytes[29]])),
            mtu: Mtu::from_raw(bytes[30].into()),
            rd_atomic: bytes[31],
        };
        let is_sound =
            address.qp_num <= NUMBER_MAX && address.psn <= NUMBER_MAX && address.mtu.bytes().is_some();
        is_sound.then_some(address)
    }
}

/// The parameters of a connection: port, path, timeouts and limits. [`choose`](Self::choose) sets
/// defaults, which the caller may change.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use std::net::Ipv4Addr;
/// use farreach_verbs::mr::AccessFlags;
/// use farreach_verbs::qp::state::ConnectionParameters;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// let peer = Ipv4Addr::new(192, 0, 2, 2);
/// let mut parameters = ConnectionParameters::choose(&context, 1, Some(peer.into()))?;
/// println!("{}", parameters.gid); // GID 1 ::ffff:192.0.2.1: RoCE v2, IPv4 like the peer, on v0
/// parameters.access = AccessFlags::REMOTE_WRITE;
/// parameters.traffic_class = 26 << 2; // DSCP 26
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionParameters {
    /// The local port, numbered from 1.
    pub port: u8,
    /// The GID to send from, and the reason for it.
    pub gid: GidChoice,
    /// The address of the port within an InfiniBand subnet.
    pub lid: Lid,
    /// `true` if every packet must carry a global route header: on Ethernet, and if the port
    /// requires it.
    pub is_grh_required: bool,
    /// The largest path MTU. Default: the port's active MTU. The connection uses the smaller value
    /// of both sides.
    pub mtu: Mtu,
    /// The index in the port's P_Key table. Default: 0, usually the default partition.
    pub pkey_index: u16,
    /// The access of the peer. Default: none, so it can only send.
    pub access: AccessFlags,
    /// The timeout for an acknowledgement: 4.096 µs × 2^value.
    pub timeout: u8,
    /// The number of retries without an acknowledgement: 0 to 7. On some devices, such as
    /// Soft-RoCE, 7 means for ever.
    pub retry_count: u8,
    /// The number of retries without a posted receive: 0 to 6, or 7 for ever.
    pub rnr_retry: u8,
    /// The delay that a peer must observe if no receive is posted: a code of `ibv_modify_qp(3)`.
    pub min_rnr_timer: u8,
    /// Maximum number of RDMA READs and atomics in flight at once. Default: the device's limit, at
    /// most 16. The number that the peer serves limits it further.
    pub max_rd_atomic: u8,
    /// Maximum number of the peer's RDMA READs and atomics that are served at once. Default: the
    /// device's limit, at most 16.
    pub max_dest_rd_atomic: u8,
    /// The traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// The service level, which selects a virtual lane through an InfiniBand subnet. On RoCE, the
    /// priority in a VLAN.
    pub service_level: u8,
    /// The flow label, by which routers may distribute packets: 20 bits. On RoCE v2 it determines
    /// the UDP source port.
    pub flow_label: u32,
    /// The maximum number of routers that a packet may pass.
    pub hop_limit: u8,
    /// The Q_Key that datagrams to this side must carry. Default: a random number.
    pub qkey: u32,
}

/// 4.096 µs × 2^15 is 134 ms. Seven attempts take some 0.9 s, or twice that on devices that wait
/// longer than configured. That is soon enough to report a dead peer, and long enough for a busy or
/// emulated one.
const TIMEOUT: u8 = 15;
/// The largest value that is finite on every device: Soft-RoCE takes 7 as for ever.
const RETRY_COUNT: u8 = 6;
/// The largest finite value: 7 means for ever, and a peer that never posts a receive would block
/// its sender.
const RNR_RETRY: u8 = 6;
/// The code of 61.44 ms. Seven attempts give a peer some 0.4 s to post a receive.
const MIN_RNR_TIMER: u8 = 25;
/// The usual initial value of IP.
const HOP_LIMIT: u8 = 64;
/// More READs at once than the delay of a network needs cost memory in every queue pair, so this is
/// the default limit.
const RD_ATOMIC_MAX: u32 = 16;

impl ConnectionParameters {
    /// Chooses parameters for a port and a peer. `peer` is its GID or IP address, if known. The
    /// fields document the defaults.
    pub fn choose(context: &Context, port: u8, peer: Option<Gid>) -> Result<Self, Error> {
        Self::with_gid(context, port, context.choose_gid(port, peer)?)
    }

    /// Like [`choose`](Self::choose), with this GID to send from.
    pub fn with_gid(context: &Context, port: u8, gid: GidChoice) -> Result<Self, Error> {
        let (device, attributes) = (context.query_device()?, context.query_port(port)?);
        // The cast is lossless because of the limit.
        let at_once = |limit: u32| limit.min(RD_ATOMIC_MAX) as u8;
        Ok(Self {
            port,
            gid,
            lid: attributes.lid,
            is_grh_required: attributes.link_layer == LinkLayer::Ethernet || attributes.grh_required,
            mtu: attributes.active_mtu,
            pkey_index: 0,
            access: AccessFlags::empty(),
            timeout: TIMEOUT,
            retry_count: RETRY_COUNT,
            rnr_retry: RNR_RETRY,
            min_rnr_timer: MIN_RNR_TIMER,
            max_rd_atomic: at_once(device.max_qp_init_rd_atom),
            max_dest_rd_atomic: at_once(device.max_qp_rd_atom),
            traffic_class: 0,
            service_level: 0,
            flow_label: 0,
            hop_limit: HOP_LIMIT,
            // The kernel reserves Q_Keys with the highest bit.
            qkey: random()? & !(1 << 31),
        })
    }

    /// Returns the path to a peer, for an address handle or a connection.
    pub fn address_of(&self, peer: &PeerAddress) -> AddressAttributes {
        let is_elsewhere = peer.gid.subnet_prefix() != self.gid.entry.gid.subnet_prefix();
        AddressAttributes {
            port: self.port,
            gid: (self.is_grh_required || is_elsewhere).then_some(peer.gid),
            // GID indexes are below 256: the C field has one byte.
            gid_index: self.gid.entry.index as u8,
            lid: peer.lid,
            service_level: self.service_level,
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            hop_limit: self.hop_limit,
        }
    }
}

/// Returns a random number from the operating system. A predictable PSN would let others inject
/// packets, and a reused one would accept old packets.
fn random() -> Result<u32, Error> {
    os::random().map_err(|error| Error::call("getrandom", "this host", error.raw_os_error().unwrap_or(0)))
}

impl QueuePair {
    /// Moves from RESET to INIT, so that receives can be posted. Returns the address for the peer,
    /// with a random PSN.
    pub fn to_init(&self, parameters: &ConnectionParameters) -> Result<PeerAddress, Error> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_INIT,
            pkey_index: parameters.pkey_index,
            port_num: parameters.port,
            qkey: parameters.qkey,
            qp_access_flags: parameters.access.of_peer().bits(),
            ..Default::default()
        };
        let own = match self.kind() {
            QueuePairType::Ud => sys::IBV_QP_QKEY,
            _ => sys::IBV_QP_ACCESS_FLAGS,
        };
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | own;
        self.change(&mut attr, mask, QueuePairState::Init, Some((parameters, None)))?;
        Ok(PeerAddress {
            qp_num: self.qp_num(),
            psn: random()? & NUMBER_MAX,
            gid: parameters.gid.entry.gid,
            lid: parameters.lid,
            mtu: parameters.mtu,
            rd_atomic: parameters.max_dest_rd_atomic,
            qkey: parameters.qkey,
        })
    }

    /// Moves from INIT to RTR, so that it receives from the peer.
    pub fn to_rtr(&self, parameters: &ConnectionParameters, peer: &PeerAddress) -> Result<(), Error> {
        let mtu = parameters.mtu.raw().min(peer.mtu.raw());
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTR,
            path_mtu: mtu,
            dest_qp_num: peer.qp_num,
            rq_psn: peer.psn,
            max_dest_rd_atomic: parameters.max_dest_rd_atomic,
            min_rnr_timer: parameters.min_rnr_timer,
            ah_attr: parameters.address_of(peer).to_raw(),
            ..Default::default()
        };
        let path = sys::IBV_QP_AV | sys::IBV_QP_PATH_MTU | sys::IBV_QP_DEST_QPN | sys::IBV_QP_RQ_PSN;
        let answers = sys::IBV_QP_MAX_DEST_RD_ATOMIC | sys::IBV_QP_MIN_RNR_TIMER;
        let mask = sys::IBV_QP_STATE
            | match self.kind() {
                QueuePairType::Ud => 0,
                QueuePairType::Uc | QueuePairType::XrcSend => path,
                _ => path | answers,
            };
        self.change(&mut attr, mask, QueuePairState::ReadyToReceive, Some((parameters, Some(peer))))
    }

    /// Moves from RTR to RTS, so that it can send too. `own` is the result of
    /// [`to_init`](Self::to_init).
    pub fn to_rts(
        &self,
        parameters: &ConnectionParameters,
        own: &PeerAddress,
        peer: &PeerAddress,
    ) -> Result<(), Error> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTS,
            sq_psn: own.psn,
            timeout: parameters.timeout,
            retry_cnt: parameters.retry_count,
            rnr_retry: parameters.rnr_retry,
            max_rd_atomic: parameters.max_rd_atomic.min(peer.rd_atomic),
            ..Default::default()
        };
        let retries = sys::IBV_QP_RETRY_CNT | sys::IBV_QP_RNR_RETRY | sys::IBV_QP_MAX_QP_RD_ATOMIC;
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_SQ_PSN
            | match self.kind() {
                QueuePairType::Ud | QueuePairType::Uc => 0,
                QueuePairType::XrcRecv => sys::IBV_QP_TIMEOUT,
                _ => sys::IBV_QP_TIMEOUT | retries,
            };
        self.change(&mut attr, mask, QueuePairState::ReadyToSend, Some((parameters, Some(peer))))
    }

    /// Moves from INIT to RTS with a peer, for reliable and unreliable connections.
    ///
    /// ```no_run
    /// # use farreach_verbs::device::DeviceList;
    /// # use farreach_verbs::qp::state::{ConnectionParameters, PeerAddress};
    /// # use farreach_verbs::qp::{QueuePairBuilder, QueuePairType};
    /// # fn exchange(own: PeerAddress) -> PeerAddress { own }
    /// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let cq = context.create_cq(128)?;
    /// let qp = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).build(&pd)?;
    /// let parameters = ConnectionParameters::choose(&context, 1, None)?;
    /// let own = qp.to_init(&parameters)?;
    /// let peer = exchange(own); // over a socket, say
    /// qp.connect(&parameters, &own, &peer)?;
    /// # Ok::<(), farreach_verbs::Error>(())
    /// ```
    pub fn connect(
        &self,
        parameters: &ConnectionParameters,
        own: &PeerAddress,
        peer: &PeerAddress,
    ) -> Result<(), Error> {
        self.to_rtr(parameters, peer)?;
        self.to_rts(parameters, own, peer)
    }

    /// Moves from INIT to RTS without a peer, for datagrams.
    pub fn activate(&self, parameters: &ConnectionParameters, own: &PeerAddress) -> Result<(), Error> {
        self.connect(parameters, own, own)
    }

    /// Moves to ERR: all posted work requests complete as flushed, and nothing more is sent or
    /// received.
    pub fn to_error(&self) -> Result<(), Error> {
        let mut attr = sys::ibv_qp_attr { qp_state: sys::IBV_QPS_ERR, ..Default::default() };
        self.change(&mut attr, sys::IBV_QP_STATE, QueuePairState::Error, None)
    }

    /// Moves from RTS to SQD: finishes the sends in progress and starts no more, until
    /// [`resume`](Self::resume). It still receives.
    ///
    /// [`QueuePairAttributes::is_draining`](super::QueuePairAttributes::is_draining) becomes
    /// `false` when it has finished, and the event
    /// [`EventType::SendQueueDrained`](crate::event::EventType::SendQueueDrained) is raised.
    pub fn drain(&self) -> Result<(), Error> {
        let mut attr =
            sys::ibv_qp_attr { qp_state: sys::IBV_QPS_SQD, en_sqd_async_notify: 1, ..Default::default() };
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_EN_SQD_ASYNC_NOTIFY;
        self.change(&mut attr, mask, QueuePairState::SendQueueDrained, None)
    }

    /// Moves from SQD to RTS, so that it sends again. A device may refuse this while the queue pair
    /// is still draining.
    pub fn resume(&self) -> Result<(), Error> {
        let mut attr = sys::ibv_qp_attr { qp_state: sys::IBV_QPS_RTS, ..Default::default() };
        self.change(&mut attr, sys::IBV_QP_STATE, QueuePairState::ReadyToSend, None)
    }

    fn change(
        &self,
        attr: &mut sys::ibv_qp_attr,
        mask: u32,
        to: QueuePairState,
        between: Option<(&ConnectionParameters, Option<&PeerAddress>)>,
    ) -> Result<(), Error> {
        let errno = self.modify(attr, mask)?;
        if errno == 0 {
            return Ok(());
        }
        let datagram = self.kind() == QueuePairType::Ud;
        Err(Error::StateChange(Box::new(StateChangeRefused {
            device: self.context().device().name().to_owned(),
            port: between.map(|(own, _)| own.port),
            qp_num: self.qp_num(),
            from: self.state().ok(),
            to,
            gid: between.map(|(own, _)| (own.gid.entry.index, own.gid.entry.gid)),
            peer: between.and_then(|(_, peer)| peer).filter(|_| !datagram).map(|peer| peer.gid),
            errno: Errno(errno.abs()),
        })))
    }
}

/// A state change of a queue pair was refused. See [`Error::StateChange`].
///
/// ```no_run
/// # use farreach_verbs::qp::{QueuePair, state::{ConnectionParameters, PeerAddress}};
/// # fn with(qp: &QueuePair, parameters: &ConnectionParameters, peer: &PeerAddress) {
/// if let Err(error) = qp.to_rtr(parameters, peer) {
///     // ibv_modify_qp INIT to RTR of queue pair 17 on rxe0:1, GID 1 ::ffff:192.0.2.1
///     // towards ::ffff:192.0.2.9: Connection timed out (errno 110)
///     println!("error: {error}\ncause: {}\nfix: {}", error.cause(), error.fix());
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateChangeRefused {
    /// The device.
    pub device: String,
    /// The port, if the change names one.
    pub port: Option<u8>,
    /// The number of the queue pair.
    pub qp_num: u32,
    /// Its state, if it is known.
    pub from: Option<QueuePairState>,
    /// The state that it did not reach.
    pub to: QueuePairState,
    /// The index and the value of the local GID.
    pub gid: Option<(u32, Gid)>,
    /// The peer's GID.
    pub peer: Option<Gid>,
    /// The error number.
    pub errno: Errno,
}

impl StateChangeRefused {
    pub(crate) fn cause(&self) -> String {
        self.meaning().0.to_owned()
    }

    pub(crate) fn fix(&self) -> String {
        self.meaning().1.to_owned()
    }

    /// Returns cause and fix of an errno. The change to RTR resolves the path to the peer, so its
    /// errnos have specific meanings.
    fn meaning(&self) -> (&'static str, &'static str) {
        if self.to != QueuePairState::ReadyToReceive {
            return match self.errno.0 {
                libc::EINVAL => (
                    "the queue pair is not in the state that this change starts from, or the device refuses an attribute",
                    "go RESET, INIT, RTR, RTS in this order, and compare the attributes with the device's limits: \
                     farreach devices -v",
                ),
                _ => meaning("ibv_modify_qp", self.errno),
            };
        }
        let families =
            self.gid.map(|(_, gid)| gid.ip().is_ipv4()).zip(self.peer.map(|gid| gid.ip().is_ipv4()));
        match self.errno.0 {
            libc::ETIMEDOUT => (
                "the peer's hardware address was not resolved within a second: it is in another subnet or VLAN, on \
                 another rail, or down",
                "ping the peer's address from this port's net device: ping -I NETDEV ADDRESS",
            ),
            libc::ENETUNREACH | libc::EHOSTUNREACH => (
                "there is no route from this GID's net device to the peer",
                "check: ip route get ADDRESS oif NETDEV; choose the GID of a net device that reaches the peer",
            ),
            libc::ENODEV => (
                "the GID has no net device that can be used: it is loopback, down, or in another network namespace",
                "choose another GID index; in a container, use the namespace that the net device is in",
            ),
            libc::EINVAL if families.is_some_and(|(own, peer)| own != peer) => {
                ("one GID is IPv4 and the other IPv6", "choose GIDs of the same address family on both sides")
            }
            libc::EINVAL => (
                "the queue pair is not in INIT, the path MTU is above the port's active one, the global route header is \
                 missing on RoCE, or the GID index is empty",
                "compare both sides' GIDs and MTUs: farreach devices -v",
            ),
            _ => meaning("ibv_modify_qp", self.errno),
        }
    }
}

impl fmt::Display for StateChangeRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ibv_modify_qp ")?;
        if let Some(from) = self.from {
            write!(f, "{from} ")?;
        }
        write!(f, "to {} of queue pair {} on {}", self.to, self.qp_num, self.device)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if let Some((index, gid)) = self.gid {
            write!(f, ", GID {index} {gid}")?;
        }
        if let Some(peer) = self.peer {
            write!(f, " towards {peer}")?;
        }
        write!(f, ": {}", self.errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: i32, peer: &str) -> StateChangeRefused {
        StateChangeRefused {
            device: "rxe0".into(),
            port: Some(1),
            qp_num: 17,
            from: Some(QueuePairState::Init),
            to: QueuePairState::ReadyToReceive,
            gid: Some((1, "::ffff:192.0.2.1".parse().unwrap())),
            peer: Some(peer.parse().unwrap()),
            errno: Errno(errno),
        }
    }

    #[test]
    fn a_refused_change_says_between_whom() {
        assert_eq!(
            refused(libc::ETIMEDOUT, "::ffff:192.0.2.9").to_string(),
            "ibv_modify_qp INIT to RTR of queue pair 17 on rxe0:1, GID 1 ::ffff:192.0.2.1 towards ::ffff:192.0.2.9: \
             Connection timed out (errno 110)"
        );
    }

    #[test]
    fn each_errno_means_something_else() {
        let causes = [libc::ETIMEDOUT, libc::ENETUNREACH, libc::ENODEV, libc::EINVAL]
            .map(|errno| refused(errno, "::ffff:192.0.2.9").cause());
        for (cause, part) in causes.iter().zip(["not resolved", "no route", "no net device", "path MTU"]) {
            assert!(cause.contains(part), "{cause}");
        }
        let families = refused(libc::EINVAL, "2001:db8::1").cause();
        assert_eq!(families, "one GID is IPv4 and the other IPv6");
        let mut to_rts = refused(libc::EINVAL, "::ffff:192.0.2.9");
        to_rts.to = QueuePairState::ReadyToSend;
        assert!(to_rts.cause().contains("not in the state"), "{}", to_rts.cause());
    }

    #[test]
    fn an_address_from_the_wire_is_checked() {
        let address = PeerAddress {
            qp_num: 0x12_3456,
            psn: NUMBER_MAX,
            gid: "2001:db8::1".parse().unwrap(),
            lid: Lid(7),
            mtu: Mtu::Bytes4096,
            rd_atomic: 3,
            qkey: 0x8000_0001,
        };
        let bytes = address.to_bytes();
        assert_eq!(bytes[..4], [0, 0x12, 0x34, 0x56], "network order");
        assert_eq!(PeerAddress::from_bytes(bytes), Some(address));
        for (place, value) in [(0, 1), (4, 1), (30, 0), (30, 6)] {
            let mut wrong = bytes;
            wrong[place] = value;
            assert_eq!(PeerAddress::from_bytes(wrong), None, "byte {place}");
        }
    }

    #[test]
    fn random_numbers_differ() {
        let drawn: Vec<u32> = (0..4).map(|_| random().unwrap()).collect();
        assert!(drawn.iter().any(|number| *number != drawn[0]), "{drawn:?}");
    }
}
