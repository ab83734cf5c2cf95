//! Extended reliable connections: one connection between two hosts serves all processes of a host.
//!
//! A sender names the shared receive queue that a message is for. The receiving queue pair belongs
//! to an XRC domain rather than to a process. Limit: no software device supports XRC, so this
//! module has not been tested with a device.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farreach_verbs_sys as sys;

use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::error::Error;
use crate::handle::Owned;
use crate::pd::ProtectionDomain;
use crate::qp::QueuePair;
use crate::srq::SharedReceiveQueue;

/// An XRC domain. Receiving queue pairs and shared receive queues can be used together if they
/// belong to the same one.
///
/// It is cheap to clone. It is closed when the last clone, and every object made in it, is gone.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// # let pd = context.alloc_pd()?;
/// let domain = context.open_xrcd(None)?;
/// let cq = context.create_cq(64)?;
/// let srq = domain.create_srq(&pd, &cq, 64, 1)?;
/// let qp = domain.create_qp()?;
/// println!("queue pair {}, for shared receive queue {}", qp.qp_num(), srq.number()?);
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_xrcd")]
#[doc(alias = "ibv_close_xrcd")]
#[derive(Clone)]
pub struct XrcDomain(Arc<Owned<sys::ibv_xrcd, Context>>);

impl Context {
    /// Opens an XRC domain: `ibv_open_xrcd(3)`. It is shared with every process that opens the same
    /// file, or private to this process without a file.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd(&self, file: Option<BorrowedFd<'_>>) -> Result<XrcDomain, Error> {
        let xrcd = Owned::open_xrcd(self, file).ok_or_else(|| self.failed("ibv_open_xrcd"))?;
        Ok(XrcDomain(Arc::new(xrcd)))
    }
}

impl XrcDomain {
    /// Returns the open device.
    pub fn context(&self) -> &Context {
        self.0.parents()
    }

    /// Returns the C object. It is valid while `self` or a clone lives.
    pub fn as_raw(&self) -> *mut sys::ibv_xrcd {
        self.0.as_ptr()
    }

    /// Creates a shared receive queue of this domain, whose receives complete on `cq`:
    /// `ibv_create_srq_ex(3)`.
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn create_srq(
        &self,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SharedReceiveQueue, Error> {
        SharedReceiveQueue::create_xrc(self, pd, cq, max_wr, max_sge)
    }

    /// Creates a receiving queue pair of this domain: `ibv_create_qp_ex(3)` with type
    /// `IBV_QPT_XRC_RECV`. It has no queues of its own. A
    /// [`QueuePairBuilder`](crate::qp::QueuePairBuilder) creates the sending side.
    #[doc(alias = "IBV_QPT_XRC_RECV")]
    pub fn create_qp(&self) -> Result<QueuePair, Error> {
        QueuePair::xrc_target(self)
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcDomain").field("device", &self.context().device().name()).finish_non_exhaustive()
    }
}
