//! Tests of send queues.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farreach_memory::Memory;
use farreach_testkit::{on_host_a, pattern};
use farreach_verbs::Error;
use farreach_verbs::cq::{WorkKind, WorkStatus};
use farreach_verbs::imm::ImmediateData;
use farreach_verbs::mr::{AccessFlags, RemoteKey};
use farreach_verbs::qp::state::ConnectionParameters;
use farreach_verbs::qp::{QueuePairBuilder, QueuePairType, SendOperations};
use farreach_verbs::wr::{
    Buffers, Flush, FlushLevel, FlushPlacement, RecvRequest, Refusal, RegionPart, RemoteRange, SendRequest,
};

use super::pair::{DEPTH, Pair, bytes, everything, next, open, take};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_message_arrives_and_both_buffers_come_back() {
    on_host_a(|| {
        let pair = Pair::rc();
        pair.b.post_recv(RecvRequest::new(pair.filled(0, 256)).tag(7)).unwrap();
        pair.a
            .post_send(SendRequest::send(pair.filled(1, 100)).immediate(0x0102_0304).solicited().tag(9))
            .unwrap();

        let sent = next(&pair.cq_a);
        assert_eq!((sent.tag, sent.kind), (9, WorkKind::Send));
        sent.outcome.unwrap();
        assert_eq!(*sent.buffers.into_slice().unwrap(), *pattern(1, 100));

        let received = next(&pair.cq_b);
        assert_eq!((received.tag, received.kind), (7, WorkKind::Recv));
        let success = received.outcome.unwrap();
        assert_eq!((success.byte_len, success.is_write), (100, false));
        assert_eq!(success.immediate, Some(ImmediateData(0x0102_0304)));
        let slice = received.buffers.into_slice().unwrap();
        assert_eq!(slice[..100], *pattern(1, 100));
        assert_eq!(slice[100..], pattern(0, 256)[100..]);
        assert_eq!((pair.a.in_flight(), pair.b.in_flight()), ((0, 0), (0, 0)));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_message_is_gathered_from_memory_that_peers_may_reach() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = Arc::new(pair.exposed(3, 4096));
        pair.a.post_recv(RecvRequest::new(pair.filled(0, 500))).unwrap();
        pair.b.post_send_from(RegionPart::exposed(&region, 1000..1500).unwrap(), 9).unwrap();
        let sent = next(&pair.cq_b);
        assert_eq!((sent.tag, sent.kind), (9, WorkKind::Send));
        sent.outcome.unwrap();
        let received = next(&pair.cq_a);
        assert_eq!(received.outcome.unwrap().byte_len, 500);
        assert_eq!(*received.buffers.into_slice().unwrap(), pattern(3, 4096)[1000..1500]);
        // The region is unchanged: the peer can still write to it.
        pair.a.post_send(SendRequest::write(pair.filled(4, 4096), region.remote())).unwrap();
        next(&pair.cq_a).outcome.unwrap();
        assert_eq!(bytes(&region), pattern(4, 4096));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_write_lands_and_a_read_brings_it_back() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(3, 4096);
        let page = region.remote().get(1000, 500).unwrap();
        pair.a.post_send(SendRequest::write(pair.filled(4, 500), page)).unwrap();
        next(&pair.cq_a).outcome.unwrap();
        let mut expected = pattern(3, 4096);
        expected[1000..1500].copy_from_slice(&pattern(4, 500));
        assert_eq!(bytes(&region), expected);

        pair.a
            .post_send(SendRequest::read(pair.filled(5, 600), region.remote().get(900, 600).unwrap()))
            .unwrap();
        let read = next(&pair.cq_a);
        assert_eq!(read.kind, WorkKind::Read);
        read.outcome.unwrap();
        assert_eq!(*read.buffers.into_slice().unwrap(), expected[900..1500]);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_write_with_immediate_completes_at_the_peer() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(0, 64);
        pair.b.post_recv(RecvRequest::empty().tag(5)).unwrap();
        pair.a.post_send(SendRequest::write(pair.filled(8, 64), region.remote()).immediate(77)).unwrap();
        next(&pair.cq_a).outcome.unwrap();
        let told = next(&pair.cq_b);
        let success = told.outcome.unwrap();
        assert_eq!((told.tag, success.is_write, success.byte_len), (5, true, 64));
        assert_eq!(success.immediate, Some(ImmediateData(77)));
        assert_eq!(bytes(&region), pattern(8, 64));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn atomics_change_the_word_and_tell_what_was_there() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(0, 64);
        let word = region.remote().get(8, 8).unwrap();
        region.bytes().atomic_at(8).store(40, Ordering::Relaxed);
        let was = |request: SendRequest| {
            pair.a.post_send(request).unwrap();
            let done = next(&pair.cq_a);
            done.outcome.unwrap();
            u64::from_ne_bytes((*done.buffers.into_slice().unwrap()).try_into().unwrap())
        };
        assert_eq!(was(SendRequest::fetch_add(pair.filled(0, 8), word, 2)), 40);
        assert_eq!(
            was(SendRequest::compare_swap(pair.filled(0, 8), word, 41, 9)),
            42,
            "not as expected: unchanged"
        );
        assert_eq!(was(SendRequest::compare_swap(pair.filled(0, 8), word, 42, 7)), 42);
        assert_eq!(region.bytes().atomic_at(8).load(Ordering::Relaxed), 7);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn atomic_write_and_flush_run_where_the_device_has_them() {
    on_host_a(|| {
        let newer = SendOperations::ATOMIC_WRITE | SendOperations::FLUSH | SendOperations::RDMA_WRITE;
        let pd = open().alloc_pd().unwrap();
        // Debian 12's kernel has neither, and its library no FLUSH.
        if std::env::var("FARREACH_KERNEL").is_ok_and(|version| version.starts_with("6.1.")) {
            let cq = pd.context().create_cq(128).unwrap();
            let builder = QueuePairBuilder::new(QueuePairType::Rc, &cq, &cq);
            let refused = builder.send_operations(newer).build(&pd).unwrap_err();
            assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
            return;
        }
        let access = everything() | AccessFlags::FLUSH_GLOBAL;
        let pair = Pair::in_domain(&pd, access, |builder| builder.send_operations(newer));
        let region = pair.exposed_for(0, 64, access);
        let word = region.remote().get(16, 8).unwrap();
        pair.a.post_send(SendRequest::atomic_write(word, 0x1122_3344_5566_7788)).unwrap();
        let flush = Flush { placement: FlushPlacement::Global, level: FlushLevel::Range };
        pair.a.post_send(SendRequest::flush(region.remote(), flush)).unwrap();
        let done = take(&pair.cq_a, 2);
        assert_eq!((done[0].kind, done[1].kind), (WorkKind::AtomicWrite, WorkKind::Flush));
        for one in done {
            one.outcome.unwrap();
        }
        assert_eq!(region.bytes().atomic_at(16).load(Ordering::Relaxed), 0x1122_3344_5566_7788);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_has_no_completion_comes_back_before_the_next_one_that_has() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(0, 4096);
        for tag in 0..4 {
            let request =
                SendRequest::write(pair.filled(tag as u8, 16), region.remote().get(tag * 16, 16).unwrap());
            let request = if tag == 3 { request } else { request.unsignaled() };
            pair.a.post_send(request.tag(tag)).unwrap();
        }
        for (tag, done) in take(&pair.cq_a, 4).into_iter().enumerate() {
            assert_eq!(done.tag, tag as u64);
            done.outcome.unwrap();
            assert_eq!(*done.buffers.into_slice().unwrap(), *pattern(tag as u8, 16));
        }
        assert_eq!(pair.a.in_flight(), (0, 0));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn bytes_are_gathered_and_scattered() {
    on_host_a(|| {
        let pair = Pair::rc();
        let (mut room, mut source) = (pair.filled(0, 90), pair.filled(6, 90));
        let (tail, middle) = (room.split_off(60), room.split_off(30));
        pair.b.post_recv(RecvRequest::scattered(vec![tail, room, middle])).unwrap();
        let rest = source.split_off(30).share();
        pair.a.post_send(SendRequest::send(vec![rest.clone().into(), source.into()])).unwrap();
        next(&pair.cq_a).outcome.unwrap();
        let received = next(&pair.cq_b);
        received.outcome.unwrap();
        let arrived: Vec<u8> =
            received.buffers.into_list().iter().flat_map(|buffer| buffer.bytes().unwrap().to_vec()).collect();
        let sent = pattern(6, 90);
        assert_eq!(arrived, [&sent[30..], &sent[..30]].concat());
        assert_eq!(*rest, sent[30..], "a shared source can be read meanwhile");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_slice_is_read_into_by_several_requests_at_once() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(7, 4096);
        let lent = pair.filled(0, 4096).lend();
        // The even KiB by one work request, the odd by another, each in an order of its own.
        for (tag, parts) in [[2, 0], [1, 3]].into_iter().enumerate() {
            let parts = parts.map(|part| lent.get(part * 1024..(part + 1) * 1024).unwrap().into());
            let remote = region.remote().get(tag as u64 * 2048, 2048).unwrap();
            let request = SendRequest::read_into(Buffers::List(parts.into()), remote);
            pair.a.post_send(request.tag(tag as u64)).unwrap();
        }
        let mut lent = lent.try_reclaim().expect_err("two work requests hold parts");
        for done in take(&pair.cq_a, 2) {
            done.outcome.unwrap();
            let rest = lent;
            drop(done.buffers);
            lent = match rest.try_reclaim() {
                Ok(slice) => {
                    let bytes = pattern(7, 4096);
                    let expected = [&bytes[1024..2048], &bytes[2048..3072], &bytes[..1024], &bytes[3072..]];
                    assert_eq!(*slice, *expected.concat());
                    return;
                }
                Err(lent) => lent,
            };
        }
        panic!("both work requests are done, and the slice was not returned");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn nothing_is_read_into_what_others_read() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(7, 64);
        let shared = pair.filled(1, 64).share();
        let request = SendRequest::read_into(shared.clone().into(), region.remote());
        let refused = pair.a.post_send(request).unwrap_err();
        assert!(matches!(refused.reason, Refusal::SharedDestination), "{refused}");
        assert_eq!((pair.a.in_flight(), &*shared), ((0, 0), &*pattern(1, 64)));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn memory_is_reached_by_each_of_its_keys_until_that_is_ended() {
    on_host_a(|| {
        let (pair, other) = (Pair::rc(), Pair::rc());
        let memory = Arc::new(pair.filled(3, 64).expose());
        let key = |pair: &Pair| pair.pd.expose_also(&memory, everything()).unwrap();
        let (by_one, by_other) = (key(&pair), key(&other));
        let (one, rest) = (by_one.remote().get(0, 8).unwrap(), by_other.remote().get(8, 8).unwrap());
        let seen = || {
            let mut copy = vec![0; 16];
            memory.read_at(0, &mut copy);
            copy
        };
        for (pair, seed, remote) in [(&pair, 4, one), (&other, 5, rest)] {
            pair.a.post_send(SendRequest::write(pair.filled(seed, 8), remote)).unwrap();
            next(&pair.cq_a).outcome.unwrap();
        }
        assert_eq!(seen(), [pattern(4, 8), pattern(5, 8)].concat());

        by_one.end().expect("the key is ended");
        fails_with(&pair, SendRequest::write(pair.filled(6, 8), one), WorkStatus::RemoteAccess, "it");
        other.a.post_send(SendRequest::write(other.filled(7, 8), rest)).unwrap();
        next(&other.cq_a).outcome.expect("the other key is valid");
        assert_eq!(seen(), [pattern(4, 8), pattern(7, 8)].concat());
        by_other.end().expect("the key is ended");
        Arc::try_unwrap(memory).expect("no key is left");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn inline_bytes_need_no_registration() {
    on_host_a(|| {
        let pair = Pair::rc();
        pair.b.post_recv(RecvRequest::new(pair.filled(0, 64))).unwrap();
        let mut slice = Memory::allocate(5).unwrap();
        slice.copy_from_slice(b"hello");
        pair.a.post_send(SendRequest::send(slice).inline()).unwrap();
        next(&pair.cq_a).outcome.unwrap();
        assert_eq!(next(&pair.cq_b).buffers.into_slice().unwrap()[..5], *b"hello");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn inline_bytes_are_limited_to_what_the_queue_pair_was_created_for() {
    on_host_a(|| {
        let pair = Pair::rc();
        let max = pair.a.capacity().max_inline_data as usize;
        pair.b.post_recv(RecvRequest::new(pair.filled(0, max))).unwrap();
        pair.a.post_send(SendRequest::send(pair.filled(1, max)).inline()).unwrap();
        next(&pair.cq_a).outcome.unwrap();
        assert_eq!(*next(&pair.cq_b).buffers.into_slice().unwrap(), *pattern(1, max));

        for len in [max + 1, 2 * max] {
            let refused = pair.a.post_send(SendRequest::send(pair.filled(1, len)).inline()).unwrap_err();
            assert!(matches!(refused.reason, Refusal::TooLong { .. }), "{refused}");
            assert_eq!(*refused.request.into_buffers().into_slice().unwrap(), *pattern(1, len));
        }
        assert_eq!(pair.a.in_flight(), (0, 0));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_full_queue_hands_the_request_back_and_takes_it_later() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(0, 64);
        for tag in 0..DEPTH.into() {
            pair.a.post_send(SendRequest::write(pair.filled(0, 8), region.remote()).tag(tag)).unwrap();
        }
        let refused =
            pair.a.post_send(SendRequest::write(pair.filled(9, 8), region.remote()).tag(99)).unwrap_err();
        assert!(matches!(refused.reason, Refusal::QueueFull { depth: DEPTH }), "{refused}");
        assert_eq!(*refused.request.buffers().as_slice()[0].bytes().unwrap(), *pattern(9, 8));
        next(&pair.cq_a).outcome.unwrap();
        pair.a.post_send(refused.request).unwrap();
        assert_eq!(take(&pair.cq_a, DEPTH as usize).last().unwrap().tag, 99);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_cannot_work_is_refused_before_it_is_posted() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(0, 64);
        let refused = |request: SendRequest| {
            let error = pair.a.post_send(request).expect_err("it cannot work");
            assert!(!error.reason.fix().is_empty());
            error.reason
        };
        let unregistered = Memory::allocate(8).unwrap();
        assert!(matches!(refused(SendRequest::send(unregistered)), Refusal::NotRegistered));
        let elsewhere = pair.pd.context().alloc_pd().unwrap().allocate(8).unwrap();
        assert!(matches!(refused(SendRequest::send(elsewhere)), Refusal::NotRegistered));
        let long = SendRequest::write(pair.filled(0, 65), region.remote());
        assert!(matches!(refused(long), Refusal::OutOfBounds { len: 65, remote_len: 64 }));
        let word = region.remote().get(0, 8).unwrap();
        assert!(matches!(
            refused(SendRequest::fetch_add(pair.filled(0, 4), word, 1)),
            Refusal::NotEightAlignedBytes
        ));
        let crooked = region.remote().get(1, 8).unwrap();
        assert!(matches!(
            refused(SendRequest::fetch_add(pair.filled(0, 8), crooked, 1)),
            Refusal::NotEightAlignedBytes
        ));
        assert!(matches!(refused(SendRequest::atomic_write(word, 1)), Refusal::Unsupported("ATOMIC WRITE")));
        let parameters = ConnectionParameters::choose(pair.a.context(), 1, None).unwrap();
        let address = parameters.address_of(&pair.unconnected().to_init(&parameters).unwrap());
        let ah = pair.pd.create_ah(&address).unwrap();
        let datagram = SendRequest::send(pair.filled(0, 8)).to(&ah, 1, 1);
        assert!(matches!(refused(datagram), Refusal::Unsupported(what) if what.contains("destination")));
        let many = (0..5).map(|_| pair.filled(0, 1).into()).collect::<Vec<_>>();
        assert!(matches!(refused(SendRequest::send(many)), Refusal::TooManyBuffers { count: 5, .. }));
        assert_eq!(pair.a.in_flight(), (0, 0));
    });
}

/// Posts a work request that the peer's device refuses, and another one after it.
#[track_caller]
pub(crate) fn fails_with(pair: &Pair, request: SendRequest, status: WorkStatus, what: &str) {
    pair.a.post_send(request.tag(1)).unwrap();
    pair.a.post_send(SendRequest::send(pair.filled(2, 8)).unsignaled().tag(2)).unwrap();
    let done = take(&pair.cq_a, 2);
    let first = done[0].outcome.expect_err(what);
    assert_eq!((done[0].tag, first.status), (1, status), "{what}: {first}");
    assert!(!first.cause().is_empty() && !first.fix().is_empty());
    assert!(done[1].outcome.unwrap_err().is_flush(), "{what}: {:?}", done[1]);
    assert_eq!(pair.a.in_flight(), (0, 0), "{what}: every buffer is back");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_wrong_key_and_a_missing_right_change_nothing() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(3, 64);
        let remote = region.remote();
        let forged = RemoteRange::new(remote.address(), remote.len(), RemoteKey(remote.key().0 ^ 0x55));
        fails_with(&pair, SendRequest::write(pair.filled(4, 64), forged), WorkStatus::RemoteAccess, "it");
        assert_eq!(bytes(&region), pattern(3, 64));

        let pair = Pair::rc();
        let region = pair.exposed_for(3, 64, AccessFlags::REMOTE_READ);
        fails_with(
            &pair,
            SendRequest::write(pair.filled(4, 64), region.remote()),
            WorkStatus::RemoteAccess,
            "it",
        );
        assert_eq!(bytes(&region), pattern(3, 64));

        let pair = Pair::rc();
        let region = pair.exposed(3, 64);
        let beyond = RemoteRange::new(region.remote().address() + 32, 64, region.remote().key());
        fails_with(&pair, SendRequest::read(pair.filled(4, 64), beyond), WorkStatus::RemoteAccess, "it");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_write_after_the_region_was_revoked_bounces() {
    on_host_a(|| {
        let pair = Pair::rc();
        let region = pair.exposed(3, 64);
        let remote = region.remote();
        let slice = region.revoke().expect("the region was deregistered");
        fails_with(&pair, SendRequest::write(pair.filled(4, 64), remote), WorkStatus::RemoteAccess, "it");
        assert_eq!(*slice, *pattern(3, 64));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_receiver_that_is_not_ready_is_named() {
    on_host_a(|| {
        let pair = Pair::rc();
        fails_with(&pair, SendRequest::send(pair.filled(1, 8)), WorkStatus::ReceiverNotReady, "it");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn destroying_a_queue_pair_gives_the_buffers_back() {
    on_host_a(|| {
        let pair = Pair::rc();
        for tag in 0..4 {
            pair.b.post_recv(RecvRequest::new(pair.filled(tag, 32)).tag(tag.into())).unwrap();
        }
        assert_eq!(pair.b.in_flight(), (0, 4));
        let buffers = pair.b.destroy().expect("it is destroyed");
        let slices: Vec<_> = buffers.into_iter().map(|buffers| buffers.into_slice().unwrap()).collect();
        assert_eq!(slices.len(), 4);
        for (tag, slice) in slices.iter().enumerate() {
            assert_eq!(**slice, *pattern(tag as u8, 32));
        }
        assert!(pair.cq_b.poller().poll().unwrap().next().is_none(), "nothing completes any more");
        assert_eq!(farreach_verbs::leak::leaked().total(), 0);
        assert_eq!(farreach_memory::leaked_bytes(), 0);
    });
}
