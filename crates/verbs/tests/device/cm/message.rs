//! Tests that a connection carries messages in both directions.

use farreach_testkit::{Buffer, on_host_a, pattern, wait_for};
use farreach_verbs::mr::{AccessFlags, MemoryRegion};
use farreach_verbs::qp::QueuePair;
use farreach_verbs::sys;

use super::rig::{Watchdog, pair};

const LEN: usize = 3000;

/// Memory of one side, registered with its queue pair's domain.
struct Registered {
    // The field order matters: deregistered before the memory is freed.
    mr: MemoryRegion,
    buffer: Buffer,
}

impl Registered {
    fn new(qp: &QueuePair) -> Self {
        let buffer = Buffer::new(LEN);
        let pd = qp.pd().expect("RC has a domain");
        // SAFETY: no reference to a buffer's bytes is made, and it outlives its region.
        let mr = unsafe { pd.reg_mr_raw(buffer.as_ptr(), LEN, AccessFlags::LOCAL_WRITE) }.unwrap();
        Self { mr, buffer }
    }

    fn sge(&self) -> sys::ibv_sge {
        sys::ibv_sge { addr: self.buffer.address(0), length: LEN as u32, lkey: self.mr.lkey().0 }
    }
}

fn post_recv(qp: &QueuePair, memory: &Registered) {
    let (mut sge, mut bad) = (memory.sge(), std::ptr::null_mut());
    let mut wr = sys::ibv_recv_wr { wr_id: 1, sg_list: &raw mut sge, num_sge: 1, ..Default::default() };
    // SAFETY: the work request is valid, and its memory outlives its use, because the test waits
    // for its completion.
    unsafe { qp.post_recv_raw(&raw mut wr, &mut bad) }.unwrap();
}

fn post_send(qp: &QueuePair, memory: &Registered) {
    let (mut sge, mut bad) = (memory.sge(), std::ptr::null_mut());
    let mut wr = sys::ibv_send_wr {
        wr_id: 2,
        sg_list: &raw mut sge,
        num_sge: 1,
        opcode: sys::IBV_WR_SEND,
        send_flags: sys::IBV_SEND_SIGNALED,
        ..Default::default()
    };
    // SAFETY: as in `post_recv`.
    unsafe { qp.post_send_raw(&raw mut wr, &mut bad) }.unwrap();
}

/// Waits for the one completion that is outstanding.
#[track_caller]
fn completed(qp: &QueuePair, wr_id: u64) {
    let cq = qp.send_cq().expect("RC has queues");
    let completion = wait_for("completion", || {
        let mut completions = [sys::ibv_wc::default()];
        // SAFETY: the work requests on this queue are this test's own, which waits for each.
        let count = unsafe { cq.poll_raw(&mut completions) }.unwrap();
        (count == 1).then_some(completions[0])
    });
    assert_eq!((completion.status, completion.wr_id), (sys::IBV_WC_SUCCESS, wr_id));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_message_goes_each_way() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (active, passive) = pair();
        let (near, far) = (Registered::new(&active.qp), Registered::new(&passive.qp));
        let ends = [(&active.qp, &near), (&passive.qp, &far)];
        for (seed, [(from, source), (to, target)]) in [(1, ends), (2, [ends[1], ends[0]])] {
            source.buffer.write(0, &pattern(seed, LEN));
            post_recv(to, target);
            post_send(from, source);
            completed(from, 2);
            completed(to, 1);
            assert_eq!(target.buffer.read(0, LEN), pattern(seed, LEN));
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_queue_pairs_are_as_the_handshake_agreed() {
    on_host_a(|| {
        let _watchdog = Watchdog::new();
        let (active, passive) = pair();
        let (near, far) = (active.qp.query().unwrap(), passive.qp.query().unwrap());
        assert_eq!((near.dest_qp_num, far.dest_qp_num), (passive.qp.qp_num(), active.qp.qp_num()));
        assert_eq!((near.rq_psn, far.rq_psn), (far.sq_psn, near.sq_psn));
        assert_eq!(near.path_mtu, far.path_mtu);
        for end in [&near, &far] {
            assert_eq!((end.retry_count, end.rnr_retry), (6, 6), "finite retries");
            assert!(end.max_rd_atomic > 0 && end.max_dest_rd_atomic > 0, "reads and atomics: {end:?}");
            assert!(end.access.contains(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ), "{end:?}");
        }
    });
}
