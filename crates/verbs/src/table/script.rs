//! The device of `device.c` as a test sees it: what it is told to do, and memory that tells when it is freed.

use std::ffi::c_void;
use std::mem::transmute;
use std::sync::{Arc, Weak};

use farreach_memory::{Memory, Slice};
use farreach_verbs_sys as sys;

use super::{Functions, function, open};
use crate::context::Context;
use crate::cq::{CompletionChannel, CompletionQueue, CompletionQueueBuilder};
use crate::pd::ProtectionDomain;
use crate::qp::{QueuePair, QueuePairBuilder, QueuePairType};

/// The bytes of a piece of [memory](Bench::memory).
pub(super) const LEN: usize = 4096;

/// Calls a function of the script, which is given as many numbers as it wants.
fn call(name: &str, first: u64, second: u64, third: u64) -> u64 {
    type Function = extern "C" fn(u64, u64, u64) -> u64;
    // SAFETY: each takes no more than three words in registers, and gives one back.
    unsafe { transmute::<*mut c_void, Function>(function(name))(first, second, third) }
}

/// Completes the oldest `count` requests that the device has, with this status.
#[track_caller]
pub(super) fn complete_with(count: usize, status: u32) {
    let completed = call("table_complete", count as u64, status.into(), 0);
    assert_eq!(completed, count as u64, "it has no more");
}

/// Completes the oldest `count` requests that the device has: they went well.
#[track_caller]
pub(super) fn complete(count: usize) {
    complete_with(count, sys::IBV_WC_SUCCESS);
}

/// Puts a completion into a queue that no request has.
pub(super) fn forge(cq: &CompletionQueue, wr_id: u64) {
    call("table_forge", cq.as_raw().expose_provenance() as u64, wr_id, 0);
}

/// By what the device knows the request that was posted last.
pub(super) fn last_id() -> u64 {
    call("table_last_id", 0, 0, 0)
}

/// Address, length and key of the first buffer of the last request that has one.
pub(super) fn last_element() -> (u64, u64, u64) {
    let asked = |name| call(name, 0, 0, 0);
    (asked("table_last_address"), asked("table_last_length"), asked("table_last_lkey"))
}

/// How many requests the device has.
pub(super) fn held() -> u64 {
    call("table_held", 0, 0, 0)
}

/// How often a queue was armed.
pub(super) fn armings() -> u64 {
    call("table_armings", 0, 0, 0)
}

/// Events that were taken and not acknowledged.
pub(super) fn unacknowledged() -> u64 {
    call("table_unacknowledged", 0, 0, 0)
}

/// The next post fails. The device takes so many of its list, and names the first that it did not take.
pub(super) fn refuse_post_after(count: usize) {
    call("table_fail_post", libc::ENOMEM as u64, count as u64, 1);
}

/// The next post fails, and names no request though the device has them all: as Soft-RoCE where the doorbell fails.
pub(super) fn fail_post_in_doubt() {
    call("table_fail_post", libc::EIO as u64, 0, 0);
}

/// The next so many polls answer -1.
pub(super) fn fail_polls(count: u64) {
    call("table_fail_polls", count, 0, 0);
}

/// The oldest `count` requests complete right before the `nth` arming from now on.
pub(super) fn complete_at_arming(nth: u64, count: u64) {
    call("table_complete_at_arming", nth, count, 0);
}

/// While `refused` runs, no queue pair is destroyed.
pub(super) fn refusing_destroy<T>(refused: impl FnOnce() -> T) -> T {
    refusing("table_refuse_destroy", refused)
}

/// While `refused` runs, no window is deallocated.
pub(super) fn refusing_dealloc<T>(refused: impl FnOnce() -> T) -> T {
    refusing("table_refuse_dealloc", refused)
}

/// While `refused` runs, no region is deregistered.
pub(super) fn refusing_dereg<T>(refused: impl FnOnce() -> T) -> T {
    refusing("table_refuse_dereg", refused)
}

fn refusing<T>(name: &str, refused: impl FnOnce() -> T) -> T {
    call(name, 1, 0, 0);
    let answer = refused();
    call(name, 0, 0, 0);
    answer
}

/// Whether a piece of memory is kept by anybody.
pub(super) struct Watch(Weak<()>);

impl Watch {
    pub(super) fn is_kept(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// A domain and a completion queue, on the device of the script.
pub(super) struct Bench {
    pub(super) context: Context,
    pub(super) pd: ProtectionDomain,
    pub(super) cq: CompletionQueue,
}

impl Bench {
    /// With room for so many completions.
    pub(super) fn new(depth: u32) -> Self {
        Self::on(open(Functions::find(), false), depth, |_| None)
    }

    /// As [`new`](Self::new), on a device with memory of its own.
    pub(super) fn with_on_chip_memory(depth: u32) -> Self {
        Self::on(open(Functions::find(), true), depth, |_| None)
    }

    /// As [`new`](Self::new), on a channel.
    pub(super) fn with_channel(depth: u32) -> Self {
        Self::on(open(Functions::find(), false), depth, |context| {
            Some(context.create_comp_channel().unwrap())
        })
    }

    fn on(context: Context, depth: u32, channel: impl FnOnce(&Context) -> Option<CompletionChannel>) -> Self {
        let (pd, channel) = (context.alloc_pd().unwrap(), channel(&context));
        let mut builder = CompletionQueueBuilder::new(depth);
        if let Some(channel) = &channel {
            builder = builder.channel(channel);
        }
        let cq = builder.build(&context).unwrap();
        Self { context, pd, cq }
    }

    /// A queue pair for `depth` requests in each direction.
    pub(super) fn builder(&self, depth: u32) -> QueuePairBuilder {
        self.builder_of(QueuePairType::Rc, depth)
    }

    pub(super) fn builder_of(&self, kind: QueuePairType, depth: u32) -> QueuePairBuilder {
        QueuePairBuilder::new(kind, &self.cq, &self.cq).max_send_wr(depth).max_recv_wr(depth)
    }

    /// Such a queue pair, ready to send.
    pub(super) fn queue_pair(&self, depth: u32) -> QueuePair {
        self.ready(&self.builder(depth))
    }

    pub(super) fn ready(&self, builder: &QueuePairBuilder) -> QueuePair {
        let qp = builder.build(&self.pd).unwrap();
        let mut attr = sys::ibv_qp_attr { qp_state: sys::IBV_QPS_RTS, ..Default::default() };
        // SAFETY: nothing is posted, and there is no peer.
        unsafe { qp.modify_raw(&mut attr, sys::IBV_QP_STATE) }.unwrap();
        qp
    }

    /// A page of its own, registered, that can be watched.
    pub(super) fn memory(&self) -> (Slice, Watch) {
        let (slice, watch) = watched();
        self.pd.register(slice.memory()).unwrap();
        (slice, watch)
    }
}

/// A page of its own that can be watched. It is unmapped when nobody keeps it: a device that touches it later ends the test.
pub(super) fn watched() -> (Slice, Watch) {
    let (page, alive) = (Memory::allocate(LEN).unwrap(), Arc::new(()));
    let (start, watch) = (page.address(), Watch(Arc::downgrade(&alive)));
    // SAFETY: the page is mapped until the owner is dropped, which has it, and does not touch it.
    (unsafe { Memory::from_raw(start, LEN, Box::new((page, alive))) }, watch)
}
