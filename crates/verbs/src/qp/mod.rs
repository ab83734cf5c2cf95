//! Queue pairs, to which work requests are posted.
//!
//! Invariant: the buffers of a posted work request stay in the ring of its queue until its
//! completion, or until the queue pair is destroyed.

mod attributes;
mod bind;
mod builder;
mod check;
mod elements;
mod from_region;
mod list;
#[cfg(all(loom, test))]
mod model;
pub(crate) mod place;
mod post;
pub(crate) mod queue;
mod recv;
mod ring;
mod start;
pub mod state;
mod sync;

use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use farreach_memory::DomainId;
use farreach_verbs_sys as sys;

pub use attributes::{Capacity, QueuePairAttributes, QueuePairState, QueuePairType, SendOperations};
pub use builder::QueuePairBuilder;

use queue::Flight;
pub use queue::Unfinished;

use crate::ah::{Gid, Lid};
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::error::Error;
use crate::handle::{Handle, Owned};
use crate::mw::OwnWindows;
use crate::pd::ProtectionDomain;
use crate::srq::SharedReceiveQueue;
use crate::wr::Buffers;
use crate::xrc::XrcDomain;

/// A queue pair: one side of a connection, or an endpoint for datagrams.
///
/// It holds its queues and its protection domain, and is destroyed before them in any order of
/// drops. Destroying it proves that the device has stopped: see [`destroy`](Self::destroy).
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::qp::{QueuePairBuilder, QueuePairState, QueuePairType};
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// # let pd = context.alloc_pd()?;
/// let cq = context.create_cq(128)?;
/// let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq);
/// let qp = builder.max_send_wr(64).max_recv_wr(64).build(&pd)?;
/// assert_eq!(qp.state()?, QueuePairState::Reset);
/// println!("queue pair {}, {:?}", qp.qp_num(), qp.capacity());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_qp")]
pub struct QueuePair {
    qp: Owned<sys::ibv_qp, Parents>,
    /// The table of `ibv_wr_*` functions, if it was created with operations.
    extended: Option<Handle<sys::ibv_qp_ex>>,
    kind: QueuePairType,
    capacity: Capacity,
    operations: SendOperations,
    /// `true` if work requests need further checks: because each has a destination, or because none
    /// can be sent yet.
    needs_look: AtomicBool,
    /// The state that it was last moved to, as a C value.
    told_state: AtomicU32,
    /// The identifier of its protection domain, by which buffers look up their keys. Without a
    /// domain, a unique one that no memory is registered in.
    domain: DomainId,
    /// The work requests in flight.
    flight: Flight,
    /// The multicast groups that it has joined. The lock also guards changes and queries of the
    /// state, which libibverbs stores in the C object.
    groups: Mutex<Vec<(Gid, Lid)>>,
    windows: OwnWindows,
    is_released: bool,
}

/// The objects that a queue pair depends on.
struct Parents {
    context: Context,
    pd: Option<ProtectionDomain>,
    send_cq: Option<CompletionQueue>,
    recv_cq: Option<CompletionQueue>,
    srq: Option<SharedReceiveQueue>,
    xrcd: Option<XrcDomain>,
}

impl QueuePair {
    /// Returns the number by which the peer names it: 24 bits.
    pub fn qp_num(&self) -> u32 {
        self.qp.qp_num()
    }

    /// Returns the type.
    pub fn kind(&self) -> QueuePairType {
        self.kind
    }

    /// Returns the sizes, which are at least the requested ones.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Returns the operations of its `ibv_wr_*` functions. Empty if it was created without them.
    pub fn operations(&self) -> SendOperations {
        self.operations
    }

    /// Returns the open device.
    pub fn context(&self) -> &Context {
        &self.qp.parents().context
    }

    /// Returns the protection domain. `None` for an XRC receiver.
    pub fn pd(&self) -> Option<&ProtectionDomain> {
        self.qp.parents().pd.as_ref()
    }

    /// Returns the completion queue of its sends. `None` for an XRC receiver.
    pub fn send_cq(&self) -> Option<&CompletionQueue> {
        self.qp.parents().send_cq.as_ref()
    }

    /// Returns the completion queue of its receives. `None` for XRC.
    pub fn recv_cq(&self) -> Option<&CompletionQueue> {
        self.qp.parents().recv_cq.as_ref()
    }

    /// Returns the shared receive queue, if it uses one.
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.qp.parents().srq.as_ref()
    }

    /// Returns the XRC domain, for an XRC receiver.
    pub fn xrcd(&self) -> Option<&XrcDomain> {
        self.qp.parents().xrcd.as_ref()
    }

    /// Returns the C object. It is valid while `self` lives.
    #[inline]
    pub fn as_raw(&self) -> *mut sys::ibv_qp {
        self.qp.as_ptr()
    }

    /// Returns the C object with its table of `ibv_wr_*` functions: those of
    /// [`operations`](Self::operations), and those that every work request needs. `None` if it was
    /// created without operations.
    #[doc(alias = "ibv_qp_to_qp_ex")]
    #[inline]
    pub fn as_raw_ex(&self) -> Option<*mut sys::ibv_qp_ex> {
        self.extended.as_ref().map(Handle::as_ptr)
    }

    /// Posts a list of work requests to the send queue: `ibv_post_send(3)`. On failure, those
    /// before `bad` were posted.
    ///
    /// # Safety
    ///
    /// The list is valid, and so are the keys and objects that it names. Until the completion of
    /// each work request, or until the queue pair is destroyed, the memory that it names stays
    /// registered and only the device accesses it (others may read it if the work request only
    /// reads). If a [`Poller`](crate::cq::Poller) polls the completion queue, each `wr_id` is below
    /// 2^32: larger ones name work requests of the safe API.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub unsafe fn post_send_raw(
        &self,
        wr: *mut sys::ibv_send_wr,
        bad: &mut *mut sys::ibv_send_wr,
    ) -> Result<(), Error> {
        // SAFETY: the queue pair lives as long as `self`. The caller guarantees that the list, and
        // all that it names, is valid.
        match unsafe { sys::ibv_post_send(self.as_raw(), wr, bad) } {
            0 => Ok(()),
            errno => Err(self.failed("ibv_post_send", errno)),
        }
    }

    /// Posts a list of work requests to the receive queue: `ibv_post_recv(3)`. On failure, those
    /// before `bad` were posted.
    ///
    /// # Safety
    ///
    /// As for [`post_send_raw`](Self::post_send_raw).
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub unsafe fn post_recv_raw(
        &self,
        wr: *mut sys::ibv_recv_wr,
        bad: &mut *mut sys::ibv_recv_wr,
    ) -> Result<(), Error> {
        // SAFETY: the queue pair lives as long as `self`. The caller guarantees that the list, and
        // all that it names, is valid.
        match unsafe { sys::ibv_post_recv(self.as_raw(), wr, bad) } {
            0 => Ok(()),
            errno => Err(self.failed("ibv_post_recv", errno)),
        }
    }

    /// Returns its attributes: `ibv_query_qp(3)`.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QueuePairAttributes, Error> {
        let (mut attr, mut init) = (sys::ibv_qp_attr::default(), sys::ibv_qp_init_attr::default());
        // Providers fill every attribute, whatever the mask.
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_CAP | sys::IBV_QP_AV | sys::IBV_QP_ACCESS_FLAGS;
        let _guard = self.lock();
        let lib = self.qp.lib();
        // SAFETY: the queue pair lives as long as `self`. The library writes the state into the C
        // object without a lock of its own; `_guard` serialises that.
        let errno = unsafe { lib.ibv_query_qp(self.as_raw(), &raw mut attr, mask as c_int, &raw mut init) }?;
        match errno {
            0 => Ok(QueuePairAttributes::from(&attr)),
            errno => Err(self.failed("ibv_query_qp", errno)),
        }
    }

    /// Returns its state from the kernel, which errors change too: `ibv_query_qp(3)`.
    pub fn state(&self) -> Result<QueuePairState, Error> {
        self.query().map(|attributes| attributes.state)
    }

    /// Modifies the queue pair: `ibv_modify_qp(3)`. The man page lists the attributes of each state
    /// change; [`state`] covers the usual ones.
    ///
    /// # Safety
    ///
    /// Moving to RESET discards posted work requests without completions: the caller must know that
    /// their memory becomes free only by this. And a peer that gets new access rights may change
    /// all that the regions of the domain permit.
    #[doc(alias = "ibv_modify_qp")]
    pub unsafe fn modify_raw(&self, attr: &mut sys::ibv_qp_attr, mask: u32) -> Result<(), Error> {
        match self.modify(attr, mask)? {
            0 => Ok(()),
            errno => Err(self.failed("ibv_modify_qp", errno)),
        }
    }

    /// Modifies the queue pair, and returns the errno.
    fn modify(&self, attr: &mut sys::ibv_qp_attr, mask: u32) -> Result<c_int, Error> {
        let _guard = self.lock();
        // SAFETY: the queue pair lives as long as `self`. The library writes the state into the C
        // object without a lock of its own; `_guard` serialises that.
        let errno = unsafe { self.qp.lib().ibv_modify_qp(self.as_raw(), attr, mask as c_int) }?;
        if errno == 0 && mask & sys::IBV_QP_STATE != 0 {
            self.told_state.store(attr.qp_state, Ordering::Relaxed);
            let needs_look = self.kind != QueuePairType::Rc || !self.told_state().can_send();
            self.needs_look.store(needs_look, Ordering::Relaxed);
        }
        Ok(errno)
    }

    /// Returns the state that it was last moved to. An error may have changed it since.
    fn told_state(&self) -> QueuePairState {
        QueuePairState::from_raw(self.told_state.load(Ordering::Relaxed))
    }

    /// Joins a multicast group to receive its datagrams: `ibv_attach_mcast(3)`. It leaves the group
    /// when it is destroyed.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), Error> {
        let mut groups = self.lock();
        match self.qp.attach_mcast(gid, lid)? {
            0 => {
                groups.push((gid, lid));
                Ok(())
            }
            errno => Err(self.failed("ibv_attach_mcast", errno)),
        }
    }

    /// Leaves a multicast group: `ibv_detach_mcast(3)`.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach_mcast(&self, gid: Gid, lid: Lid) -> Result<(), Error> {
        let mut groups = self.lock();
        match self.qp.detach_mcast(gid, lid)? {
            0 => {
                if let Some(place) = groups.iter().position(|group| *group == (gid, lid)) {
                    groups.swap_remove(place);
                }
                Ok(())
            }
            errno => Err(self.failed("ibv_detach_mcast", errno)),
        }
    }

    /// Destroys the queue pair: `ibv_destroy_qp(3)`. After success the device accesses no memory
    /// for it any more, with or without completions, and the buffers of all work requests in flight
    /// are returned. (Dropping it drops them.)
    ///
    /// On failure it stays for good, as on drop, and there is no proof that the device has stopped:
    /// the memory of its work requests stays too.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<Vec<Buffers>, Error> {
        Ok(self.destroy_unfinished()?.into_iter().map(|request| request.buffers).collect())
    }

    /// Like [`destroy`](Self::destroy), but returns the whole work requests: first the sends and
    /// then the receives, each in the order of posting.
    pub fn destroy_unfinished(mut self) -> Result<Vec<Unfinished>, Error> {
        self.release()?;
        Ok(self.flight.take_back())
    }

    fn release(&mut self) -> Result<(), Error> {
        self.is_released = true;
        // The kernel refuses to destroy a member of a group.
        let groups = std::mem::take(&mut *self.lock());
        for (gid, lid) in groups {
            // If this fails, destroying the queue pair fails too.
            let _ = self.detach_mcast(gid, lid);
        }
        self.windows.revoke(self.flight.send().number);
        // SAFETY: both callers, `destroy_unfinished` and `drop`, end the queue pair, and after
        // success use only its flight.
        let released = unsafe { self.qp.release() };
        released.map_err(|errno| {
            // The device may still access the buffers.
            self.flight.keep();
            self.failed("ibv_destroy_qp", errno)
        })
    }

    /// Returns the number of work requests in flight on the send queue and on its own receive
    /// queue.
    pub fn in_flight(&self) -> (u32, u32) {
        (self.flight.send().ring.len(), self.flight.recv().ring.len())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Gid, Lid)>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn failed(&self, operation: &'static str, errno: c_int) -> Error {
        let subject = format!("queue pair {} of {}", self.qp_num(), self.context().device().name());
        // Some providers return -1, or a negative errno.
        Error::call(operation, subject, errno.abs())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // A failure is counted by `leak::judge`; `drop` cannot return it.
        if !self.is_released && self.release().is_ok() {
            // A poller may still hold the queues. The buffers are dropped now nevertheless.
            drop(self.flight.take_back());
        }
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("device", &self.context().device().name())
            .field("kind", &self.kind)
            .field("number", &self.qp_num())
            .finish_non_exhaustive()
    }
}
