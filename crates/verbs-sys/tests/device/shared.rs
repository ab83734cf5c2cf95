//! Tests of a memory window that is invalidated, and of a shared receive queue.

use std::ptr::null_mut;

use farreach_testkit::on_host_a;
use farreach_verbs_sys::*;

use crate::rig::*;

/// Binds a window of type 2 to a part of the side's memory, and returns the key for the peer.
fn bind(end: &End, mw: &Owned<ibv_mw>, offset: usize, length: usize) -> u32 {
    let bind_info = ibv_mw_bind_info {
        mr: end.region.mr.get(),
        addr: end.region.buffer.address(offset),
        length: length as u64,
        mw_access_flags: IBV_ACCESS_REMOTE_WRITE,
    };
    // SAFETY: the window lives.
    let rkey = ibv_inc_rkey(unsafe { (*mw.get()).rkey });
    let mut wr = ibv_send_wr {
        wr_id: 10,
        opcode: IBV_WR_BIND_MW,
        send_flags: IBV_SEND_SIGNALED,
        ..Default::default()
    };
    wr.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw: mw.get(), rkey, bind_info };
    post_send(&end.qp, wr);
    success(&end.cq, 10, IBV_WC_BIND_MW);
    rkey
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_window_lets_in_what_it_covers_until_it_is_invalidated() {
    on_host_a(|| {
        let host = Host::open();
        let (a, b) = pair(&host);
        // SAFETY: the domain lives.
        let mw = unsafe { ibv_alloc_mw(host.pd.get(), IBV_MW_TYPE_2) };
        // SAFETY: the window is no longer used or bound.
        let mw = Owned::new(mw, |mw| unsafe { ibv_dealloc_mw(mw) });
        let rkey = bind(&b, &mw, 1024, 64);
        assert_ne!(rkey, b.region.rkey());

        a.region.buffer.write(0, &[1; 64]);
        let mut sge = a.region.sge(0, 64);
        post_send(&a.qp, write_request(1, &mut sge, b.region.buffer.address(1024), rkey));
        success(&a.cq, 1, IBV_WC_RDMA_WRITE);
        assert_eq!(b.region.buffer.read(1024, 64), [1; 64]);

        let mut wr = ibv_send_wr {
            wr_id: 11,
            opcode: IBV_WR_LOCAL_INV,
            send_flags: IBV_SEND_SIGNALED,
            ..Default::default()
        };
        wr.__bindgen_anon_1.invalidate_rkey = rkey;
        post_send(&b.qp, wr);
        success(&b.cq, 11, IBV_WC_LOCAL_INV);

        a.region.buffer.write(0, &[2; 64]);
        post_send(&a.qp, write_request(2, &mut sge, b.region.buffer.address(1024), rkey));
        let late = completion(&a.cq);
        assert_eq!((late.wr_id, late.status), (2, IBV_WC_REM_ACCESS_ERR), "{}", status_text(late.status));
        assert_eq!(b.region.buffer.read(1024, 64), [1; 64], "a late write is refused");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_shared_queue_receives_for_several() {
    on_host_a(|| {
        let host = Host::open();
        let mut attr = ibv_srq_init_attr::default();
        (attr.attr.max_wr, attr.attr.max_sge) = (DEPTH / 2, 1);
        // SAFETY: the domain lives and the attributes are valid.
        let srq = unsafe { lib().ibv_create_srq(host.pd.get(), &raw mut attr) }.unwrap();
        // SAFETY: the queue is destroyed after its queue pairs.
        let srq = Owned::new(srq, |srq| unsafe { lib().ibv_destroy_srq(srq) }.unwrap());
        let (region, cq) = (host.region(ACCESS), host.cq(None));
        let senders = [(); 2].map(|()| host.qp(cq.get(), null_mut()));
        let receivers = [(); 2].map(|()| host.qp(cq.get(), srq.get()));
        for (sender, receiver) in senders.iter().zip(&receivers) {
            host.join(sender.get(), receiver.get(), ACCESS);
        }

        for slot in 0..2_usize {
            let mut sge = region.sge(1024 * (slot + 1), 64);
            let mut wr =
                ibv_recv_wr { wr_id: slot as u64, sg_list: &raw mut sge, num_sge: 1, ..Default::default() };
            let mut bad = null_mut();
            // SAFETY: the queue lives. The work request lives until the call returns, its memory
            // until completion.
            assert_eq!(unsafe { ibv_post_srq_recv(srq.get(), &raw mut wr, &raw mut bad) }, 0);
        }
        for (index, sender) in senders.iter().enumerate() {
            region.buffer.write(0, &[index as u8 + 1; 64]);
            post_send(sender, request(100, IBV_WR_SEND, &mut region.sge(0, 64)));
            let mut told = [completion(&cq), completion(&cq)];
            told.sort_by_key(|wc| wc.wr_id);
            let [received, sent] = told;
            assert_eq!((sent.wr_id, sent.status), (100, IBV_WC_SUCCESS), "{}", status_text(sent.status));
            assert_eq!(
                (received.wr_id, received.opcode),
                (index as u64, IBV_WC_RECV),
                "first come, first served"
            );
            // SAFETY: the queue pair lives.
            assert_eq!(received.qp_num, unsafe { (*receivers[index].get()).qp_num });
            assert_eq!(region.buffer.read(1024 * (index + 1), 64), [index as u8 + 1; 64]);
        }
    });
}
