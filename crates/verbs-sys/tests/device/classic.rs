//! Tests of the classic functions: `ibv_post_send`, `ibv_post_recv`, `ibv_poll_cq`, and events.

use std::ptr::null_mut;

use farreach_testkit::{on_host_a, pattern};
use farreach_verbs_sys::*;

use crate::rig::*;

const IMMEDIATE: u32 = 0xfa77_eac4;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_write_with_immediate_lands_and_is_told() {
    on_host_a(|| {
        let host = Host::open();
        let (a, b) = pair(&host);
        let data = pattern(1, 5000);
        a.region.buffer.write(0, &data);

        post_recv(&b.qp, 7, b.region.sge(0, 0));
        let mut sge = a.region.sge(0, data.len());
        let mut wr = write_request(1, &mut sge, b.region.buffer.address(100), b.region.rkey());
        wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
        wr.__bindgen_anon_1.imm_data = IMMEDIATE.to_be();
        post_send(&a.qp, wr);

        success(&a.cq, 1, IBV_WC_RDMA_WRITE);
        let told = success(&b.cq, 7, IBV_WC_RECV_RDMA_WITH_IMM);
        assert_ne!(told.wc_flags & IBV_WC_WITH_IMM, 0);
        // SAFETY: the flag indicates that the immediate is valid.
        assert_eq!(u32::from_be(unsafe { told.__bindgen_anon_1.imm_data }), IMMEDIATE);
        assert_eq!(told.byte_len as usize, data.len());
        // SAFETY: the queue pair lives.
        assert_eq!(told.qp_num, unsafe { (*b.qp.get()).qp_num });

        assert_eq!(b.region.buffer.read(100, data.len()), data);
        assert_eq!(b.region.buffer.read(0, 100), [0; 100], "nothing before it");
        assert_eq!(b.region.buffer.read(5100, 100), [0; 100], "nothing behind it");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_message_arrives_in_the_buffer_that_waits_for_it() {
    on_host_a(|| {
        let host = Host::open();
        let (a, b) = pair(&host);
        let data = pattern(2, 3000);
        a.region.buffer.write(64, &data);

        post_recv(&b.qp, 8, b.region.sge(4096, 4096));
        post_send(&a.qp, request(2, IBV_WR_SEND, &mut a.region.sge(64, data.len())));

        success(&a.cq, 2, IBV_WC_SEND);
        let told = success(&b.cq, 8, IBV_WC_RECV);
        assert_eq!((told.byte_len as usize, told.wc_flags & IBV_WC_WITH_IMM), (data.len(), 0));
        assert_eq!(b.region.buffer.read(4096, data.len()), data);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_read_brings_the_peers_memory() {
    on_host_a(|| {
        let host = Host::open();
        let (a, b) = pair(&host);
        let data = pattern(3, REGION);
        b.region.buffer.write(0, &data);

        let mut sge = a.region.sge(0, REGION);
        let mut wr = write_request(3, &mut sge, b.region.buffer.address(0), b.region.rkey());
        wr.opcode = IBV_WR_RDMA_READ;
        post_send(&a.qp, wr);
        success(&a.cq, 3, IBV_WC_RDMA_READ);
        assert_eq!(a.region.buffer.read(0, REGION), data);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_armed_queue_rings_its_channel() {
    on_host_a(|| {
        let host = Host::open();
        let channel = host.channel();
        let cq = host.cq(Some(&channel));
        let region = host.region(ACCESS);
        let (a, b) = (host.qp(cq.get(), null_mut()), host.qp(cq.get(), null_mut()));
        host.join(a.get(), b.get(), ACCESS);

        // SAFETY: the queue lives.
        assert_eq!(unsafe { ibv_req_notify_cq(cq.get(), 0) }, 0);
        post_send(&a, write_request(4, &mut region.sge(0, 64), region.buffer.address(64), region.rkey()));
        // SAFETY: the channel lives.
        wait_readable(unsafe { (*channel.get()).fd });

        let (mut rung, mut context) = (null_mut(), null_mut());
        // SAFETY: the channel lives, has an event, and both pointers are valid for writing.
        let status = unsafe { lib().ibv_get_cq_event(channel.get(), &raw mut rung, &raw mut context) };
        assert_eq!((status, rung), (Ok(0), cq.get()));
        // SAFETY: one event of this queue was taken.
        unsafe { lib().ibv_ack_cq_events(rung, 1) }.unwrap();
        success(&cq, 4, IBV_WC_RDMA_WRITE);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_write_with_a_wrong_key_is_refused_and_the_rest_flushed() {
    on_host_a(|| {
        let host = Host::open();
        let (a, b) = pair(&host);
        a.region.buffer.write(0, &[0xff; 64]);

        let mut sge = a.region.sge(0, 64);
        let (address, wrong) = (b.region.buffer.address(0), b.region.rkey() ^ 0x1);
        post_send(&a.qp, write_request(5, &mut sge, address, wrong));
        let refused = completion(&a.cq);
        let status = refused.status;
        assert_eq!((refused.wr_id, status), (5, IBV_WC_REM_ACCESS_ERR), "{}", status_text(status));

        post_send(&a.qp, write_request(6, &mut sge, address, b.region.rkey()));
        let flushed = completion(&a.cq);
        assert_eq!(
            (flushed.wr_id, flushed.status),
            (6, IBV_WC_WR_FLUSH_ERR),
            "{}",
            status_text(flushed.status)
        );
        assert_eq!(b.region.buffer.read(0, 64), [0; 64]);
    });
}
