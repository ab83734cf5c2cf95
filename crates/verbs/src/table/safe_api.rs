//! Tests the safe API: a buffer returns to its owner when the device has provably stopped, and not
//! before.

use std::sync::Arc;

use farreach_verbs_sys as sys;

use super::script::{
    Bench, LEN, complete, complete_with, fail_polls, fail_post_in_doubt, forge, held, last_id,
    refuse_post_after, refusing_destroy,
};
use super::{count, leaking};
use crate::Error;
use crate::ah::AddressAttributes;
use crate::cq::{WorkKind, WorkStatus};
use crate::leak::leaked;
use crate::mr::{AccessFlags, RemoteKey};
use crate::mw::WindowType;
use crate::qp::{QueuePair, QueuePairType};
use crate::wr::{Buffers, RecvRequest, Refusal, RemoteRange, SendRequest};

/// Polls, and returns the tags of the completions. Their buffers are dropped.
fn polled(bench: &Bench) -> Vec<u64> {
    bench.cq.poller().poll().unwrap().map(|completion| completion.tag()).collect()
}

#[test]
fn a_request_in_flight_keeps_its_buffer_when_every_handle_is_gone() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let (mut slice, watch) = bench.memory();
    let rest = slice.split_off(64);
    qp.post_recv(RecvRequest::new(slice).tag(7)).unwrap();
    drop((rest, bench.pd, bench.context));
    assert!(watch.is_kept(), "it is in flight");

    complete(1);
    let mut poller = bench.cq.poller();
    let completion = poller.poll().unwrap().next().expect("it is done");
    assert_eq!(completion.outcome().unwrap().byte_len, 64);
    let slice = completion.into_buffers().into_slice().unwrap();
    assert_eq!(slice[0], b'R', "the device has written to it");
    assert!(watch.is_kept());
    drop(slice);
    assert!(!watch.is_kept());
}

#[test]
fn a_forgotten_completion_forgets_no_buffer_before_the_device_is_done() {
    let bench = Bench::new(16);
    let mut qp = bench.queue_pair(4);
    let watches: Vec<_> = (0..4)
        .map(|_| {
            let (slice, watch) = bench.memory();
            qp.post_send_mut(SendRequest::send(slice)).unwrap();
            watch
        })
        .collect();
    complete(2);
    bench.cq.poller().poll().unwrap();
    assert!(watches.iter().all(|watch| watch.is_kept()), "none was consumed yet");
    assert_eq!(polled(&bench).len(), 2);
    assert_eq!(watches.iter().map(|watch| watch.is_kept()).collect::<Vec<_>>(), [false, false, true, true]);
    drop(qp);
    assert!(watches.iter().all(|watch| !watch.is_kept()), "the queue pair was destroyed");
}

#[test]
fn a_failed_poll_releases_nothing() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let (slice, watch) = bench.memory();
    qp.post_send(SendRequest::send(slice).tag(1)).unwrap();
    complete(1);
    fail_polls(2);
    let mut poller = bench.cq.poller();
    for _ in 0..2 {
        let error = poller.poll().expect_err("the device fails the poll");
        assert_eq!(error.to_string(), "ibv_poll_cq on table0: Input/output error (errno 5)");
        assert!(watch.is_kept());
        assert_eq!(qp.in_flight(), (1, 0));
    }
    let tags: Vec<u64> = poller.poll().unwrap().map(|completion| completion.tag()).collect();
    assert_eq!(tags, [1], "it comes with the next good poll");
    assert!(!watch.is_kept());
}

#[test]
fn unsignalled_requests_come_back_in_order_with_the_next_signalled_one() {
    let bench = Bench::new(16);
    let (qp, other) = (bench.queue_pair(4), bench.queue_pair(4));
    let (mut slice, watch) = bench.memory();
    for tag in [1, 2] {
        qp.post_send(SendRequest::send(slice.split_to(8)).tag(tag).unsignaled()).unwrap();
    }
    other.post_send(SendRequest::send(slice.split_to(8)).tag(9)).unwrap();
    qp.post_send(SendRequest::send(slice.split_to(8)).tag(3)).unwrap();
    drop(slice);
    complete(3);
    assert_eq!(polled(&bench), [9], "a completion of another queue does not retire these");
    assert_eq!(qp.in_flight(), (3, 0));
    complete_with(1, sys::IBV_WC_REM_ACCESS_ERR);
    let mut poller = bench.cq.poller();
    let told: Vec<_> =
        poller.poll().unwrap().map(|it| (it.tag(), it.outcome().map_err(|failure| failure.status))).collect();
    assert_eq!(told.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(told[0].1.is_ok() && told[1].1.is_ok(), "the status is that of the last one");
    assert_eq!(told[2].1, Err(WorkStatus::RemoteAccess));
    assert!(!watch.is_kept());
}

#[test]
fn a_post_in_doubt_keeps_its_buffer_until_the_queue_pair_is_destroyed() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let (slice, sent) = bench.memory();
    fail_post_in_doubt();
    let error = qp.post_send(SendRequest::send(slice).tag(1)).unwrap_err();
    assert!(matches!(error.reason, Refusal::InDoubt(_)), "{error}");
    assert_eq!(error.request.buffers().count(), 0, "the device may have them");
    drop(error);
    let (slice, received) = bench.memory();
    fail_post_in_doubt();
    let error = qp.post_recv(RecvRequest::new(slice).tag(2)).unwrap_err();
    assert!(matches!(error.reason, Refusal::InDoubt(_)) && error.request.buffers().count() == 0);
    drop(error);
    assert!(sent.is_kept() && received.is_kept());
    assert_eq!((qp.in_flight(), held()), ((1, 1), 2));

    let back = qp.destroy_unfinished().unwrap();
    let told: Vec<_> =
        back.iter().map(|request| (request.tag, request.kind, request.buffers.len())).collect();
    assert_eq!(told, [(1, WorkKind::Send, LEN), (2, WorkKind::Recv, LEN)]);
    assert!(sent.is_kept() && received.is_kept(), "they were returned");
    drop(back);
    assert!(!sent.is_kept() && !received.is_kept());
}

#[test]
fn a_list_in_doubt_is_in_flight_whole() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let (mut slice, watch) = bench.memory();
    let mut sends: Vec<_> = (0..3).map(|tag| SendRequest::send(slice.split_to(8)).tag(tag)).collect();
    drop(slice);
    fail_post_in_doubt();
    assert!(matches!(qp.post_send_list(&mut sends), Err(Refusal::InDoubt(_))));
    assert_eq!((sends.len(), qp.in_flight(), watch.is_kept()), (0, (3, 0), true));
    complete(3);
    assert_eq!(polled(&bench), [0, 1, 2], "the device had them");
}

#[test]
fn what_the_device_refuses_is_handed_back_and_the_rest_is_in_flight() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(4);
    let (mut slice, _watch) = bench.memory();
    refuse_post_after(0);
    let error = qp.post_send(SendRequest::send(slice.split_to(8)).tag(1)).unwrap_err();
    assert!(matches!(error.reason, Refusal::Engine(_)) && error.request.buffers().len() == 8);
    refuse_post_after(0);
    let error = qp.post_recv(RecvRequest::new(slice.split_to(16))).unwrap_err();
    assert!(matches!(error.reason, Refusal::Engine(_)) && error.request.buffers().len() == 16);
    assert_eq!((qp.in_flight(), held()), ((0, 0), 0));

    let mut sends: Vec<_> = (0..3).map(|tag| SendRequest::send(slice.split_to(8)).tag(tag)).collect();
    refuse_post_after(1);
    assert!(matches!(qp.post_send_list(&mut sends), Err(Refusal::Engine(_))));
    assert_eq!((qp.in_flight(), held()), ((1, 0), 1));
    assert!(sends.iter().all(|request| request.buffers().len() == 8));
    complete(1);
    assert_eq!(polled(&bench), [0]);
    qp.post_send_list(&mut sends).unwrap();
    complete(2);
    assert_eq!(polled(&bench), [1, 2], "numbers that were taken back are used again");
}

/// A queue pair that the kernel does not destroy may still have work requests in flight.
#[test]
fn a_queue_pair_that_is_not_destroyed_keeps_its_buffers_for_good() {
    let _leaking = leaking();
    for is_dropped in [true, false] {
        let bench = Bench::new(16);
        let qp = bench.queue_pair(4);
        let ((out, sent), (room, received)) = (bench.memory(), bench.memory());
        qp.post_send(SendRequest::send(out)).unwrap();
        qp.post_recv(RecvRequest::new(room)).unwrap();
        let (counted, live) = (leaked().queue_pairs, count("table_live"));
        refusing_destroy(|| match is_dropped {
            true => drop(qp),
            false => assert_eq!(qp.destroy().unwrap_err().errno().map(|errno| errno.0), Some(libc::EBUSY)),
        });
        assert_eq!(leaked().queue_pairs, counted + 1);
        drop(bench);
        assert!(sent.is_kept() && received.is_kept());
        assert_eq!((count("table_live"), held()), (live, 2), "their registrations stay, and all else");
        complete(2);
    }
}

#[test]
fn a_completion_that_nobody_waits_for_frees_nothing() {
    let bench = Bench::new(16);
    let (qp, other) = (bench.queue_pair(4), bench.queue_pair(4));
    let (mut slice, watch) = bench.memory();
    qp.post_send(SendRequest::send(slice.split_to(8)).tag(1)).unwrap();
    let first = last_id();
    qp.post_send(SendRequest::send(slice.split_to(8)).tag(2)).unwrap();
    other.post_send(SendRequest::send(slice).tag(3)).unwrap();
    let of_other = last_id();

    let never_posted = [first + 2, first + 1000, first - 1, 0, 5, u64::MAX];
    never_posted.into_iter().for_each(|id| forge(&bench.cq, id));
    assert!(polled(&bench).is_empty());
    assert_eq!((qp.in_flight(), other.in_flight(), watch.is_kept()), ((2, 0), (1, 0), true));

    complete(1);
    forge(&bench.cq, first);
    forge(&bench.cq, first);
    assert_eq!(polled(&bench), [1], "each work request is returned once");
    assert_eq!(qp.in_flight(), (1, 0));

    let back = other.destroy().unwrap();
    forge(&bench.cq, of_other);
    assert!(polled(&bench).is_empty(), "its queue is gone");
    assert_eq!(back.len(), 1);
    complete(1);
    assert_eq!(polled(&bench), [2]);
}

/// Checks one work request, one with a list of buffers, and lists of work requests: none takes the
/// lock.
#[test]
fn who_has_a_queue_pair_for_himself_takes_no_lock() {
    let bench = Bench::new(16);
    let mut qp = bench.queue_pair(4);
    let (mut slice, _watch) = bench.memory();
    let [one, two, three, four] = [(); 4].map(|()| slice.split_to(8));
    let mut list: Vec<_> = [one, two].map(SendRequest::send).into();
    qp.lock_for_good();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        qp.post_send_list_mut(&mut list).unwrap();
        qp.post_send_mut(SendRequest::send(Buffers::List(vec![three.into()]))).unwrap();
        qp.post_send_mut(SendRequest::send(four)).unwrap();
        let _ = done.send((qp.in_flight(), list.len(), qp));
    });
    let posted = is_done.recv_timeout(std::time::Duration::from_secs(30));
    let (in_flight, left, _qp) = posted.expect("it waits for the lock");
    assert_eq!((in_flight, left), ((4, 0), 0));
}

#[test]
fn a_full_queue_hands_back_what_does_not_fit() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(3);
    let (mut slice, _watch) = bench.memory();
    let mut sends: Vec<_> = (0..5).map(|tag| SendRequest::send(slice.split_to(8)).tag(tag)).collect();
    assert!(matches!(qp.post_send_list(&mut sends), Err(Refusal::QueueFull { depth: 3 })));
    assert_eq!((sends.len(), held()), (2, 3));
    let error = qp.post_send(sends.remove(0)).unwrap_err();
    assert!(matches!(error.reason, Refusal::QueueFull { depth: 3 }) && error.request.buffers().len() == 8);
    complete(1);
    assert_eq!(polled(&bench), [0]);
    qp.post_send(error.request).unwrap();
    assert_eq!(qp.in_flight(), (3, 0));
}

/// The device writes each completion into an entry of the completion queue: an overflow would lose
/// some.
#[test]
fn no_more_can_be_in_flight_than_the_completion_queue_holds() {
    let bench = Bench::new(16);
    let first = bench.queue_pair(6);
    let live = count("table_live");
    let refused = bench.builder(3).build(&bench.pd).unwrap_err();
    assert_eq!(refused, Error::Overcommitted { subject: "table0".to_owned(), depth: 16, needed: 18 });
    assert_eq!(count("table_live"), live, "the refused queue pair is destroyed");
    let second = bench.queue_pair(2);
    assert!(matches!(bench.cq.resize(15), Err(Error::Overcommitted { depth: 15, needed: 16, .. })));
    drop(first);
    assert_eq!(second.destroy().unwrap().len(), 0);
    bench.queue_pair(8);
}

/// Its work requests may still complete, and need that room.
#[test]
fn a_queue_pair_that_is_not_destroyed_keeps_its_room_in_the_completion_queue() {
    let _leaking = leaking();
    let bench = Bench::new(16);
    let qp = bench.queue_pair(6);
    let (slice, watch) = bench.memory();
    qp.post_send(SendRequest::send(slice).tag(1)).unwrap();
    refusing_destroy(|| drop(qp));
    let refused = bench.builder(3).build(&bench.pd).unwrap_err();
    assert!(matches!(refused, Error::Overcommitted { depth: 16, needed: 18, .. }), "{refused}");
    assert!(watch.is_kept());
    complete(1);
    assert_eq!(polled(&bench), [1], "a completion proves that the device is done");
    assert!(!watch.is_kept());
}

#[test]
fn the_place_of_a_completion_in_the_hand_is_not_used_again() {
    let bench = Bench::new(16);
    let qp = bench.queue_pair(2);
    let (mut slice, _watch) = bench.memory();
    let mut post = |qp: &QueuePair, tag| {
        qp.post_send(SendRequest::send(slice.split_to(8)).tag(tag)).map_err(|error| error.reason)
    };
    post(&qp, 1).unwrap();
    post(&qp, 2).unwrap();
    complete(2);
    let mut poller = bench.cq.poller();
    let mut hand: Vec<_> = poller.poll().unwrap().collect();
    assert_eq!(qp.in_flight(), (0, 0));
    assert!(matches!(post(&qp, 3).unwrap_err(), Refusal::QueueFull { .. }), "both are still in use");
    assert_eq!(hand.remove(0).into_buffers().len(), 8);
    post(&qp, 3).unwrap();
    assert!(matches!(post(&qp, 4).unwrap_err(), Refusal::QueueFull { .. }));
    assert_eq!((hand[0].tag(), hand.remove(0).into_buffers().len()), (2, 8));
    post(&qp, 4).unwrap();
}

/// The queue is in memory that the poller shares with the queue pair.
#[test]
fn a_completion_in_the_hand_outlives_its_queue_pair() {
    let bench = Bench::new(16);
    let (qp, other) = (bench.queue_pair(2), bench.queue_pair(2));
    let (mut slice, watch) = bench.memory();
    qp.post_send(SendRequest::send(slice.split_to(8)).tag(1)).unwrap();
    qp.post_send(SendRequest::send(slice.split_to(16)).tag(2)).unwrap();
    other.post_send(SendRequest::send(slice).tag(3)).unwrap();
    complete(3);
    forge(&bench.cq, u64::MAX);
    let mut poller = bench.cq.poller();
    let mut completions = poller.poll().unwrap();
    let in_hand = completions.next().unwrap();
    let back = qp.destroy().unwrap();
    assert_eq!(back.iter().map(|buffers| buffers.len()).collect::<Vec<_>>(), [16], "one is still in use");
    // The forged completion causes a new lookup of the queues, in which this one is gone.
    let rest: Vec<_> = completions.map(|completion| completion.tag()).collect();
    // Overwrites memory that was freed.
    let _others: Vec<_> = (16..2048).step_by(16).map(|len| vec![0xAA_u8; len]).collect();
    assert_eq!((rest, in_hand.tag()), (vec![3], 1));
    drop(back);
    assert!(watch.is_kept());
    assert_eq!(in_hand.into_buffers().len(), 8);
    assert!(!watch.is_kept());
}

#[test]
fn a_shared_queue_gives_each_buffer_back_once_and_keeps_the_others() {
    let bench = Bench::new(16);
    let srq = bench.pd.create_srq(2, 1).unwrap();
    let qp = bench.ready(&bench.builder(2).srq(&srq));
    let ((first, of_first), (second, of_second)) = (bench.memory(), bench.memory());
    srq.post_recv(RecvRequest::new(first).tag(1)).unwrap();
    let first = last_id();
    srq.post_recv(RecvRequest::new(second).tag(2)).unwrap();
    complete(1);
    forge(&bench.cq, first);
    forge(&bench.cq, first + 2);
    assert_eq!(polled(&bench), [1]);
    assert!(!of_first.is_kept() && of_second.is_kept());
    drop((qp, srq, bench));
    assert!(!of_second.is_kept(), "it was destroyed");
}

#[test]
fn a_datagram_in_flight_keeps_its_address_handle() {
    let bench = Bench::new(16);
    let qp = bench.ready(&bench.builder_of(QueuePairType::Ud, 2));
    let ah = bench.pd.create_ah(&AddressAttributes::to_gid(1, "fe80::1".parse().unwrap())).unwrap();
    let (slice, _watch) = bench.memory();
    qp.post_send(SendRequest::send(slice).to(&ah, 5, 6)).unwrap();
    let live = count("table_live");
    drop(ah);
    assert_eq!(count("table_live"), live);
    complete(1);
    assert_eq!(polled(&bench).len(), 1);
    assert_eq!(count("table_live"), live - 2, "the handle, and the region of the buffer");
}

/// The effect of a flag that an operation does not support is undefined, so the device must never
/// get one, by any way of posting.
#[test]
fn flags_that_an_operation_does_not_take_are_refused() {
    let bench = Bench::new(64);
    let qp = bench.queue_pair(8);
    let uc = bench.ready(&bench.builder_of(QueuePairType::Uc, 8));
    let remote = RemoteRange::new(0x1000, 8, RemoteKey(1));
    let word = || bench.memory().0.split_to(8);
    let refused: [(&QueuePair, SendRequest); 9] = [
        (&qp, SendRequest::read(word(), remote).inline()),
        (&qp, SendRequest::read(word(), remote).solicited()),
        (&qp, SendRequest::compare_swap(word(), remote, 1, 2).inline()),
        (&qp, SendRequest::fetch_add(word(), remote, 1).inline()),
        (&qp, SendRequest::write(word(), remote).solicited()),
        (&qp, SendRequest::local_invalidate(RemoteKey(1)).inline()),
        (&qp, SendRequest::atomic_write(remote, 1).inline()),
        (&uc, SendRequest::write(word(), remote).fenced()),
        (&uc, SendRequest::send(word()).fenced()),
    ];
    for (qp, request) in refused {
        let error = qp.post_send(request).unwrap_err();
        assert!(matches!(error.reason, Refusal::Flag { .. }), "{error}");
        let mut list = vec![error.request];
        assert!(matches!(qp.post_send_list(&mut list), Err(Refusal::Flag { .. })));
        assert_eq!(list.len(), 1);
    }
    let beyond_unreliable = [
        SendRequest::read(word(), remote),
        SendRequest::fetch_add(word(), remote, 1),
        SendRequest::send_invalidate(word(), RemoteKey(1)),
    ];
    for request in beyond_unreliable {
        let error = uc.post_send(request).unwrap_err();
        assert!(matches!(error.reason, Refusal::Unsupported(_)), "{error}");
    }
    assert_eq!(held(), 0);
    let region = Arc::new(bench.pd.expose(bench.memory().0, AccessFlags::MW_BIND).unwrap());
    let window = bench.pd.alloc_mw(WindowType::Two).unwrap();
    let request = SendRequest::bind(&window, &region, 0..8, AccessFlags::REMOTE_WRITE).inline();
    assert!(matches!(qp.post_send(request).unwrap_err().reason, Refusal::Flag { .. }));
    assert_eq!(held(), 0);
}
