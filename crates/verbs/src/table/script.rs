//! The device of `device.c` for tests: functions that script it, and memory whose release can be
//! observed.

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

/// The size of the [memory](Bench::memory) of a test, in bytes.
pub(super) const LEN: usize = 4096;

/// Calls a function of the script with up to three numbers.
fn call(name: &str, first: u64, second: u64, third: u64) -> u64 {
    type Function = extern "C" fn(u64, u64, u64) -> u64;
    // SAFETY: each function takes at most three words in registers, and returns one.
    unsafe { transmute::<*mut c_void, Function>(function(name))(first, second, third) }
}

/// Completes the oldest `count` work requests of the device with this status.
#[track_caller]
pub(super) fn complete_with(count: usize, status: u32) {
    let completed = call("table_complete", count as u64, status.into(), 0);
    assert_eq!(completed, count as u64, "it has no more");
}

/// Completes the oldest `count` work requests of the device with success.
#[track_caller]
pub(super) fn complete(count: usize) {
    complete_with(count, sys::IBV_WC_SUCCESS);
}

/// Puts a completion without a work request into a queue.
pub(super) fn forge(cq: &CompletionQueue, wr_id: u64) {
    call("table_forge", cq.as_raw().expose_provenance() as u64, wr_id, 0);
}

/// Returns the id of the last posted work request.
pub(super) fn last_id() -> u64 {
    call("table_last_id", 0, 0, 0)
}

/// Returns address, length and key of the first buffer of the last work request that has one.
pub(super) fn last_element() -> (u64, u64, u64) {
    let asked = |name| call(name, 0, 0, 0);
    (asked("table_last_address"), asked("table_last_length"), asked("table_last_lkey"))
}

/// Returns the number of work requests that the device has.
pub(super) fn held() -> u64 {
    call("table_held", 0, 0, 0)
}

/// Returns how often a queue was armed.
pub(super) fn armings() -> u64 {
    call("table_armings", 0, 0, 0)
}

/// Returns the number of events that were taken and not acknowledged.
pub(super) fn unacknowledged() -> u64 {
    call("table_unacknowledged", 0, 0, 0)
}

/// Makes the next post fail. The device takes `count` of its list, and names the first one that it
/// did not take.
pub(super) fn refuse_post_after(count: usize) {
    call("table_fail_post", libc::ENOMEM as u64, count as u64, 1);
}

/// Makes the next post fail without naming a work request, although the device has them all, like
/// Soft-RoCE when the doorbell fails.
pub(super) fn fail_post_in_doubt() {
    call("table_fail_post", libc::EIO as u64, 0, 0);
}

/// Makes the next `count` polls return -1.
pub(super) fn fail_polls(count: u64) {
    call("table_fail_polls", count, 0, 0);
}

/// Completes the oldest `count` work requests directly before the `nth` arming from now on.
pub(super) fn complete_at_arming(nth: u64, count: u64) {
    call("table_complete_at_arming", nth, count, 0);
}

/// Runs `refused` while no queue pair can be destroyed.
pub(super) fn refusing_destroy<T>(refused: impl FnOnce() -> T) -> T {
    refusing("table_refuse_destroy", refused)
}

/// Runs `refused` while no window can be deallocated.
pub(super) fn refusing_dealloc<T>(refused: impl FnOnce() -> T) -> T {
    refusing("table_refuse_dealloc", refused)
}

/// Runs `refused` while no region can be deregistered.
pub(super) fn refusing_dereg<T>(refused: impl FnOnce() -> T) -> T {
    refusing("table_refuse_dereg", refused)
}

fn refusing<T>(name: &str, refused: impl FnOnce() -> T) -> T {
    call(name, 1, 0, 0);
    let answer = refused();
    call(name, 0, 0, 0);
    answer
}

/// Observes whether memory is still kept alive.
pub(super) struct Watch(Weak<()>);

impl Watch {
    pub(super) fn is_kept(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// A protection domain and a completion queue on the scripted device.
pub(super) struct Bench {
    pub(super) context: Context,
    pub(super) pd: ProtectionDomain,
    pub(super) cq: CompletionQueue,
}

impl Bench {
    /// Creates a bench with room for `depth` completions.
    pub(super) fn new(depth: u32) -> Self {
        Self::on(open(Functions::find(), false), depth, |_| None)
    }

    /// Like [`new`](Self::new), on a device with on-chip memory.
    pub(super) fn with_on_chip_memory(depth: u32) -> Self {
        Self::on(open(Functions::find(), true), depth, |_| None)
    }

    /// Like [`new`](Self::new), with a channel.
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

    /// Configures a queue pair for `depth` work requests in each direction.
    pub(super) fn builder(&self, depth: u32) -> QueuePairBuilder {
        self.builder_of(QueuePairType::Rc, depth)
    }

    pub(super) fn builder_of(&self, kind: QueuePairType, depth: u32) -> QueuePairBuilder {
        QueuePairBuilder::new(kind, &self.cq, &self.cq).max_send_wr(depth).max_recv_wr(depth)
    }

    /// Creates such a queue pair, ready to send.
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

    /// Allocates and registers a page that can be observed.
    pub(super) fn memory(&self) -> (Slice, Watch) {
        let (slice, watch) = watched();
        self.pd.register(slice.memory()).unwrap();
        (slice, watch)
    }
}

/// Allocates a page that can be observed. It is unmapped when nothing keeps it, so a device that
/// accesses it later ends the test.
pub(super) fn watched() -> (Slice, Watch) {
    let (page, alive) = (Memory::allocate(LEN).unwrap(), Arc::new(()));
    let (start, watch) = (page.address(), Watch(Arc::downgrade(&alive)));
    // SAFETY: the owner holds the page, which stays mapped until the owner is dropped, and does not
    // access it.
    (unsafe { Memory::from_raw(start, LEN, Box::new((page, alive))) }, watch)
}
