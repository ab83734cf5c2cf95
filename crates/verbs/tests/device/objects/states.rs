//! Tests of the states from RESET to RTS, and of messages in RTS.

use farreach_testkit::{on_host_a, pattern, wait_for};
use farreach_verbs::Error;
use farreach_verbs::ah::GRH_BYTES;
use farreach_verbs::mr::AccessFlags;
use farreach_verbs::qp::{QueuePairState, QueuePairType};
use farreach_verbs::sys;

use super::rig::*;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_reliable_connection_carries_a_message() {
    on_host_a(|| connected(QueuePairType::Rc));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_unreliable_connection_carries_a_message() {
    on_host_a(|| connected(QueuePairType::Uc));
}

fn connected(kind: QueuePairType) {
    let host = Host::open();
    let pd = host.context.alloc_pd().unwrap();
    let (a, b) = pair(&host, &pd, kind);
    assert_eq!(a.qp.state(), Ok(QueuePairState::ReadyToSend));

    let data = pattern(1, 5000);
    a.region.buffer.write(100, &data);
    b.post_recv(7, b.region.sge(0, REGION));
    a.post_send(1, a.region.sge(100, data.len()), |_| ());
    success(&a.cq, 1);
    assert_eq!(success(&b.cq, 7).byte_len as usize, data.len());
    assert_eq!(b.region.buffer.read(0, data.len()), data);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_datagram_goes_there_and_its_answer_back() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let parameters = host.parameters();
        let ends = [0, 1].map(|_| End::new(&host, &pd, QueuePairType::Ud));
        let [a, b] = &ends;
        a.qp.activate(&parameters, &a.own).unwrap();
        b.qp.activate(&parameters, &b.own).unwrap();

        let data = pattern(2, 500);
        a.region.buffer.write(0, &data);
        b.post_recv(7, b.region.sge(0, REGION));
        let there = pd.create_ah(&parameters.address_of(&b.own)).unwrap();
        a.post_send(1, a.region.sge(0, data.len()), |wr| {
            wr.wr.ud.ah = there.as_raw();
            wr.wr.ud.remote_qpn = b.own.qp_num;
            wr.wr.ud.remote_qkey = b.own.qkey;
        });
        success(&a.cq, 1);
        let arrived = success(&b.cq, 7);
        assert_eq!(arrived.byte_len as usize, GRH_BYTES + data.len());
        assert_eq!(b.region.buffer.read(GRH_BYTES, data.len()), data);

        let header = b.region.buffer.read(0, GRH_BYTES).try_into().unwrap();
        let back = pd.create_ah_from_wc(host.device.port, &arrived, &header).unwrap();
        a.post_recv(8, a.region.sge(4096, 4096));
        b.post_send(2, b.region.sge(GRH_BYTES, data.len()), |wr| {
            wr.wr.ud.ah = back.as_raw();
            wr.wr.ud.remote_qpn = arrived.src_qp;
            wr.wr.ud.remote_qkey = a.own.qkey;
        });
        success(&b.cq, 2);
        success(&a.cq, 8);
        assert_eq!(a.region.buffer.read(4096 + GRH_BYTES, data.len()), data);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_was_chosen_is_what_the_device_has() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let (a, b) = [0, 1].map(|_| End::new(&host, &pd, QueuePairType::Rc)).into();
        let mut parameters = host.parameters();
        parameters.traffic_class = 26 << 2;
        parameters.access = AccessFlags::REMOTE_READ | AccessFlags::LOCAL_WRITE;
        a.qp.connect(&parameters, &a.own, &b.own).unwrap();

        let attributes = a.qp.query().unwrap();
        let port = host.context.query_port(host.device.port).unwrap();
        assert_eq!(attributes.path_mtu, port.active_mtu);
        assert_eq!((attributes.dest_qp_num, attributes.peer_gid), (b.own.qp_num, b.own.gid));
        assert_eq!((attributes.sq_psn, attributes.rq_psn), (a.own.psn, b.own.psn));
        assert_eq!(attributes.gid_index, host.device.gid_index);
        assert_eq!((attributes.traffic_class, attributes.hop_limit), (26 << 2, 64));
        assert_eq!(
            (attributes.timeout, attributes.retry_count),
            (parameters.timeout, parameters.retry_count)
        );
        assert_eq!((attributes.rnr_retry, attributes.min_rnr_timer), (6, 25));
        assert_eq!(attributes.max_rd_atomic, parameters.max_rd_atomic);
        assert_ne!(a.own.psn, b.own.psn, "PSNs are random");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_error_flushes_what_is_posted() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let (_a, b) = pair(&host, &pd, QueuePairType::Rc);
        b.post_recv(7, b.region.sge(0, 64));
        b.post_recv(8, b.region.sge(0, 64));
        b.qp.to_error().unwrap();
        for id in [7, 8] {
            let wc = completion(&b.cq);
            assert_eq!((wc.wr_id, wc.status), (id, sys::IBV_WC_WR_FLUSH_ERR));
        }
        assert_eq!(b.qp.state(), Ok(QueuePairState::Error));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_drained_queue_pair_sends_again() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let (a, b) = pair(&host, &pd, QueuePairType::Rc);
        a.qp.drain().unwrap();
        assert_eq!(a.qp.state(), Ok(QueuePairState::SendQueueDrained));
        wait_for("end of the draining", || (!a.qp.query().unwrap().is_draining).then_some(()));
        a.qp.resume().unwrap();
        b.post_recv(7, b.region.sge(0, 64));
        a.post_send(1, a.region.sge(0, 64), |_| ());
        success(&a.cq, 1);
        success(&b.cq, 7);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_refused_change_names_both_sides() {
    on_host_a(|| {
        let host = Host::open();
        let pd = host.context.alloc_pd().unwrap();
        let a = End::new(&host, &pd, QueuePairType::Rc);
        let mut peer = a.own;
        // A documentation address that has no route.
        peer.gid = "::ffff:198.51.100.7".parse().unwrap();
        let error = a.qp.to_rtr(&host.parameters(), &peer).unwrap_err();
        let text = error.to_string();
        let place = format!("INIT to RTR of queue pair {} on {}:1", a.own.qp_num, host.device.name);
        assert!(text.contains(&place), "{text}");
        let between = format!("GID {} {} towards {}", host.device.gid_index, a.own.gid, peer.gid);
        assert!(text.contains(&between), "{text}");
        let Error::StateChange(refused) = &error else { panic!("{error:?}") };
        let known = [libc::ENETUNREACH, libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::EINVAL];
        assert!(known.contains(&refused.errno.0), "{text}");
    });
}
