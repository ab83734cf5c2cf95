//! Tests of completion channels.

use std::thread;
use std::time::{Duration, Instant};

use farreach_testkit::{WAIT_MAX, on_host_a};
use farreach_verbs::cq::{CompletionChannel, CompletionQueueBuilder};
use farreach_verbs::qp::QueuePairType;

use super::rig::*;

/// Creates two sides, of which the receiving one has a channel.
fn rig(host: &Host) -> (End, End, CompletionChannel) {
    let pd = host.context.alloc_pd().unwrap();
    let channel = host.context.create_comp_channel().unwrap();
    let cq = CompletionQueueBuilder::new(16).channel(&channel).build(&host.context).unwrap();
    let parameters = host.parameters();
    let a = End::new(host, &pd, QueuePairType::Rc);
    let b = End::on(&pd, QueuePairType::Rc, &cq, &parameters);
    a.qp.connect(&parameters, &a.own, &b.own).unwrap();
    b.qp.connect(&parameters, &b.own, &a.own).unwrap();
    (a, b, channel)
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_armed_queue_rings_once() {
    on_host_a(|| {
        let host = Host::open();
        let (a, b, channel) = rig(&host);
        assert!(channel.get_event().unwrap().is_none(), "it does not block");
        b.cq.req_notify(false).unwrap();
        b.post_recv(7, b.region.sge(0, 64));
        b.post_recv(8, b.region.sge(0, 64));
        a.post_send(1, a.region.sge(0, 64), |_| ());
        let rang = channel.wait_event(Some(WAIT_MAX)).unwrap();
        assert_eq!(rang.as_ref(), Some(&b.cq));
        success(&b.cq, 7);

        a.post_send(2, a.region.sge(0, 64), |_| ());
        success(&b.cq, 8);
        let start = Instant::now();
        let wait = Duration::from_millis(50);
        assert!(channel.wait_event(Some(wait)).unwrap().is_none(), "not armed again");
        assert!(start.elapsed() >= wait);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn events_that_were_taken_keep_no_queue_alive() {
    on_host_a(|| {
        let host = Host::open();
        let (a, b, channel) = rig(&host);
        // More than are acknowledged at once, and not a multiple of it.
        for turn in 0..100 {
            b.cq.req_notify(false).unwrap();
            b.post_recv(turn, b.region.sge(0, 64));
            a.post_send(turn, a.region.sge(0, 64), |_| ());
            assert!(channel.wait_event(Some(WAIT_MAX)).unwrap().is_some());
            success(&b.cq, turn);
            success(&a.cq, turn);
        }
        let (done, waiting) = std::sync::mpsc::channel();
        thread::spawn(move || {
            drop((a, b));
            done.send(()).unwrap();
        });
        waiting.recv_timeout(WAIT_MAX).expect("destroying a queue does not wait for an acknowledgement");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_queue_can_go_while_another_thread_takes_its_events() {
    on_host_a(|| {
        let host = Host::open();
        for _ in 0..20 {
            let (a, b, channel) = rig(&host);
            b.cq.req_notify(false).unwrap();
            b.post_recv(7, b.region.sge(0, 64));
            a.post_send(1, a.region.sge(0, 64), |_| ());
            let taker =
                thread::spawn(move || channel.wait_event(Some(Duration::from_millis(20))).unwrap().is_some());
            success(&a.cq, 1);
            drop((a, b));
            // Both threads end, whether the event or the drop came first.
            let _ = taker.join().unwrap();
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn only_solicited_messages_ring_where_that_is_asked() {
    on_host_a(|| {
        let host = Host::open();
        let (a, b, channel) = rig(&host);
        b.post_recv(7, b.region.sge(0, 64));
        b.post_recv(8, b.region.sge(0, 64));
        b.cq.req_notify(true).unwrap();
        a.post_send(1, a.region.sge(0, 64), |_| ());
        success(&b.cq, 7);
        assert!(channel.wait_event(Some(Duration::from_millis(50))).unwrap().is_none());
        a.post_send(2, a.region.sge(0, 64), |wr| wr.send_flags |= farreach_verbs::sys::IBV_SEND_SOLICITED);
        assert!(channel.wait_event(Some(WAIT_MAX)).unwrap().is_some());
        success(&b.cq, 8);
    });
}
