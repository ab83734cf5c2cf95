//! Options of an id, set before it connects or listens.

use std::ffi::c_int;

use farreach_verbs_sys as sys;

use super::error::Error;
use super::id::CmId;

/// Options of an id: `rdma_set_option(3)`.
///
/// ```no_run
/// use farreach_verbs::cm::{EventChannel, PortSpace};
///
/// let id = EventChannel::new()?.create_id(PortSpace::Tcp)?;
/// id.set_type_of_service(26 << 2)?; // DSCP 26
/// id.set_ack_timeout(17)?;
/// # Ok::<(), farreach_verbs::cm::Error>(())
/// ```
impl CmId {
    /// Sets the type of service of its packets: the DSCP in the upper six bits. It must be set
    /// before the route is resolved.
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    pub fn set_type_of_service(&self, type_of_service: u8) -> Result<(), Error> {
        self.set_option(sys::RDMA_OPTION_ID_TOS, [type_of_service])
    }

    /// Sets whether other ids may bind to the same address and port. It must be set before the id
    /// is bound.
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    pub fn set_reuse_address(&self, reuse: bool) -> Result<(), Error> {
        self.set_option(sys::RDMA_OPTION_ID_REUSEADDR, c_int::from(reuse).to_ne_bytes())
    }

    /// Sets whether an id that is bound to any IPv6 address excludes IPv4 addresses. It must be set
    /// before the id is bound.
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    pub fn set_one_family_only(&self, only: bool) -> Result<(), Error> {
        self.set_option(sys::RDMA_OPTION_ID_AFONLY, c_int::from(only).to_ne_bytes())
    }

    /// Sets the time that a queue pair waits for an acknowledgement before it sends again: 4.096 µs
    /// × 2^`timeout`, with `timeout` up to 31; 0 means for ever. It must be set before the id
    /// connects or accepts.
    #[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
    pub fn set_ack_timeout(&self, timeout: u8) -> Result<(), Error> {
        self.set_option(sys::RDMA_OPTION_ID_ACK_TIMEOUT, [timeout.min(31)])
    }

    /// Sets the connection enhancements of the queue pair: `rdma_set_local_ece(3)`. It must be set
    /// before the id connects or accepts.
    #[doc(alias = "rdma_set_local_ece")]
    pub fn set_local_ece(&self, ece: Ece) -> Result<(), Error> {
        let mut raw = sys::ibv_ece { vendor_id: ece.vendor_id, options: ece.options, comp_mask: 0 };
        self.call("rdma_set_local_ece", |id| id.set_local_ece(&mut raw))
    }

    /// Returns the peer's connection enhancements: `rdma_get_remote_ece(3)`.
    #[doc(alias = "rdma_get_remote_ece")]
    pub fn remote_ece(&self) -> Result<Ece, Error> {
        let mut raw = sys::ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
        self.call("rdma_get_remote_ece", |id| id.get_remote_ece(&mut raw))?;
        Ok(Ece { vendor_id: raw.vendor_id, options: raw.options })
    }

    fn set_option<const N: usize>(&self, option: u32, mut value: [u8; N]) -> Result<(), Error> {
        self.call("rdma_set_option", |id| id.set_option(option, &mut value))
    }
}

/// Enhanced connection establishment: options that two devices of one vendor negotiate beyond the
/// standard.
///
/// ```no_run
/// # fn show(id: &farreach_verbs::cm::CmId) -> Result<(), farreach_verbs::cm::Error> {
/// println!("the other side's vendor is {:#x}", id.remote_ece()?.vendor_id);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ibv_ece")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ece {
    /// The vendor that defines the options. 0 if there are none.
    pub vendor_id: u32,
    /// The options, as the vendor defines them.
    pub options: u32,
}
