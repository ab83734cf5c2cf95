//! Queue pairs: where work requests are posted.

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

/// A queue pair: one end of a connection, or a place that datagrams leave from and arrive at.
///
/// It holds its queues and its protection domain, and is destroyed before them whatever is dropped first. Destroying it is one of
/// the proofs that the device has stopped: see [`destroy`](Self::destroy).
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::qp::{QueuePairBuilder, QueuePairState, QueuePairType};
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// # let pd = context.alloc_pd()?;
/// let cq = context.create_cq(128)?;
/// let qp = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq).max_send_wr(64).max_recv_wr(64).build(&pd)?;
/// assert_eq!(qp.state()?, QueuePairState::Reset);
/// println!("queue pair {}, {:?}", qp.qp_num(), qp.capacity());
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_qp")]
pub struct QueuePair {
    qp: Owned<sys::ibv_qp, Parents>,
    /// The table of `ibv_wr_*` functions; none where it was created without.
    extended: Option<Handle<sys::ibv_qp_ex>>,
    kind: QueuePairType,
    capacity: Capacity,
    operations: SendOperations,
    /// Whether requests need a closer look: because each says where it goes, or because none can be sent yet.
    needs_look: AtomicBool,
    /// As C has it: the state that it was last told to go to.
    told_state: AtomicU32,
    /// The name of its protection domain, which each request asks for; one that no memory knows where it is in none.
    domain: DomainId,
    /// The requests that the device has.
    flight: Flight,
    /// The multicast groups that it is in. Locked also by who changes or asks for the state, which libibverbs keeps in the C object.
    groups: Mutex<Vec<(Gid, Lid)>>,
    windows: OwnWindows,
    is_released: bool,
}

/// What a queue pair stands on.
struct Parents {
    context: Context,
    pd: Option<ProtectionDomain>,
    send_cq: Option<CompletionQueue>,
    recv_cq: Option<CompletionQueue>,
    srq: Option<SharedReceiveQueue>,
    xrcd: Option<XrcDomain>,
}

impl QueuePair {
    /// The number by which the peer names it: 24 bits.
    pub fn qp_num(&self) -> u32 {
        self.qp.qp_num()
    }

    /// Its type.
    pub fn kind(&self) -> QueuePairType {
        self.kind
    }

    /// How much fits: at least as much as was asked for.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// The operations that its `ibv_wr_*` functions are there for; none where it was created without them.
    pub fn operations(&self) -> SendOperations {
        self.operations
    }

    /// The open device that it is on.
    pub fn context(&self) -> &Context {
        &self.qp.parents().context
    }

    /// The protection domain that it is in; none where it is an XRC receiver.
    pub fn pd(&self) -> Option<&ProtectionDomain> {
        self.qp.parents().pd.as_ref()
    }

    /// Where its sends complete; none where it is an XRC receiver.
    pub fn send_cq(&self) -> Option<&CompletionQueue> {
        self.qp.parents().send_cq.as_ref()
    }

    /// Where its receives complete; none where it is of XRC.
    pub fn recv_cq(&self) -> Option<&CompletionQueue> {
        self.qp.parents().recv_cq.as_ref()
    }

    /// The shared queue that its receives come from.
    pub fn srq(&self) -> Option<&SharedReceiveQueue> {
        self.qp.parents().srq.as_ref()
    }

    /// The XRC domain that it is in; none where it is no XRC receiver.
    pub fn xrcd(&self) -> Option<&XrcDomain> {
        self.qp.parents().xrcd.as_ref()
    }

    /// The C object. It lives as long as this does.
    #[inline]
    pub fn as_raw(&self) -> *mut sys::ibv_qp {
        self.qp.as_ptr()
    }

    /// The C object with its table of `ibv_wr_*` functions: those of [`operations`](Self::operations) are there, and those that
    /// every work request needs. None where it was created without.
    #[doc(alias = "ibv_qp_to_qp_ex")]
    #[inline]
    pub fn as_raw_ex(&self) -> Option<*mut sys::ibv_qp_ex> {
        self.extended.as_ref().map(Handle::as_ptr)
    }

    /// Posts a list of requests to the send queue: `ibv_post_send(3)`. On failure, those before `bad` were posted.
    ///
    /// # Safety
    ///
    /// The list is valid, and so are the keys and objects that it names. The memory that it names stays registered, and is nobody's but
    /// the device's (readable by others where the request only reads), until each request's completion, or until the queue pair is
    /// destroyed.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub unsafe fn post_send_raw(
        &self,
        wr: *mut sys::ibv_send_wr,
        bad: &mut *mut sys::ibv_send_wr,
    ) -> Result<(), Error> {
        // SAFETY: the queue pair lives as long as `self`; the caller vouches for the list, and for what it names.
        match unsafe { sys::ibv_post_send(self.as_raw(), wr, bad) } {
            0 => Ok(()),
            errno => Err(self.failed("ibv_post_send", errno)),
        }
    }

    /// Posts a list of requests to the receive queue: `ibv_post_recv(3)`. On failure, those before `bad` were posted.
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
        // SAFETY: the queue pair lives as long as `self`; the caller vouches for the list, and for what it names.
        match unsafe { sys::ibv_post_recv(self.as_raw(), wr, bad) } {
            0 => Ok(()),
            errno => Err(self.failed("ibv_post_recv", errno)),
        }
    }

    /// Asks for its attributes: `ibv_query_qp(3)`.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QueuePairAttributes, Error> {
        let (mut attr, mut init) = (sys::ibv_qp_attr::default(), sys::ibv_qp_init_attr::default());
        // Every attribute is filled by every provider, whatever the mask asks for.
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_CAP | sys::IBV_QP_AV | sys::IBV_QP_ACCESS_FLAGS;
        let _guard = self.lock();
        let lib = self.qp.lib();
        // SAFETY: the queue pair lives as long as `self`. The library writes its state into the C object without a lock, which `_guard` is.
        let errno = unsafe { lib.ibv_query_qp(self.as_raw(), &raw mut attr, mask as c_int, &raw mut init) }?;
        match errno {
            0 => Ok(QueuePairAttributes::from(&attr)),
            errno => Err(self.failed("ibv_query_qp", errno)),
        }
    }

    /// Asks the kernel for its state, which errors change too: `ibv_query_qp(3)`.
    pub fn state(&self) -> Result<QueuePairState, Error> {
        self.query().map(|attributes| attributes.state)
    }

    /// Changes it: `ibv_modify_qp(3)`. Which attributes go with which change is the man page's; [`state`] knows the usual
    /// ones.
    ///
    /// # Safety
    ///
    /// Going to RESET forgets what is posted without a completion for it: the memory of those requests is free only because of
    /// this. And a peer that is let in by new access rights may change what the regions of the domain allow it to.
    #[doc(alias = "ibv_modify_qp")]
    pub unsafe fn modify_raw(&self, attr: &mut sys::ibv_qp_attr, mask: u32) -> Result<(), Error> {
        match self.modify(attr, mask)? {
            0 => Ok(()),
            errno => Err(self.failed("ibv_modify_qp", errno)),
        }
    }

    /// The errno that the change ends with.
    fn modify(&self, attr: &mut sys::ibv_qp_attr, mask: u32) -> Result<c_int, Error> {
        let _guard = self.lock();
        // SAFETY: the queue pair lives as long as `self`. The library writes its state into the C object without a lock, which `_guard` is.
        let errno = unsafe { self.qp.lib().ibv_modify_qp(self.as_raw(), attr, mask as c_int) }?;
        if errno == 0 && mask & sys::IBV_QP_STATE != 0 {
            self.told_state.store(attr.qp_state, Ordering::Relaxed);
            let needs_look = self.kind != QueuePairType::Rc || !self.told_state().can_send();
            self.needs_look.store(needs_look, Ordering::Relaxed);
        }
        Ok(errno)
    }

    /// The state that it was last told to go to. An error may have led it elsewhere.
    fn told_state(&self) -> QueuePairState {
        QueuePairState::from_raw(self.told_state.load(Ordering::Relaxed))
    }

    /// Joins a multicast group, from which datagrams then arrive: `ibv_attach_mcast(3)`. It leaves when it is destroyed.
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

    /// Destroys it: `ibv_destroy_qp(3)`. After success the device touches nothing more on its account, whether or not a
    /// completion came: the buffers of all requests that were in flight are handed back. (Dropping it drops them.)
    ///
    /// On failure it stays for good, as when it is dropped, and proves nothing: its requests' memory must stay too.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<Vec<Buffers>, Error> {
        Ok(self.destroy_unfinished()?.into_iter().map(|request| request.buffers).collect())
    }

    /// As [`destroy`](Self::destroy), and tells what each of the buffers was posted for: first the sends and then the receives, each in
    /// the order of posting.
    pub fn destroy_unfinished(mut self) -> Result<Vec<Unfinished>, Error> {
        self.release()?;
        Ok(self.flight.take_back())
    }

    fn release(&mut self) -> Result<(), Error> {
        self.is_released = true;
        // The kernel does not destroy a member of a group.
        let groups = std::mem::take(&mut *self.lock());
        for (gid, lid) in groups {
            // Where it fails, so does what follows.
            let _ = self.detach_mcast(gid, lid);
        }
        self.windows.revoke(self.flight.send().number);
        // SAFETY: both callers, `destroy_unfinished` and `drop`, end the queue pair, and after success use only its flight.
        let released = unsafe { self.qp.release() };
        released.map_err(|errno| {
            // The device may still touch the buffers.
            self.flight.keep();
            self.failed("ibv_destroy_qp", errno)
        })
    }

    /// Requests that are in flight: on the send queue, and on the receive queue of its own.
    pub fn in_flight(&self) -> (u32, u32) {
        (self.flight.send().ring.len(), self.flight.recv().ring.len())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Gid, Lid)>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn failed(&self, operation: &'static str, errno: c_int) -> Error {
        let subject = format!("queue pair {} of {}", self.qp_num(), self.context().device().name());
        // Some providers answer -1, or minus an errno.
        Error::call(operation, subject, errno.abs())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // A failure is counted; a drop has nobody else to tell.
        if !self.is_released && self.release().is_ok() {
            // Who polls may have the queues still: the buffers do not wait for that.
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
