//! Changes the state of a queue pair during the handshake.

use farreach_verbs_sys as sys;

use super::error::Error;
use super::id::CmId;
use super::parameters::CmParameters;
use crate::qp::QueuePair;

/// The attributes that user space defines. The kernel also sets some of its own (1 << 21 to 1 <<
/// 24: hardware addresses and VLANs of RoCE), for which user space has no fields, and which
/// `ibv_modify_qp` refuses.
const KNOWN_ATTRIBUTES: u32 = ((1 << 21) - 1) | sys::IBV_QP_RATE_LIMIT;

/// The queue pair of a connection. The caller owns it; these methods set its peer.
///
/// | state | active side | passive side |
/// |---|---|---|
/// | INIT | [`init_qp`](Self::init_qp) after the route, then post receives | on the request |
/// | RTR, RTS | [`ready_qp`](Self::ready_qp) at the connect response, then [`establish`](Self::establish) | before [`accept`](Self::accept) |
impl CmId {
    /// Moves the queue pair to INIT, for the id's device and port: `rdma_init_qp_attr(3)`. Receives
    /// may be posted from then on.
    ///
    /// A queue pair of datagrams continues to RTS, because it needs nothing from the peer.
    #[doc(alias = "rdma_init_qp_attr")]
    #[doc(alias = "rdma_create_qp")]
    pub fn init_qp(&self, qp: &QueuePair) -> Result<(), Error> {
        self.modify(qp, sys::IBV_QPS_INIT, |_| ())?;
        if self.port_space().is_datagram() {
            // For datagrams, the connection manager provides no further attributes.
            let mut attributes = sys::ibv_qp_attr { qp_state: sys::IBV_QPS_RTR, ..Default::default() };
            apply(qp, &mut attributes, sys::IBV_QP_STATE)?;
            attributes.qp_state = sys::IBV_QPS_RTS;
            apply(qp, &mut attributes, sys::IBV_QP_STATE | sys::IBV_QP_SQ_PSN)?;
        }
        Ok(())
    }

    /// Moves the queue pair to RTR and RTS, with the peer's values from the handshake.
    ///
    /// `parameters` are those of this side. Their numbers of reads and atomics apply unless they
    /// are [`DEVICE_MAX`](CmParameters::DEVICE_MAX).
    pub fn ready_qp(&self, qp: &QueuePair, parameters: &CmParameters) -> Result<(), Error> {
        let given = |count: u8| (count != CmParameters::DEVICE_MAX).then_some(count);
        // INIT again: the access rights are known only after the handshake.
        self.modify(qp, sys::IBV_QPS_INIT, |_| ())?;
        self.modify(qp, sys::IBV_QPS_RTR, |attributes| {
            attributes.max_dest_rd_atomic =
                given(parameters.responder_resources).unwrap_or(attributes.max_dest_rd_atomic);
        })?;
        self.modify(qp, sys::IBV_QPS_RTS, |attributes| {
            attributes.max_rd_atomic = given(parameters.initiator_depth).unwrap_or(attributes.max_rd_atomic);
        })
    }

    fn modify(
        &self,
        qp: &QueuePair,
        state: sys::ibv_qp_state,
        change: impl FnOnce(&mut sys::ibv_qp_attr),
    ) -> Result<(), Error> {
        let mut attributes = sys::ibv_qp_attr { qp_state: state, ..Default::default() };
        let mut mask = 0;
        self.call("rdma_init_qp_attr", |id| id.init_qp_attr(&mut attributes, &mut mask))?;
        change(&mut attributes);
        apply(qp, &mut attributes, mask as u32 & KNOWN_ATTRIBUTES)
    }
}

fn apply(qp: &QueuePair, attributes: &mut sys::ibv_qp_attr, mask: u32) -> Result<(), Error> {
    // iWARP: the driver modifies the queue pair itself.
    if mask == 0 {
        return Ok(());
    }
    // SAFETY: the state is INIT, RTR or RTS and not RESET, so no posted work request is forgotten.
    // The access rights that the handshake grants let a peer access only what the regions allow,
    // and the creators of those regions have guaranteed that this is sound.
    Ok(unsafe { qp.modify_raw(attributes, mask) }?)
}
