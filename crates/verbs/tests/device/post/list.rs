//! Tests of lists of work requests in one post.

use farreach_testkit::{on_host_a, pattern};
use farreach_verbs::cq::WorkKind;
use farreach_verbs::qp::QueuePairState;
use farreach_verbs::wr::{RecvRequest, Refusal, SendRequest};

use super::pair::{DEPTH, Pair, bytes, next, take};

/// More than one call takes.
const MANY: usize = 150;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_list_of_writes_lands_whole_and_in_order() {
    on_host_a(|| {
        let pair = Pair::deep(MANY as u32);
        let region = pair.exposed(0, MANY * 16);
        let mut source = pair.filled(0, MANY * 16);
        let write = |index: usize| {
            let to = region.remote().get(index as u64 * 16, 16).unwrap();
            let mut slice = source.split_to(16);
            slice.copy_from_slice(&pattern(index as u8, 16));
            let request = SendRequest::write(slice, to).tag(index as u64);
            // Only the last one has a completion.
            if index + 1 < MANY { request.unsignaled() } else { request }
        };
        let mut requests: Vec<SendRequest> = (0..MANY).map(write).collect();
        let room = requests.capacity();
        pair.a.post_send_list(&mut requests).unwrap();
        assert_eq!(
            (requests.len(), requests.capacity()),
            (0, room),
            "the list is empty, and keeps its capacity"
        );
        for (index, done) in take(&pair.cq_a, MANY).into_iter().enumerate() {
            assert_eq!(done.tag, index as u64);
            done.outcome.unwrap();
            assert_eq!(*done.buffers.into_slice().unwrap(), *pattern(index as u8, 16));
        }
        let expected: Vec<u8> = (0..MANY).flat_map(|index| pattern(index as u8, 16)).collect();
        assert_eq!(bytes(&region), expected);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_does_not_fit_stays_in_the_list() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(0, 64);
        let depth = DEPTH as usize;
        let mut requests: Vec<SendRequest> = (0..depth + 3)
            .map(|index| SendRequest::write(pair.filled(7, 64), region.remote()).tag(index as u64))
            .collect();
        let reason = pair.a.post_send_list(&mut requests).unwrap_err();
        assert!(matches!(reason, Refusal::QueueFull { depth: DEPTH }), "{reason}");
        assert_eq!(requests.len(), 3);
        assert!(requests.iter().all(|request| request.buffers().len() == 64), "with their buffers");
        assert_eq!(take(&pair.cq_a, depth).last().unwrap().tag, depth as u64 - 1);
        pair.a.post_send_list(&mut requests).unwrap();
        let tags: Vec<u64> = take(&pair.cq_a, 3).iter().map(|done| done.tag).collect();
        assert_eq!(tags, [8, 9, 10]);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_bad_request_stops_the_list_where_it_stands() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(0, 64);
        let good = |tag| SendRequest::write(pair.filled(7, 64), region.remote()).tag(tag);
        let beyond = SendRequest::write(pair.filled(8, 65), region.remote()).tag(2);
        let mut requests = vec![good(0), good(1), beyond, good(3)];
        let reason = pair.a.post_send_list(&mut requests).unwrap_err();
        assert!(matches!(reason, Refusal::OutOfBounds { len: 65, remote_len: 64 }), "{reason}");
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0].buffers().len(), 65);
        assert_eq!(take(&pair.cq_a, 2).iter().map(|done| done.tag).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(pair.a.in_flight(), (0, 0));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_comes_too_early_is_handed_back() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(0, 64);
        let idle = pair.unconnected();
        let mut requests: Vec<SendRequest> =
            (0..3).map(|seed| SendRequest::write(pair.filled(seed, 64), region.remote())).collect();
        let reason = idle.post_send_list(&mut requests).unwrap_err();
        assert!(matches!(reason, Refusal::NotReady(QueuePairState::Reset)), "{reason}");
        assert_eq!((requests.len(), idle.in_flight()), (3, (0, 0)));
        for (index, request) in requests.into_iter().enumerate() {
            assert_eq!(*request.into_buffers().into_slice().unwrap(), *pattern(index as u8, 64));
        }
        let refused = idle.post_send(SendRequest::write(pair.filled(9, 64), region.remote())).unwrap_err();
        assert!(matches!(refused.reason, Refusal::NotReady(_)), "{}", refused.reason);
        assert_eq!(*refused.request.into_buffers().into_slice().unwrap(), *pattern(9, 64));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn room_for_many_messages_is_posted_at_once() {
    on_host_a(|| {
        let pair = Pair::rc();
        let mut room: Vec<RecvRequest> =
            (0..DEPTH).map(|tag| RecvRequest::new(pair.filled(0, 64)).tag(tag.into())).collect();
        room.push(RecvRequest::empty());
        let reason = pair.b.post_recv_list(&mut room).unwrap_err();
        assert!(matches!(reason, Refusal::QueueFull { .. }), "{reason}");
        assert_eq!(room.len(), 1);
        let mut messages: Vec<SendRequest> =
            (0..DEPTH).map(|seed| SendRequest::send(pair.filled(seed as u8, 64))).collect();
        pair.a.post_send_list(&mut messages).unwrap();
        for tag in 0..DEPTH {
            let done = next(&pair.cq_b);
            assert_eq!((done.tag, done.kind), (tag.into(), WorkKind::Recv));
            assert_eq!(*done.buffers.into_slice().unwrap(), *pattern(tag as u8, 64));
        }
    });
}
