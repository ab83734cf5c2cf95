//! Creates queue pairs.

use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

use farreach_memory::DomainId;
use farreach_verbs_sys as sys;
use farreach_verbs_sys::Ibverbs;

use super::queue::Flight;
use super::{Capacity, Parents, QueuePair, QueuePairType, SendOperations};
use crate::attributes::DeviceCapabilities;
use crate::context::Context;
use crate::cq::CompletionQueue;
use crate::error::{Errno, Error};
use crate::handle::{Destroy, Handle, Owned};
use crate::leak;
use crate::limits::{CreationRefused, Excess};
use crate::mw::OwnWindows;
use crate::pd::ProtectionDomain;
use crate::srq::SharedReceiveQueue;
use crate::xrc::XrcDomain;

/// Configures and creates a [`QueuePair`].
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::qp::{QueuePairBuilder, QueuePairType, SendOperations};
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// # let pd = context.alloc_pd()?;
/// let cq = context.create_cq(1024)?;
/// let srq = pd.create_srq(512, 1)?;
/// let qp = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq)
///     .srq(&srq)
///     .max_send_wr(256)
///     .max_send_sge(4)
///     .max_inline_data(64)
///     .send_operations(SendOperations::RDMA_WRITE | SendOperations::RDMA_WRITE_WITH_IMM)
///     .build(&pd)?;
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct QueuePairBuilder {
    kind: QueuePairType,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    capacity: Capacity,
    sq_sig_all: bool,
    operations: SendOperations,
}

/// Defines setters for the sizes of the [`Capacity`].
macro_rules! sizes {
    ($($(#[$meta:meta])* $name:ident;)*) => {$(
        $(#[$meta])*
        #[must_use]
        pub fn $name(mut self, $name: u32) -> Self {
            self.capacity.$name = $name;
            self
        }
    )*};
}

impl QueuePairBuilder {
    /// Configures a queue pair with the default [`Capacity`]. Its sends complete on the first queue
    /// and its receives on the second, which may be the same.
    pub fn new(kind: QueuePairType, send_cq: &CompletionQueue, recv_cq: &CompletionQueue) -> Self {
        Self {
            kind,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: None,
            capacity: Capacity::default(),
            sq_sig_all: false,
            operations: SendOperations::empty(),
        }
    }

    sizes! {
        /// Sets the maximum number of work requests on the send queue.
        max_send_wr;
        /// Sets the maximum number of work requests on the receive queue. It is ignored with a
        /// shared receive queue.
        max_recv_wr;
        /// Sets the maximum number of scatter-gather elements of a work request on the send queue.
        max_send_sge;
        /// Sets the maximum number of scatter-gather elements of a work request on the receive
        /// queue.
        max_recv_sge;
        /// Sets the maximum number of bytes that a work request can carry inline.
        max_inline_data;
    }

    /// Sets all sizes.
    #[must_use]
    pub fn capacity(mut self, capacity: Capacity) -> Self {
        self.capacity = capacity;
        self
    }

    /// Sets a shared receive queue.
    #[must_use]
    pub fn srq(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Sets whether every send has a completion, without a flag.
    #[must_use]
    pub fn sq_sig_all(mut self, sq_sig_all: bool) -> Self {
        self.sq_sig_all = sq_sig_all;
        self
    }

    /// Requests the `ibv_wr_*` functions of these operations. Without any, work requests are posted
    /// by `ibv_post_send(3)` only.
    #[doc(alias = "send_ops_flags")]
    #[must_use]
    pub fn send_operations(mut self, operations: SendOperations) -> Self {
        self.operations = operations;
        self
    }

    /// Creates the queue pair: `ibv_create_qp(3)`, or `ibv_create_qp_ex(3)` if operations were
    /// requested.
    ///
    /// Returns [`Error::Unsupported`] if the device or its provider library lacks one of the
    /// operations; [`Error::Creation`] if the kernel refuses, with the sizes that exceed the
    /// device's limits; and [`Error::Overcommitted`] if a completion queue has no room for
    /// everything that could be in flight on all its queues.
    #[doc(alias = "ibv_create_qp")]
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn build(&self, pd: &ProtectionDomain) -> Result<QueuePair, Error> {
        self.check_context(pd.context())?;
        self.check_device(pd.context())?;
        let (qp, cap) = self.create(pd)?.ok_or_else(|| self.refused(pd))?;
        let flight = Flight::new(qp.parents(), self.capacity)?;
        let mut qp = QueuePair::new(qp, self.kind, &cap, flight);
        if !self.operations.is_empty() {
            qp.extend(self.operations)?;
        }
        Ok(qp)
    }

    /// Checks that all parents of the queue pair belong to one context.
    fn check_context(&self, context: &Context) -> Result<(), Error> {
        context.check_same(self.send_cq.context(), "send completion queue")?;
        context.check_same(self.recv_cq.context(), "receive completion queue")?;
        self.srq.iter().try_for_each(|srq| context.check_same(srq.context(), "shared receive queue"))
    }

    /// Checks the device's capabilities: rdma-core creates queue pairs for ATOMIC WRITE and FLUSH
    /// without checking that the kernel supports them.
    fn check_device(&self, context: &Context) -> Result<(), Error> {
        let newer = SendOperations::FLUSH | SendOperations::ATOMIC_WRITE;
        if !self.operations.intersects(newer) {
            return Ok(());
        }
        let has = context.query_device()?.capabilities;
        let flush = DeviceCapabilities::FLUSH_GLOBAL | DeviceCapabilities::FLUSH_PERSISTENT;
        let subject = || context.device().name().to_owned();
        if self.operations.contains(SendOperations::FLUSH) && !has.intersects(flush) {
            let why = "the device or its driver does not report FLUSH";
            return Err(Error::Unsupported { operation: "FLUSH", subject: subject(), why });
        }
        if self.operations.contains(SendOperations::ATOMIC_WRITE)
            && !has.contains(DeviceCapabilities::ATOMIC_WRITE)
        {
            let why = "the device or its driver does not report ATOMIC WRITE";
            return Err(Error::Unsupported { operation: "ATOMIC WRITE", subject: subject(), why });
        }
        Ok(())
    }

    fn attributes(&self, pd: &ProtectionDomain) -> sys::ibv_qp_init_attr_ex {
        let is_xrc = self.kind == QueuePairType::XrcSend;
        let mut cap = self.capacity.to_raw();
        // A work request with a single buffer needs one element. With at least one, posting need
        // not check that.
        (cap.max_send_sge, cap.max_recv_sge) = (cap.max_send_sge.max(1), cap.max_recv_sge.max(1));
        if is_xrc || self.srq.is_some() {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        let mut attr = sys::ibv_qp_init_attr_ex {
            send_cq: self.send_cq.as_raw(),
            recv_cq: if is_xrc { null_mut() } else { self.recv_cq.as_raw() },
            srq: self.srq.as_ref().map_or(null_mut(), SharedReceiveQueue::as_raw),
            cap,
            qp_type: self.kind.raw(),
            sq_sig_all: self.sq_sig_all.into(),
            comp_mask: sys::IBV_QP_INIT_ATTR_PD,
            pd: pd.as_raw(),
            ..Default::default()
        };
        if !self.operations.is_empty() {
            attr.comp_mask |= sys::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
            attr.send_ops_flags = self.operations.bits().into();
        }
        attr
    }

    /// Returns the C object and its sizes, or `None` with `errno` set if the kernel refuses.
    fn create(&self, pd: &ProtectionDomain) -> Result<Option<Created>, Error> {
        self.check_context(pd.context())?;
        let mut attr = self.attributes(pd);
        let has_receive_queue = self.kind != QueuePairType::XrcSend;
        let parents = || Parents {
            context: pd.context().clone(),
            pd: Some(pd.clone()),
            send_cq: Some(self.send_cq.clone()),
            recv_cq: has_receive_queue.then(|| self.recv_cq.clone()),
            srq: self.srq.clone(),
            xrcd: None,
        };
        // SAFETY: `attributes` names the domain and the queues of these parents, which all belong
        // to one context (`check_context`).
        let qp = unsafe { create(pd.context(), &mut attr, parents) }?;
        Ok(qp.map(|qp| (qp, attr.cap)))
    }

    /// Returns the error for a refused creation, with the sizes that are too large and the inline
    /// size that works.
    fn refused(&self, pd: &ProtectionDomain) -> Error {
        let context = pd.context();
        let operation = match self.operations.is_empty() {
            true => "ibv_create_qp",
            false => "ibv_create_qp_ex",
        };
        let error = context.failed(operation);
        let Ok(limits) = context.query_device() else { return error };
        let cap = self.attributes(pd).cap;
        Error::Creation(Box::new(CreationRefused {
            operation,
            device: context.device().name().to_owned(),
            errno: error.errno().unwrap_or(Errno(0)),
            excesses: Excess::among([
                ("max_send_wr", cap.max_send_wr, limits.max_qp_wr),
                ("max_recv_wr", cap.max_recv_wr, limits.max_qp_wr),
                ("max_send_sge", cap.max_send_sge, limits.max_sge),
                ("max_recv_sge", cap.max_recv_sge, limits.max_sge),
            ]),
            inline: self.inline_that_works(pd).map(|works| (cap.max_inline_data, works)),
        }))
    }

    /// Finds the largest inline size that the device accepts, by bisection, because devices report
    /// no limit for it. All other sizes are minimal. Returns `None` if the requested inline size is
    /// not the cause.
    fn inline_that_works(&self, pd: &ProtectionDomain) -> Option<u32> {
        let smallest =
            Capacity { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
        let accepts = |inline: u32| {
            let mut builder = self.clone();
            builder.capacity = Capacity { max_inline_data: inline, ..smallest };
            // The created queue pair is destroyed at once.
            builder.create(pd).is_ok_and(|created| created.is_some())
        };
        if accepts(self.capacity.max_inline_data) || !accepts(0) {
            return None;
        }
        Some(largest(0, self.capacity.max_inline_data, accepts))
    }
}

/// Returns the largest accepted value, given that `works` is accepted and `refused` is not.
fn largest(mut works: u32, mut refused: u32, accepts: impl Fn(u32) -> bool) -> u32 {
    while refused - works > 1 {
        let middle = works + (refused - works) / 2;
        match accepts(middle) {
            true => works = middle,
            false => refused = middle,
        }
    }
    works
}

/// A new queue pair and its sizes.
type Created = (Owned<sys::ibv_qp, Parents>, sys::ibv_qp_cap);

/// Creates a C queue pair.
///
/// # Safety
///
/// The attributes name objects of `parents`, which belong to this context, and no others.
unsafe fn create(
    context: &Context,
    attr: &mut sys::ibv_qp_init_attr_ex,
    parents: impl FnOnce() -> Parents,
) -> Result<Option<Owned<sys::ibv_qp, Parents>>, Error> {
    let lib = context.lib();
    let end = (leak::Kind::QueuePair, Destroy::Exported(Ibverbs::ibv_destroy_qp));
    // SAFETY: a `Context` is open. The caller guarantees that the attributes name live objects of
    // it, which the queue pair then holds. It is created here.
    unsafe { Ok(Owned::new(sys::ibv_create_qp_ex(lib, context.as_raw(), attr)?, lib, end, parents)) }
}

impl QueuePair {
    fn new(
        qp: Owned<sys::ibv_qp, Parents>,
        kind: QueuePairType,
        cap: &sys::ibv_qp_cap,
        flight: Flight,
    ) -> Self {
        Self {
            extended: None,
            kind,
            capacity: Capacity::from_raw(cap),
            operations: SendOperations::empty(),
            needs_look: AtomicBool::new(true),
            told_state: AtomicU32::new(sys::IBV_QPS_RESET),
            domain: qp.parents().pd.as_ref().map_or_else(DomainId::unique, ProtectionDomain::id),
            qp,
            flight,
            groups: Mutex::new(Vec::new()),
            windows: OwnWindows::default(),
            is_released: false,
        }
    }

    pub(crate) fn xrc_target(xrcd: &XrcDomain) -> Result<Self, Error> {
        let context = xrcd.context();
        let mut attr = sys::ibv_qp_init_attr_ex {
            qp_type: sys::IBV_QPT_XRC_RECV,
            comp_mask: sys::IBV_QP_INIT_ATTR_XRCD,
            xrcd: xrcd.as_raw(),
            ..Default::default()
        };
        let parents = || Parents {
            context: context.clone(),
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: Some(xrcd.clone()),
        };
        // SAFETY: the attributes name the XRC domain, which belongs to this context.
        let qp = unsafe { create(context, &mut attr, parents) }?;
        let qp = qp.ok_or_else(|| context.failed("ibv_create_qp_ex"))?;
        let flight = Flight::new(qp.parents(), Capacity::from_raw(&attr.cap))?;
        Ok(Self::new(qp, QueuePairType::XrcRecv, &attr.cap, flight))
    }

    /// Gets the table of `ibv_wr_*` functions, and checks that it has all requested ones.
    fn extend(&mut self, operations: SendOperations) -> Result<(), Error> {
        // SAFETY: `Owned`: the queue pair lives. The table is a part of it, and is used only while
        // `self.qp` lives.
        let table = unsafe { Handle::new(self.qp.lib().ibv_qp_to_qp_ex(self.as_raw())?) };
        let missing = |operation: &'static str| Error::Unsupported {
            operation,
            subject: self.context().device().name().to_owned(),
            why: "the provider library created the queue pair without it",
        };
        let table = table.ok_or_else(|| missing("ibv_wr_start"))?;
        // SAFETY: `attributes` requested these operations, so the table extends to their entries.
        if let Some(operation) = unsafe { first_missing(table.as_ptr(), operations, self.kind) } {
            return Err(missing(operation));
        }
        (self.extended, self.operations) = (Some(table), operations);
        Ok(())
    }
}

/// Returns the first missing function of those that the operations and every work request need.
///
/// # Safety
///
/// The table belongs to a queue pair that was created with these operations. The table of an older
/// library ends before newer entries.
unsafe fn first_missing(
    table: *mut sys::ibv_qp_ex,
    operations: SendOperations,
    kind: QueuePairType,
) -> Option<&'static str> {
    /// Returns the name of an entry that is needed and empty.
    macro_rules! lacks {
        ($entry:ident, $needed:expr) => {
            // SAFETY: an entry is read only if it is needed: by every work request, or by an
            // operation that the caller guarantees the table has.
            ($needed && unsafe { (*table).$entry.is_none() }).then_some(concat!("ibv_", stringify!($entry)))
        };
    }
    let has = |operation| operations.contains(operation);
    [
        lacks!(wr_start, true),
        lacks!(wr_complete, true),
        lacks!(wr_abort, true),
        lacks!(wr_set_sge, true),
        lacks!(wr_set_sge_list, true),
        lacks!(wr_set_inline_data, true),
        lacks!(wr_set_inline_data_list, true),
        lacks!(wr_set_ud_addr, kind == QueuePairType::Ud),
        lacks!(wr_set_xrc_srqn, kind == QueuePairType::XrcSend),
        lacks!(wr_rdma_write, has(SendOperations::RDMA_WRITE)),
        lacks!(wr_rdma_write_imm, has(SendOperations::RDMA_WRITE_WITH_IMM)),
        lacks!(wr_send, has(SendOperations::SEND)),
        lacks!(wr_send_imm, has(SendOperations::SEND_WITH_IMM)),
        lacks!(wr_rdma_read, has(SendOperations::RDMA_READ)),
        lacks!(wr_atomic_cmp_swp, has(SendOperations::ATOMIC_CMP_AND_SWP)),
        lacks!(wr_atomic_fetch_add, has(SendOperations::ATOMIC_FETCH_AND_ADD)),
        lacks!(wr_local_inv, has(SendOperations::LOCAL_INV)),
        lacks!(wr_bind_mw, has(SendOperations::BIND_MW)),
        lacks!(wr_send_inv, has(SendOperations::SEND_WITH_INV)),
        lacks!(wr_flush, has(SendOperations::FLUSH)),
        lacks!(wr_atomic_write, has(SendOperations::ATOMIC_WRITE)),
    ]
    .into_iter()
    .flatten()
    .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_finds_the_largest_that_works() {
        for limit in [0, 1, 100, 219] {
            assert_eq!(largest(0, 220, |inline| inline <= limit), limit);
        }
        assert_eq!(largest(0, 1, |_| unreachable!()), 0);
    }

    unsafe extern "C" fn nothing(_: *mut sys::ibv_qp_ex) {}

    #[test]
    fn an_empty_entry_is_found() {
        let mut table = sys::ibv_qp_ex::default();
        let missing = |table: &mut sys::ibv_qp_ex, operations, kind| {
            // SAFETY: the test's table has all entries.
            unsafe { first_missing(table, operations, kind) }
        };
        let (none, rc) = (SendOperations::empty(), QueuePairType::Rc);
        assert_eq!(missing(&mut table, none, rc), Some("ibv_wr_start"));
        fill(&mut table);
        assert_eq!(missing(&mut table, none, rc), None);
        assert_eq!(missing(&mut table, none, QueuePairType::Ud), Some("ibv_wr_set_ud_addr"));
        assert_eq!(missing(&mut table, SendOperations::SEND, rc), Some("ibv_wr_send"));
        table.wr_send = Some(nothing);
        assert_eq!(missing(&mut table, SendOperations::SEND, rc), None);
        assert_eq!(missing(&mut table, SendOperations::FLUSH, rc), Some("ibv_wr_flush"));
    }

    /// Fills the entries that every queue pair has.
    fn fill(table: &mut sys::ibv_qp_ex) {
        unsafe extern "C" fn complete(_: *mut sys::ibv_qp_ex) -> i32 {
            0
        }
        unsafe extern "C" fn sge(_: *mut sys::ibv_qp_ex, _: u32, _: u64, _: u32) {}
        unsafe extern "C" fn list(_: *mut sys::ibv_qp_ex, _: usize, _: *const sys::ibv_sge) {}
        unsafe extern "C" fn inline(_: *mut sys::ibv_qp_ex, _: *mut std::ffi::c_void, _: usize) {}
        unsafe extern "C" fn inlines(_: *mut sys::ibv_qp_ex, _: usize, _: *const sys::ibv_data_buf) {}
        table.wr_start = Some(nothing);
        table.wr_abort = Some(nothing);
        table.wr_complete = Some(complete);
        table.wr_set_sge = Some(sge);
        table.wr_set_sge_list = Some(list);
        table.wr_set_inline_data = Some(inline);
        table.wr_set_inline_data_list = Some(inlines);
    }
}
