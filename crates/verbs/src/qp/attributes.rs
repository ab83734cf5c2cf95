//! Types, states, sizes and attributes of queue pairs.

use std::fmt;

use farreach_verbs_sys as sys;

use crate::ah::Gid;
use crate::mr::AccessFlags;
use crate::port::Mtu;

/// The transport service of a queue pair.
///
/// ```
/// use farreach_verbs::qp::QueuePairType;
///
/// assert_eq!(QueuePairType::Rc.to_string(), "RC");
/// ```
#[doc(alias = "ibv_qp_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueuePairType {
    /// Reliable connection: all messages arrive, once and in order, or the connection ends.
    /// Supports all operations.
    Rc,
    /// Unreliable connection: lost packets are not sent again. Supports SEND and RDMA WRITE.
    Uc,
    /// Unreliable datagrams of up to one packet, to and from any queue pair. Supports SEND.
    Ud,
    /// The sending side of an extended reliable connection.
    XrcSend,
    /// The receiving side of an extended reliable connection, created by
    /// [`XrcDomain::create_qp`](crate::xrc::XrcDomain::create_qp).
    XrcRecv,
}

impl QueuePairType {
    /// Returns the C value.
    pub fn raw(self) -> u32 {
        match self {
            Self::Rc => sys::IBV_QPT_RC,
            Self::Uc => sys::IBV_QPT_UC,
            Self::Ud => sys::IBV_QPT_UD,
            Self::XrcSend => sys::IBV_QPT_XRC_SEND,
            Self::XrcRecv => sys::IBV_QPT_XRC_RECV,
        }
    }
}

impl fmt::Display for QueuePairType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcSend => "XRC send",
            Self::XrcRecv => "XRC receive",
        })
    }
}

c_enum! {
    /// The state of a queue pair.
    ///
    /// ```
    /// use farreach_verbs::qp::QueuePairState;
    ///
    /// assert_eq!(QueuePairState::ReadyToReceive.to_string(), "RTR");
    /// ```
    #[doc(alias = "ibv_qp_state")]
    pub enum QueuePairState(u32) {
        /// The initial state: nothing can be posted.
        Reset = sys::IBV_QPS_RESET, "RESET";
        /// Receives can be posted.
        Init = sys::IBV_QPS_INIT, "INIT";
        /// It can receive.
        ReadyToReceive = sys::IBV_QPS_RTR, "RTR";
        /// It can receive and send.
        ReadyToSend = sys::IBV_QPS_RTS, "RTS";
        /// It can receive. It finishes the sends in progress and starts no more.
        SendQueueDrained = sys::IBV_QPS_SQD, "SQD";
        /// A send failed. It can receive, but sends no more. Only for datagrams and unreliable
        /// connections.
        SendQueueError = sys::IBV_QPS_SQE, "SQE";
        /// All posted work requests are flushed.
        Error = sys::IBV_QPS_ERR, "ERR";
    }
}

impl QueuePairState {
    /// Returns `true` if sends may be posted.
    pub(super) fn can_send(self) -> bool {
        !matches!(self, Self::Reset | Self::Init | Self::ReadyToReceive)
    }
}

/// The sizes of a queue pair.
///
/// ```
/// use farreach_verbs::qp::Capacity;
///
/// let capacity = Capacity { max_send_wr: 128, ..Capacity::default() };
/// assert_eq!((capacity.max_send_sge, capacity.max_inline_data), (1, 0));
/// ```
#[doc(alias = "ibv_qp_cap")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Maximum number of work requests in flight on the send queue.
    pub max_send_wr: u32,
    /// Maximum number of work requests in flight on the receive queue.
    pub max_recv_wr: u32,
    /// Maximum number of scatter-gather elements of a work request on the send queue.
    pub max_send_sge: u32,
    /// Maximum number of scatter-gather elements of a work request on the receive queue.
    pub max_recv_sge: u32,
    /// Maximum number of bytes that a work request can carry inline.
    pub max_inline_data: u32,
}

impl Default for Capacity {
    /// Returns 64 work requests of one element on each queue, which every device supports.
    fn default() -> Self {
        Self { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 }
    }
}

impl Capacity {
    pub(super) fn to_raw(self) -> sys::ibv_qp_cap {
        sys::ibv_qp_cap {
            max_send_wr: self.max_send_wr,
            max_recv_wr: self.max_recv_wr,
            max_send_sge: self.max_send_sge,
            max_recv_sge: self.max_recv_sge,
            max_inline_data: self.max_inline_data,
        }
    }

    pub(super) fn from_raw(cap: &sys::ibv_qp_cap) -> Self {
        Self {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
        }
    }
}

/// The attributes of a queue pair. See [`QueuePair::query`](super::QueuePair::query).
///
/// ```no_run
/// # fn with(qp: &farreach_verbs::qp::QueuePair) -> Result<(), farreach_verbs::Error> {
/// let attributes = qp.query()?;
/// println!("{} towards {} of {}", attributes.state, attributes.dest_qp_num, attributes.peer_gid);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_qp_attr")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePairAttributes {
    /// The state.
    pub state: QueuePairState,
    /// `true` while sends are still in progress, in [`QueuePairState::SendQueueDrained`].
    pub is_draining: bool,
    /// The access of the peer.
    pub access: AccessFlags,
    /// The local port.
    pub port: u8,
    /// The index in the port's P_Key table.
    pub pkey_index: u16,
    /// The Q_Key, for datagrams.
    pub qkey: u32,
    /// The path MTU.
    pub path_mtu: Mtu,
    /// The number of the peer's queue pair.
    pub dest_qp_num: u32,
    /// The peer's GID.
    pub peer_gid: Gid,
    /// The index of the local GID in the port's table.
    pub gid_index: u8,
    /// The traffic class.
    pub traffic_class: u8,
    /// The maximum number of routers that a packet may pass.
    pub hop_limit: u8,
    /// The service level, which selects a virtual lane through an InfiniBand subnet.
    pub service_level: u8,
    /// The sequence number of the next packet to receive.
    pub rq_psn: u32,
    /// The sequence number of the next packet to send.
    pub sq_psn: u32,
    /// Maximum number of RDMA READs and atomics in flight at once.
    pub max_rd_atomic: u8,
    /// Maximum number of the peer's RDMA READs and atomics that are served at once.
    pub max_dest_rd_atomic: u8,
    /// The delay that a sender must observe if no receive is posted, as a code of
    /// `ibv_modify_qp(3)`.
    pub min_rnr_timer: u8,
    /// The timeout for an acknowledgement: 4.096 µs × 2^value; 0 means for ever.
    pub timeout: u8,
    /// The number of retries without an acknowledgement.
    pub retry_count: u8,
    /// The number of retries without a posted receive; 7 means for ever.
    pub rnr_retry: u8,
    /// The sizes.
    pub capacity: Capacity,
}

impl From<&sys::ibv_qp_attr> for QueuePairAttributes {
    fn from(attr: &sys::ibv_qp_attr) -> Self {
        let route = &attr.ah_attr.grh;
        Self {
            state: QueuePairState::from_raw(attr.qp_state),
            is_draining: attr.sq_draining != 0,
            access: AccessFlags::from_bits_retain(attr.qp_access_flags),
            port: attr.port_num,
            pkey_index: attr.pkey_index,
            qkey: attr.qkey,
            path_mtu: Mtu::from_raw(attr.path_mtu),
            dest_qp_num: attr.dest_qp_num,
            peer_gid: route.dgid.into(),
            gid_index: route.sgid_index,
            traffic_class: route.traffic_class,
            hop_limit: route.hop_limit,
            service_level: attr.ah_attr.sl,
            rq_psn: attr.rq_psn,
            sq_psn: attr.sq_psn,
            max_rd_atomic: attr.max_rd_atomic,
            max_dest_rd_atomic: attr.max_dest_rd_atomic,
            min_rnr_timer: attr.min_rnr_timer,
            timeout: attr.timeout,
            retry_count: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
            capacity: Capacity::from_raw(&attr.cap),
        }
    }
}

bitflags::bitflags! {
    /// Operations that a queue pair supports by its `ibv_wr_*` functions.
    ///
    /// ```
    /// use farreach_verbs::qp::SendOperations;
    ///
    /// let operations = SendOperations::RDMA_WRITE | SendOperations::FLUSH;
    /// assert!(operations.contains(SendOperations::FLUSH));
    /// ```
    #[doc(alias = "ibv_qp_create_send_ops_flags")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct SendOperations: u32 {
        /// RDMA WRITE.
        const RDMA_WRITE = sys::IBV_QP_EX_WITH_RDMA_WRITE;
        /// RDMA WRITE with immediate.
        const RDMA_WRITE_WITH_IMM = sys::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
        /// SEND.
        const SEND = sys::IBV_QP_EX_WITH_SEND;
        /// SEND with immediate.
        const SEND_WITH_IMM = sys::IBV_QP_EX_WITH_SEND_WITH_IMM;
        /// RDMA READ.
        const RDMA_READ = sys::IBV_QP_EX_WITH_RDMA_READ;
        /// Compare and swap.
        const ATOMIC_CMP_AND_SWP = sys::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP;
        /// Fetch and add.
        const ATOMIC_FETCH_AND_ADD = sys::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
        /// Invalidation of a local key.
        const LOCAL_INV = sys::IBV_QP_EX_WITH_LOCAL_INV;
        /// Binding a window of type 2.
        const BIND_MW = sys::IBV_QP_EX_WITH_BIND_MW;
        /// SEND with invalidation of a key of the peer.
        const SEND_WITH_INV = sys::IBV_QP_EX_WITH_SEND_WITH_INV;
        /// FLUSH.
        const FLUSH = sys::IBV_QP_EX_WITH_FLUSH;
        /// ATOMIC WRITE.
        const ATOMIC_WRITE = sys::IBV_QP_EX_WITH_ATOMIC_WRITE;
    }
}
