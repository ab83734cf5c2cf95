//! Every kind of request, by its effect on memory.

use std::sync::atomic::Ordering;

use farreach::{Buffer, Memory, Rights};
use farreach_memory::Buffers;
use farreach_rail::{Rail, Refusal, RemoteSegment, WorkRequest};
use farreach_sim::request::Request;
use farreach_testkit::{on_host_a, pattern};

use crate::rails_verbs::pair::{Pair, tell, write, write_and_tell};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_write_lands_and_its_buffer_comes_back() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let granted = pair.b.granted(3, 4096);
        let page = pair.a.filled(4, 500);
        pair.a.post(7, write(page, granted.part(1000, 500)));
        assert_eq!(pair.a.rail.in_flight(), 1);
        let done = pair.well_done();
        assert_eq!(done.tag, 7);
        assert_eq!(*done.buffers.into_slice().unwrap(), *pattern(4, 500));
        let mut expected = pattern(3, 4096);
        expected[1000..1500].copy_from_slice(&pattern(4, 500));
        assert_eq!(granted.bytes(), expected, "it was delivered before it was done");
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn an_immediate_comes_after_the_bytes_of_all_writes_before_it() {
    on_host_a(|| {
        let mut pair = Pair::new();
        // Each write has several packets.
        let granted = pair.b.granted(0, 8 * 5000);
        for round in 0..10 {
            for page in 0..8 {
                let (slice, target) =
                    (pair.a.filled(round + page, 5000), granted.part(u64::from(page) * 5000, 5000));
                pair.a.post(
                    page.into(),
                    match page {
                        7 => write_and_tell(slice, target, 1000 + u32::from(round)),
                        _ => write(slice, target),
                    },
                );
            }
            assert_eq!(pair.immediate(), (pair.b.link, 1000 + u32::from(round)));
            let expected: Vec<u8> = (0..8).flat_map(|page| pattern(round + page, 5000)).collect();
            assert!(granted.bytes() == expected, "round {round}");
            for tag in 0..8 {
                assert_eq!(pair.well_done().tag, tag);
            }
        }
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_write_without_bytes_tells_the_peer_all_the_same() {
    on_host_a(|| {
        let mut pair = Pair::new();
        for immediate in [0, 7, u32::MAX] {
            pair.a.post(immediate.into(), tell(immediate));
            assert_eq!(pair.immediate(), (pair.b.link, immediate));
            let done = pair.well_done();
            assert_eq!((done.tag, done.buffers.count()), (immediate.into(), 0));
        }
        // Without an immediate, nothing happens.
        let granted = pair.b.granted(3, 64);
        pair.a.post(
            1,
            (
                WorkRequest::Write { target: RemoteSegment { address: 0, key: 0, len: 0 }, immediate: None },
                Buffers::None,
            ),
        );
        pair.a.post(2, write(Buffers::List(Vec::new()), granted.part(8, 0)));
        assert_eq!((pair.well_done().tag, pair.well_done().tag), (1, 2));
        assert_eq!(granted.bytes(), pattern(3, 64));
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn many_pieces_are_written_as_one_range_and_no_more_than_there_may_be() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let limit = pair.a.rail.properties().limits.pieces;
        assert_eq!(limit, 16);
        let granted = pair.b.granted(0, limit * 100);
        let mut pieces = |count: usize| -> Buffers {
            let mut whole = pair.a.filled(5, count * 100);
            let mut pieces: Vec<Buffer> = (0..count).map(|_| whole.split_to(100).into()).collect();
            pieces.reverse();
            pieces.into()
        };
        let (most, too_many) = (pieces(limit), pieces(limit + 1));
        pair.a.post(1, write(most, granted.part(0, limit as u64 * 100)));
        let back = pair.well_done().buffers;
        assert_eq!(back.count(), limit, "each comes back");
        let expected: Vec<u8> = pattern(5, limit * 100).chunks(100).rev().flatten().copied().collect();
        assert_eq!(granted.bytes(), expected);

        let refused = pair.a.refused(write(too_many, granted.part(0, limit as u64 * 100)));
        let Refusal::Never(reason) = refused.reason else { panic!("{refused:?}") };
        assert!(reason.cause.contains("17 buffers"), "{reason}");
        let (_, pieces) = refused.request;
        assert_eq!((pieces.count(), pieces.len()), (limit + 1, (limit + 1) * 100));
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_slice_is_read_into_in_parts() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let granted = pair.b.granted(6, 4096);
        let lent = pair.a.filled(0, 4096).lend();
        let part = |index: usize| Buffer::from(lent.get(index * 1024..(index + 1) * 1024).unwrap());
        pair.a.post(0, (WorkRequest::Read { target: granted.part(0, 2048) }, vec![part(3), part(0)].into()));
        pair.a.post(1, (WorkRequest::Read { target: granted.part(2048, 1024) }, part(1).into()));
        pair.a.post(2, (WorkRequest::Read { target: granted.part(3072, 1024) }, part(2).into()));
        for tag in 0..3 {
            let done = pair.well_done();
            assert_eq!(done.tag, tag);
            drop(done.buffers);
        }
        let read = lent.try_reclaim().expect("every part is back");
        let bytes = pattern(6, 4096);
        assert_eq!(*read, *[&bytes[1024..2048], &bytes[2048..3072], &bytes[3072..], &bytes[..1024]].concat());
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn atomics_change_the_word_and_tell_what_was_there() {
    on_host_a(|| {
        let mut pair = Pair::new();
        assert!(pair.a.rail.properties().has_atomics);
        let granted = pair.b.granted(0, 64);
        let (word, target) = (|| granted.memory.atomic_at(8), granted.part(8, 8));
        word().store(40, Ordering::Relaxed);
        let mut was = |request: fn(Buffers, RemoteSegment) -> Request<'static>| {
            let into = pair.a.filled(0, 8).into();
            pair.a.post(1, request(into, target));
            u64::from_ne_bytes((*pair.well_done().buffers.into_slice().unwrap()).try_into().unwrap())
        };
        assert_eq!(was(|into, target| (WorkRequest::FetchAdd { target, add: 2 }, into)), 40);
        let swap = |into, target| (WorkRequest::CompareSwap { target, expected: 41, desired: 9 }, into);
        assert_eq!(was(swap), 42, "not as expected: unchanged");
        let swap = |into, target| (WorkRequest::CompareSwap { target, expected: 42, desired: 7 }, into);
        assert_eq!(was(swap), 42);
        assert_eq!(word().load(Ordering::Relaxed), 7);

        let two = vec![pair.a.filled(0, 4).into(), pair.a.filled(0, 4).into()];
        let refused = pair.a.refused((WorkRequest::FetchAdd { target, add: 1 }, two.into()));
        assert!(matches!(refused.reason, Refusal::Never(_)), "{refused:?}");
        let (_, into) = refused.request;
        assert_eq!(into.count(), 2);
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_full_link_hands_the_request_back_and_takes_it_later() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let granted = pair.b.granted(0, 64);
        let window = u64::from(pair.a.rail.properties().window);
        for tag in 0..window {
            let slice = pair.a.filled(0, 8);
            pair.a.post(tag, write(slice, granted.part(0, 8)));
        }
        let slice = pair.a.filled(9, 8);
        let refused = pair.a.refused(write_and_tell(slice, granted.part(8, 8), 5));
        assert!(matches!(refused.reason, Refusal::Full), "{refused:?}");
        assert_eq!(pair.a.rail.in_flight(), window as usize);
        assert_eq!(pair.well_done().tag, 0);
        pair.a.post(window, refused.request);
        for tag in 1..=window {
            assert_eq!(pair.well_done().tag, tag);
        }
        assert_eq!(pair.immediate(), (pair.b.link, 5));
        assert_eq!(granted.bytes()[8..16], pattern(9, 8));
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_cannot_work_is_refused_whole_before_the_card_sees_it() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let granted = pair.b.granted(3, 64);
        let (long, slice) = (pair.a.filled(0, 65), pair.a.filled(0, 8));
        let shared = pair.a.filled(0, 8).share();
        let word = granted.part(0, 8);
        let strange = RemoteSegment { key: word.key | 1 << 40, ..word };
        let cases = [
            (write(Memory::allocate(8).unwrap(), word), "not registered"),
            (write(long, granted.part(0, 64)), "do not fit"),
            ((WorkRequest::Read { target: word }, shared.into()), "shared"),
            (write(slice, strange), "more than 32 bits"),
        ];
        for (request, expected) in cases {
            let refused = pair.a.refused(request);
            let Refusal::Never(reason) = refused.reason else { panic!("{refused:?}") };
            assert!(reason.cause.contains(expected) && !reason.fix.is_empty(), "{reason}");
            let (_, pieces) = refused.request;
            assert_eq!(pieces.count(), 1, "it is handed back whole");
        }
        assert_eq!(granted.bytes(), pattern(3, 64));
        // The link works as before.
        let slice = pair.a.filled(4, 64);
        pair.a.post(1, write(slice, granted.part(0, 64)));
        pair.well_done();
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_key_gives_no_more_rights_than_it_was_made_for() {
    on_host_a(|| {
        for (rights, is_write_allowed) in [(Rights::READ, false), (Rights::WRITE, true)] {
            let mut pair = Pair::new();
            let slice = pair.b.filled(3, 64);
            let granted = pair.b.grant(slice, rights);
            let (source, into) = (pair.a.filled(4, 64), pair.a.filled(5, 64));
            let requests = [
                write(source, granted.part(0, 64)),
                (WorkRequest::Read { target: granted.part(0, 64) }, into.into()),
            ];
            let mut outcomes = Vec::new();
            // A request that is not allowed ends the link, so the allowed one goes first.
            let (first, second) = if is_write_allowed { (0, 1) } else { (1, 0) };
            let mut requests = requests.map(Some);
            for index in [first, second] {
                pair.a.post(index as u64, requests[index].take().unwrap());
                outcomes.push(pair.done().outcome);
            }
            assert_eq!(outcomes[0], Ok(()));
            let denied = outcomes.remove(1).unwrap_err();
            assert!(denied.cause.contains("remote access error"), "{denied}");
            let expected = if is_write_allowed { pattern(4, 64) } else { pattern(3, 64) };
            assert_eq!(granted.bytes(), expected);
            pair.finish();
        }
    });
}
