//! Shared receive queues: one pool of receive buffers for many queue pairs.

use std::ffi::c_int;
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::Ibverbs;

use crate::context::Context;
use crate::cq::{CompletionQueue, Source};
use crate::error::{Errno, Error};
use crate::handle::{Destroy, Owned};
use crate::leak;
use crate::limits::{CreationRefused, Excess};
use crate::pd::ProtectionDomain;
use crate::qp::queue::SharedQueue;
use crate::xrc::XrcDomain;

/// A shared receive queue.
///
/// It is cheap to clone. The queue is destroyed when the last clone, and every queue pair on it, is
/// gone.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// # let pd = DeviceList::get()?.iter().next().unwrap().open()?.alloc_pd()?;
/// let srq = pd.create_srq(1024, 1)?;
/// // An event reports that fewer than 128 buffers are left: see `Context::async_events`.
/// srq.set_limit(128)?;
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_srq")]
#[doc(alias = "ibv_destroy_srq")]
#[derive(Clone)]
pub struct SharedReceiveQueue(Arc<Owned<sys::ibv_srq, Parents>>);

/// The objects that a queue depends on. They are dropped only after the device has destroyed the
/// queue: until then the device may fill buffers and complete, so the buffers and their room in a
/// completion queue must stay.
struct Parents {
    pd: ProtectionDomain,
    /// For an XRC queue: its domain, and the completion queue of its receives.
    xrc: Option<(XrcDomain, CompletionQueue)>,
    /// The work requests in flight.
    queue: Arc<SharedQueue>,
}

impl Drop for Parents {
    fn drop(&mut self) {
        if let Some((_, cq)) = &self.xrc {
            cq.registry().remove(self.queue.number);
        }
    }
}

/// The sizes of a shared receive queue. See [`SharedReceiveQueue::query`].
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// # let pd = DeviceList::get()?.iter().next().unwrap().open()?.alloc_pd()?;
/// assert!(pd.create_srq(100, 2)?.query()?.max_wr >= 100);
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_srq_attr")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedReceiveQueueAttributes {
    /// Maximum number of work requests in flight.
    pub max_wr: u32,
    /// Maximum number of scatter-gather elements of a work request.
    pub max_sge: u32,
    /// An event is raised once when fewer work requests are left. 0 if none was requested.
    pub limit: u32,
}

impl ProtectionDomain {
    /// Creates a shared receive queue: `ibv_create_srq(3)`.
    #[doc(alias = "ibv_create_srq")]
    pub fn create_srq(&self, max_wr: u32, max_sge: u32) -> Result<SharedReceiveQueue, Error> {
        let attr = sys::ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
        let mut init = sys::ibv_srq_init_attr { srq_context: null_mut(), attr };
        // SAFETY: a `ProtectionDomain` lives, and the queue is created here, in it, for `max_wr`
        // work requests.
        let srq = unsafe {
            let srq = self.context().lib().ibv_create_srq(self.as_raw(), &raw mut init)?;
            SharedReceiveQueue::new(srq, self, || None, max_wr)
        };
        srq.ok_or_else(|| refused("ibv_create_srq", self.context(), max_wr, max_sge))
    }
}

impl SharedReceiveQueue {
    /// Creates a queue of an XRC domain, whose receives complete on `cq`.
    pub(crate) fn create_xrc(
        xrcd: &XrcDomain,
        pd: &ProtectionDomain,
        cq: &CompletionQueue,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<Self, Error> {
        let context = xrcd.context();
        context.check_same(pd.context(), "protection domain")?;
        context.check_same(cq.context(), "completion queue")?;
        let mut attr = sys::ibv_srq_init_attr_ex {
            attr: sys::ibv_srq_attr { max_wr, max_sge, srq_limit: 0 },
            comp_mask: sys::IBV_SRQ_INIT_ATTR_TYPE
                | sys::IBV_SRQ_INIT_ATTR_PD
                | sys::IBV_SRQ_INIT_ATTR_XRCD
                | sys::IBV_SRQ_INIT_ATTR_CQ,
            srq_type: sys::IBV_SRQT_XRC,
            pd: pd.as_raw(),
            xrcd: xrcd.as_raw(),
            cq: cq.as_raw(),
            ..Default::default()
        };
        let xrc = || Some((xrcd.clone(), cq.clone()));
        // SAFETY: the attributes name a protection domain, an XRC domain and a completion queue
        // that live and belong to one context (`check_same`). The queue is created here, on these,
        // for `max_wr` work requests.
        let srq = unsafe {
            let srq = sys::ibv_create_srq_ex(context.lib(), context.as_raw(), &raw mut attr)?;
            Self::new(srq, pd, xrc, max_wr)
        };
        srq.ok_or_else(|| refused("ibv_create_srq_ex", context, max_wr, max_sge))?.attached()
    }

    /// Wraps a new queue, or returns `None` for null.
    ///
    /// # Safety
    ///
    /// The queue is null, or was just created in `pd` and with `xrc`, for at least `depth` work
    /// requests.
    unsafe fn new(
        srq: *mut sys::ibv_srq,
        pd: &ProtectionDomain,
        xrc: impl FnOnce() -> Option<(XrcDomain, CompletionQueue)>,
        depth: u32,
    ) -> Option<Self> {
        let end = (leak::Kind::SharedReceiveQueue, Destroy::Exported(Ibverbs::ibv_destroy_srq));
        let parents = || Parents { pd: pd.clone(), xrc: xrc(), queue: Arc::new(SharedQueue::new(depth)) };
        // SAFETY: the caller guarantees that the queue is new and was created on these parents.
        let srq = unsafe { Owned::new(srq, pd.context().lib(), end, parents) }?;
        Some(Self(Arc::new(srq)))
    }

    /// Registers an XRC queue with its completion queue. Other queues are registered with the
    /// completion queues of their queue pairs.
    fn attached(self) -> Result<Self, Error> {
        if let Some((_, cq)) = &self.0.parents().xrc {
            cq.attach(Source::Shared(Arc::clone(self.queue())))?;
        }
        Ok(self)
    }

    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.parents().pd
    }

    /// Returns the kernel's handle of the queue within its context.
    /// [`AsyncEvent`](crate::event::AsyncEvent)s contain it.
    pub fn handle(&self) -> u32 {
        self.0.handle()
    }

    /// Returns the number by which XRC senders name the queue: `ibv_get_srq_num(3)`.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn number(&self) -> Result<u32, Error> {
        let mut number = 0;
        self.answered("ibv_get_srq_num", self.0.number(&mut number))?;
        Ok(number)
    }

    /// Returns the C object. It is valid while `self` or a clone lives.
    #[inline]
    pub fn as_raw(&self) -> *mut sys::ibv_srq {
        self.0.as_ptr()
    }

    /// Returns the sizes of the queue: `ibv_query_srq(3)`.
    #[doc(alias = "ibv_query_srq")]
    pub fn query(&self) -> Result<SharedReceiveQueueAttributes, Error> {
        let mut attr = sys::ibv_srq_attr::default();
        self.answered("ibv_query_srq", self.0.query(&mut attr)?)?;
        Ok(SharedReceiveQueueAttributes { max_wr: attr.max_wr, max_sge: attr.max_sge, limit: attr.srq_limit })
    }

    /// Requests one event for when fewer than `limit` work requests are left: `ibv_modify_srq(3)`.
    /// 0 requests none.
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    pub fn set_limit(&self, limit: u32) -> Result<(), Error> {
        self.modify(sys::ibv_srq_attr { srq_limit: limit, ..Default::default() }, sys::IBV_SRQ_LIMIT)
    }

    /// Changes the maximum number of work requests, if the device supports that:
    /// `ibv_modify_srq(3)`.
    pub fn resize(&self, max_wr: u32) -> Result<(), Error> {
        self.modify(sys::ibv_srq_attr { max_wr, ..Default::default() }, sys::IBV_SRQ_MAX_WR)
    }

    /// Posts a list of receive work requests: `ibv_post_srq_recv(3)`. On failure, those before
    /// `bad` were posted.
    ///
    /// # Safety
    ///
    /// The list is valid. Until the completion of each work request, or until the queue and every
    /// queue pair on it are destroyed, the memory that it names stays registered and only the
    /// device accesses it. If a [`Poller`](crate::cq::Poller) polls the completion queue, each
    /// `wr_id` is below 2^32: larger ones name work requests of the safe API.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub unsafe fn post_recv_raw(
        &self,
        wr: *mut sys::ibv_recv_wr,
        bad: &mut *mut sys::ibv_recv_wr,
    ) -> Result<(), Error> {
        // SAFETY: the queue lives as long as `self`. The caller guarantees that the list and the
        // memory that it names are valid.
        match unsafe { sys::ibv_post_srq_recv(self.as_raw(), wr, bad) } {
            0 => Ok(()),
            errno => self.answered("ibv_post_srq_recv", errno),
        }
    }

    pub(crate) fn queue(&self) -> &Arc<SharedQueue> {
        &self.0.parents().queue
    }

    pub(crate) fn context(&self) -> &Context {
        self.pd().context()
    }

    fn modify(&self, mut attr: sys::ibv_srq_attr, mask: u32) -> Result<(), Error> {
        self.answered("ibv_modify_srq", self.0.modify(&mut attr, mask)?)
    }

    #[cold]
    pub(crate) fn failed(&self, operation: &'static str, errno: c_int) -> Error {
        Error::call(operation, self.context().device().name(), errno)
    }

    fn answered(&self, operation: &'static str, errno: c_int) -> Result<(), Error> {
        match errno {
            0 => Ok(()),
            errno => Err(self.failed(operation, errno)),
        }
    }
}

/// Returns the error for a queue whose creation has just failed.
fn refused(operation: &'static str, context: &Context, max_wr: u32, max_sge: u32) -> Error {
    let error = context.failed(operation);
    let Ok(limits) = context.query_device() else { return error };
    Error::Creation(Box::new(CreationRefused {
        operation,
        device: context.device().name().to_owned(),
        errno: error.errno().unwrap_or(Errno(0)),
        excesses: Excess::among([
            ("max_wr", max_wr, limits.max_srq_wr),
            ("max_sge", max_sge, limits.max_srq_sge),
        ]),
        inline: None,
    }))
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("device", &self.context().device().name())
            .field("handle", &self.handle())
            .finish_non_exhaustive()
    }
}
