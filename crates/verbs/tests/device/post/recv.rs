//! Tests of receive queues, own and shared.

use farreach_testkit::{on_host_a, pattern};
use farreach_verbs::cq::WorkStatus;
use farreach_verbs::wr::{Buffers, RecvRequest, Refusal, SendRequest};

use super::pair::{DEPTH, Pair, everything, next, open, take};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_message_longer_than_its_room_fails_on_both_sides() {
    on_host_a(|| {
        let pair = Pair::rc();
        pair.b.post_recv(RecvRequest::new(pair.filled(0, 16))).unwrap();
        pair.a.post_send(SendRequest::send(pair.filled(1, 64))).unwrap();
        // The standard requires the first; Soft-RoCE returns the second.
        let status = next(&pair.cq_a).outcome.unwrap_err().status;
        assert!(matches!(status, WorkStatus::RemoteInvalid | WorkStatus::RemoteOperation), "{status}");
        let received = next(&pair.cq_b);
        let status = received.outcome.unwrap_err().status;
        assert!(matches!(status, WorkStatus::LocalLength | WorkStatus::LocalQueuePair), "{status}");
        assert_eq!(received.buffers.len(), 16);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_queue_pair_that_is_stopped_flushes_its_receives() {
    on_host_a(|| {
        let pair = Pair::rc();
        for tag in 0..3 {
            pair.b.post_recv(RecvRequest::new(pair.filled(tag, 16)).tag(tag.into())).unwrap();
        }
        pair.b.to_error().unwrap();
        for (tag, done) in take(&pair.cq_b, 3).into_iter().enumerate() {
            assert_eq!(done.tag, tag as u64);
            assert!(done.outcome.unwrap_err().is_flush());
            assert_eq!(*done.buffers.into_slice().unwrap(), *pattern(tag as u8, 16));
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_shared_buffer_is_no_room_for_a_message() {
    on_host_a(|| {
        let pair = Pair::rc();
        let request = RecvRequest::new(pair.filled(0, 16));
        pair.b.post_recv(request).unwrap();
        let many = (0..6).map(|_| pair.filled(0, 1)).collect();
        let refused = pair.b.post_recv(RecvRequest::scattered(many)).unwrap_err();
        assert!(matches!(refused.reason, Refusal::TooManyBuffers { count: 6, .. }), "{refused}");
        assert_eq!(refused.request.into_buffers().count(), 6);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_shared_queue_serves_many_queue_pairs() {
    on_host_a(|| {
        const PAIRS: usize = 64;
        let pd = open().alloc_pd().unwrap();
        let srq = pd.create_srq(PAIRS as u32, 1).unwrap();
        for tag in 0..PAIRS as u64 {
            srq.post_recv(RecvRequest::new(pd.allocate(64).unwrap()).tag(tag)).unwrap();
        }
        let full = srq.post_recv(RecvRequest::new(pd.allocate(64).unwrap())).unwrap_err();
        assert!(matches!(full.reason, Refusal::QueueFull { .. }), "{full}");

        let pairs: Vec<_> =
            (0..PAIRS).map(|_| Pair::in_domain(&pd, everything(), |builder| builder.srq(&srq))).collect();
        for (seed, pair) in pairs.iter().enumerate() {
            pair.a.post_send(SendRequest::send(pair.filled(seed as u8, 64))).unwrap();
            next(&pair.cq_a).outcome.unwrap();
        }
        let mut tags = Vec::new();
        for (seed, pair) in pairs.iter().enumerate() {
            let received = next(&pair.cq_b);
            received.outcome.unwrap();
            assert_eq!(*received.buffers.into_slice().unwrap(), *pattern(seed as u8, 64));
            tags.push(received.tag);
        }
        tags.sort_unstable();
        assert_eq!(tags, (0..PAIRS as u64).collect::<Vec<_>>(), "every buffer was returned once");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn many_messages_keep_their_order() {
    on_host_a(|| {
        let pair = Pair::rc();
        let mut free: Vec<_> = (0..DEPTH).map(|_| pair.pd.allocate(8).unwrap()).collect();
        let (mut sent, mut received, mut spare) = (0_u64, 0_u64, Vec::new());
        for _ in 0..DEPTH {
            pair.b.post_recv(RecvRequest::new(pair.pd.allocate(8).unwrap())).unwrap();
        }
        while received < 1000 {
            while sent < 1000 && sent < received + u64::from(DEPTH) {
                let Some(mut slice) = free.pop().or_else(|| spare.pop()) else { break };
                slice.copy_from_slice(&sent.to_ne_bytes());
                pair.a.post_send(SendRequest::send(slice)).unwrap();
                sent += 1;
            }
            spare.push(next(&pair.cq_a).buffers.into_slice().unwrap());
            let message = next(&pair.cq_b);
            message.outcome.unwrap();
            let Buffers::One(buffer) = message.buffers else { panic!("one buffer") };
            assert_eq!(buffer.bytes().unwrap(), received.to_ne_bytes());
            received += 1;
            pair.b.post_recv(RecvRequest::new(buffer.into_slice().unwrap())).unwrap();
        }
    });
}
