//! From RESET to RTS by hand, without the connection manager.
//!
//! Each side brings its queue pair to INIT and tells the other its [`PeerAddress`], by whatever means; then both connect. What
//! nobody wants to choose is chosen: see [`ConnectionParameters`].

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

/// What one side of a connection tells the other.
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
    /// The queue pair's number: 24 bits.
    pub qp_num: u32,
    /// The number of the first packet that it sends: 24 bits.
    pub psn: u32,
    /// Its port's address.
    pub gid: Gid,
    /// Its port's address within an InfiniBand subnet.
    pub lid: Lid,
    /// The largest packets that its port takes.
    pub mtu: Mtu,
    /// RDMA READs and atomics that it serves at once.
    pub rd_atomic: u8,
    /// The key that datagrams for it must carry.
    pub qkey: u32,
}

/// 24 bits.
const NUMBER_MAX: u32 = 0xff_ffff;

impl PeerAddress {
    /// How many bytes it is on the wire.
    pub const BYTES: usize = 32;

    /// As bytes, in network order: number, PSN, Q_Key (four each), GID (16), LID (two), MTU's code, READs at once.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.qp_num.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.psn.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.qkey.to_be_bytes());
        bytes[12..28].copy_from_slice(&self.gid.to_bytes());
        bytes[28..30].copy_from_slice(&self.lid.0.to_be_bytes());
        // MTUs are numbered from 1 to 5.
        bytes[30] = self.mtu.raw() as u8;
        bytes[31] = self.rd_atomic;
        bytes
    }

    /// What [`to_bytes`](Self::to_bytes) made; none where a number has more than 24 bits or the MTU is none.
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

/// How a queue pair uses its port and treats its peer: chosen by [`choose`](Self::choose), then changed where the caller knows
/// better.
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
    /// The port, counted from 1.
    pub port: u8,
    /// The GID to send from, and why.
    pub gid: GidChoice,
    /// The port's address within an InfiniBand subnet.
    pub lid: Lid,
    /// Whether every packet must carry a global route header: on Ethernet, and where the port says so.
    pub is_grh_required: bool,
    /// The largest packets: the port's active MTU. The path's is the smaller of both sides'.
    pub mtu: Mtu,
    /// The place of the partition in the port's P_Key table: the first, which is usually the default one.
    pub pkey_index: u16,
    /// What the peer may do: nothing but send.
    pub access: AccessFlags,
    /// How long to wait for an acknowledgement: 4.096 µs × 2^this.
    pub timeout: u8,
    /// How often to send again what was not acknowledged: 0 to 7. 7 is for ever on some devices, as Soft-RoCE.
    pub retry_count: u8,
    /// How often to send again what no receive was posted for: 0 to 6, or 7 for ever.
    pub rnr_retry: u8,
    /// How long a peer shall wait where no receive is posted: a code of `ibv_modify_qp(3)`.
    pub min_rnr_timer: u8,
    /// RDMA READs and atomics under way at once: what the device allows. What the peer serves limits it further.
    pub max_rd_atomic: u8,
    /// RDMA READs and atomics served at once: what the device allows.
    pub max_dest_rd_atomic: u8,
    /// How the network shall treat the packets: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// The lane through an InfiniBand subnet; on RoCE, the priority where there is a VLAN.
    pub service_level: u8,
    /// What routers may spread packets by: 20 bits. On RoCE v2 the UDP source port follows from it.
    pub flow_label: u32,
    /// How many routers the packets pass at most.
    pub hop_limit: u8,
    /// The key that datagrams for this side must carry: drawn at random.
    pub qkey: u32,
}

/// 4.096 µs × 2^15 are 134 ms. Seven attempts of that end in some 0.9 s, in twice as much where a device waits longer
/// than it is told: soon enough to tell of a dead peer, and long enough for a busy or emulated one.
const TIMEOUT: u8 = 15;
/// The most that ends on every device: Soft-RoCE takes 7 for ever.
const RETRY_COUNT: u8 = 6;
/// The most that ends: 7 stands for ever, and a peer that never posts a receive would hang its sender.
const RNR_RETRY: u8 = 6;
/// The code of 61.44 ms: seven attempts then give a peer some 0.4 s to post a receive.
const MIN_RNR_TIMER: u8 = 25;
/// As an IP packet usually starts out.
const HOP_LIMIT: u8 = 64;
/// More READs at once than hide any network's delay cost memory in every queue pair: more is not taken unasked.
const RD_ATOMIC_MAX: u32 = 16;

impl ConnectionParameters {
    /// Chooses for a port and a peer, whose GID or IP address is known or not. The fields say what is chosen.
    pub fn choose(context: &Context, port: u8, peer: Option<Gid>) -> Result<Self, Error> {
        Self::with_gid(context, port, context.choose_gid(port, peer)?)
    }

    /// As [`choose`](Self::choose), to send from this GID.
    pub fn with_gid(context: &Context, port: u8, gid: GidChoice) -> Result<Self, Error> {
        let (device, attributes) = (context.query_device()?, context.query_port(port)?);
        // Fits, because of the limit.
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
            // The highest bit is for keys that only the kernel gives out.
            qkey: random()? & !(1 << 31),
        })
    }

    /// The way to a peer, for an address handle or a connection.
    pub fn address_of(&self, peer: &PeerAddress) -> AddressAttributes {
        let is_elsewhere = peer.gid.subnet_prefix() != self.gid.entry.gid.subnet_prefix();
        AddressAttributes {
            port: self.port,
            gid: (self.is_grh_required || is_elsewhere).then_some(peer.gid),
            // GID tables have fewer than 256 places: C has no room for more.
            gid_index: self.gid.entry.index as u8,
            lid: peer.lid,
            service_level: self.service_level,
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            hop_limit: self.hop_limit,
        }
    }
}

/// From the operating system: a PSN that can be guessed lets others inject packets, and one that was used before lets old
/// packets in.
fn random() -> Result<u32, Error> {
    os::random().map_err(|error| Error::call("getrandom", "this host", error.raw_os_error().unwrap_or(0)))
}

impl QueuePair {
    /// RESET to INIT: receives can be posted. What to tell the peer, with a PSN drawn at random.
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

    /// INIT to RTR: it receives from the peer.
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

    /// RTR to RTS: it sends too. `own` is what [`to_init`](Self::to_init) gave.
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

    /// INIT to RTS, towards a peer: of reliable and unreliable connections.
    ///
    /// ```no_run
    /// # use farreach_verbs::device::DeviceList;
    /// # use farreach_verbs::qp::{QueuePairBuilder, QueuePairType, state::{ConnectionParameters, PeerAddress}};
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

    /// INIT to RTS, towards nobody in particular: of datagrams.
    pub fn activate(&self, parameters: &ConnectionParameters, own: &PeerAddress) -> Result<(), Error> {
        self.connect(parameters, own, own)
    }

    /// To ERR: everything posted completes, flushed, and nothing more is sent or received.
    pub fn to_error(&self) -> Result<(), Error> {
        let mut attr = sys::ibv_qp_attr { qp_state: sys::IBV_QPS_ERR, ..Default::default() };
        self.change(&mut attr, sys::IBV_QP_STATE, QueuePairState::Error, None)
    }

    /// RTS to SQD: finishes what is being sent and begins no more, until [`resume`](Self::resume). It still receives.
    ///
    /// [`QueuePairAttributes::is_draining`](super::QueuePairAttributes::is_draining) tells when it has finished, and so does
    /// an event: [`EventType::SendQueueDrained`](crate::event::EventType::SendQueueDrained).
    pub fn drain(&self) -> Result<(), Error> {
        let mut attr =
            sys::ibv_qp_attr { qp_state: sys::IBV_QPS_SQD, en_sqd_async_notify: 1, ..Default::default() };
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_EN_SQD_ASYNC_NOTIFY;
        self.change(&mut attr, mask, QueuePairState::SendQueueDrained, None)
    }

    /// SQD to RTS: sends again. A device may refuse it while the queue pair is still draining.
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

/// A queue pair did not change its state: see [`Error::StateChange`].
///
/// ```no_run
/// # use farreach_verbs::qp::{QueuePair, state::{ConnectionParameters, PeerAddress}};
/// # fn with(qp: &QueuePair, parameters: &ConnectionParameters, peer: &PeerAddress) {
/// if let Err(error) = qp.to_rtr(parameters, peer) {
///     // ibv_modify_qp INIT to RTR of queue pair 17 on rxe0:1, GID 1 ::ffff:192.0.2.1 towards ::ffff:192.0.2.9:
///     // Connection timed out (errno 110)
///     println!("error: {error}\ncause: {}\nfix: {}", error.cause(), error.fix());
/// }
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateChangeRefused {
    /// The device.
    pub device: String,
    /// The port, where the change names one.
    pub port: Option<u8>,
    /// The queue pair.
    pub qp_num: u32,
    /// Its state, where it can be told.
    pub from: Option<QueuePairState>,
    /// The state that it did not reach.
    pub to: QueuePairState,
    /// The own GID and its place in the table.
    pub gid: Option<(u32, Gid)>,
    /// The peer's GID.
    pub peer: Option<Gid>,
    /// Why.
    pub errno: Errno,
}

impl StateChangeRefused {
    pub(crate) fn cause(&self) -> String {
        self.meaning().0.to_owned()
    }

    pub(crate) fn fix(&self) -> String {
        self.meaning().1.to_owned()
    }

    /// What an errno means on the way to RTR, where the path to the peer is looked for.
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
                "look at: ip route get ADDRESS oif NETDEV; choose the GID of a net device that reaches the peer",
            ),
            libc::ENODEV => (
                "the GID has no net device that can be used: it is loopback, down, or in another network namespace",
                "choose another GID index; in a container, use the namespace that the net device is in",
            ),
            libc::EINVAL if families.is_some_and(|(own, peer)| own != peer) => (
                "one GID is IPv4 and the other IPv6",
                "choose a GID of the peer's address family on one of both sides",
            ),
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
