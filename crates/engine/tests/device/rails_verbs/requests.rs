//! Requests: the contract of every rail, and more.

use farreach::rails::verbs::{VerbsRail, VerbsSettings};
use farreach::{Buffer, Memory, Rights};
use farreach_memory::Buffers;
use farreach_rail::{Rail, Refusal, RemoteSegment, WorkRequest};
use farreach_testkit::{on_host_a, pattern};

use crate::contract;
use crate::rails_verbs::pair::{Pair, own_rail, tell, write, write_and_tell};

contract::contract! { [#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]] over_the_device }

/// Calls a part of the contract. More messages come than there are receive buffers.
fn over_the_device(part: fn(contract::pair::Pair<VerbsRail>)) {
    on_host_a(|| {
        let (port, settings) = (own_rail(), VerbsSettings { receives: 4, ..Default::default() });
        let open = || VerbsRail::open(&port, &settings).expect("the rail opens");
        part(contract::pair::Pair::new([open(), open()], || {}));
        assert_eq!(farreach_memory::leaked_bytes(), 0);
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
        let limit = pair.a.rail.properties().limits.pieces;
        assert_eq!(limit, 16);
        let mut pieces = |count: usize| -> Buffers {
            (0..count).map(|_| pair.a.filled(5, 4).into()).collect::<Vec<Buffer>>().into()
        };
        let (too_many, two) = (pieces(limit + 1), pieces(2));
        let cases = [
            (write(too_many, granted.part(0, 64)), "17 buffers"),
            ((WorkRequest::FetchAdd { target: word, add: 1 }, two), ""),
            (write(Memory::allocate(8).unwrap(), word), "not registered"),
            (write(long, granted.part(0, 64)), "do not fit"),
            ((WorkRequest::Read { target: word }, shared.into()), "shared"),
            (write(slice, strange), "more than 32 bits"),
        ];
        for (request, expected) in cases {
            let count = request.1.count();
            let refused = pair.a.refused(request);
            let Refusal::Never(reason) = refused.reason else { panic!("{refused:?}") };
            assert!(reason.cause.contains(expected) && !reason.fix.is_empty(), "{reason}");
            let (_, pieces) = refused.request;
            assert_eq!(pieces.count(), count, "it is handed back whole");
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
