//! Requests, beyond the contract of every rail.

use farreach::rails::fabric::FabricSettings;
use farreach_memory::Buffers;
use farreach_rail::{Extent, Rail, Refusal, RemoteSegments, WorkRequest};
use farreach_sim::request::{Refused, post};
use farreach_testkit::{pattern, wait_for};

use super::pair::{A, B, Pair, Place, Seen, write};

const IMMEDIATE: u32 = 0xfa77_eac4;

/// While the peer does not poll, no operation completes.
pub(crate) fn what_is_done_is_there_though_nobody_polls(place: &Place) {
    let mut pair = Pair::open(place);
    let granted = pair.expose(B, 1 << 20);
    for (tag, (len, immediate)) in [8, 64, 4096, 4097, 20_000, 300_000]
        .into_iter()
        .flat_map(|len| [(len, None), (len, Some(IMMEDIATE))])
        .enumerate()
    {
        let data = pattern(1 + tag as u8, len);
        let slice = pair.slice(A, &data);
        pair.post(A, tag as u64, write(slice, granted.target(7, len as u64), immediate));
        (0..2000).for_each(|_| pair.poll(A));
        assert!(pair.seen[A].is_empty(), "{len} bytes, {immediate:?}");
        if immediate.is_some() {
            assert_eq!(pair.immediate(B), IMMEDIATE);
        }
        pair.done(A, tag as u64);
        assert_eq!(granted.copy(7, len), data, "{len} bytes are there");
    }
    pair.assert_quiet();
}

/// Four pages in three pieces here and scattered at the target, so that their boundaries differ.
pub(crate) fn a_write_of_several_pieces_fills_several_targets(place: &Place) {
    let mut pair = Pair::open(place);
    let limits = pair.rails[A].properties().limits;
    let count = limits.pieces.min(3);
    let granted = pair.expose(B, 65_536);
    let data = pattern(9, 16_384);
    let shared = pair.slice(A, &data).share();
    let piece = |number: usize| shared.get(number * 16_384 / count..(number + 1) * 16_384 / count);
    let pieces = Buffers::List((0..count).map(|number| piece(number).unwrap().into()).collect());
    let offsets = [60_000, 0, 30_001, 9000];
    let extents = offsets.map(|offset| Extent { offset, len: 4096 });
    let targets = RemoteSegments::new(granted.key.address, granted.key.key, &extents).unwrap();
    let request = (WorkRequest::WriteScattered { targets, immediate: Some(7) }, pieces);
    if limits.targets < offsets.len() {
        let Refused { reason, request } = post(&mut pair.rails[A], pair.links[A], 2, request).unwrap_err();
        assert!(matches!(reason, Refusal::Never(_)), "{reason:?}");
        assert_eq!(request.1.count(), count, "{request:?}");
    } else {
        pair.post(A, 2, request);
        assert_eq!(pair.immediate(B), 7);
        for (number, offset) in offsets.into_iter().enumerate() {
            assert_eq!(granted.copy(offset as usize, 4096), data[4096 * number..4096 * (number + 1)]);
        }
        assert_eq!(pair.done(A, 2).len(), data.len());
    }
    pair.assert_quiet();
    assert_eq!(shared.try_unshare().unwrap()[..], data, "all pieces came back");
}

/// Several writes, of which the last one has an immediate. When it arrives, all bytes are there if
/// the rail keeps the order, and otherwise those of the last write.
pub(crate) fn an_immediate_comes_behind_what_it_counts(place: &Place) {
    const ROUNDS: usize = 300;
    // Shorter and longer than what a library sends eagerly.
    const LENS: [usize; 4] = [20_000, 64, 70_000, 4096];
    let mut pair = Pair::open(place);
    let is_ordered = pair.rails[A].properties().limits.is_ordered;
    let round_len = LENS.iter().sum::<usize>();
    let granted = pair.expose(B, 8 * round_len);
    let sources: Vec<_> = (0..8).map(|seed| pair.slice(A, &pattern(seed, round_len)).share()).collect();
    let (mut told, mut posted, mut done) = (0, 0, 0);
    let mut check = |pair: &mut Pair, posted: usize| {
        pair.progress();
        for seen in pair.seen[A].drain(..) {
            let Seen::Completed { outcome: Ok(()), .. } = seen else { panic!("{seen:?}") };
            done += 1;
        }
        for seen in pair.seen[B].drain(..) {
            let Seen::Immediate(round) = seen else { panic!("{seen:?}") };
            let round = round as usize;
            assert!(!is_ordered || round == told, "{round} after {told}");
            let (start, expected) = ((round % 8) * round_len, pattern((round % 8) as u8, round_len));
            let from = if is_ordered { 0 } else { round_len - LENS[3] };
            assert!(
                granted.copy(start + from, round_len - from) == expected[from..],
                "round {round} was told early"
            );
            // The next round must not find data of this one.
            granted.memory.write_at(start, &vec![0; round_len]);
            told += 1;
        }
        (told, posted == done)
    };
    for round in 0..ROUNDS {
        // Waits until the place of this round is free.
        wait_for("room in the region", || (round < check(&mut pair, posted).0 + 8).then_some(()));
        let mut offset = 0;
        for (number, len) in LENS.into_iter().enumerate() {
            let start = ((round % 8) * round_len + offset) as u64;
            let pieces = sources[round % 8].get(offset..offset + len).unwrap().into();
            let immediate = (number == LENS.len() - 1).then_some(round as u32);
            let mut waiting =
                Some((WorkRequest::Write { target: granted.target(start, len as u64), immediate }, pieces));
            wait_for("room", || {
                let request = waiting.take().expect("it was handed back");
                let Err(refused) = post(&mut pair.rails[A], pair.links[A], 0, request) else {
                    return Some(());
                };
                assert!(matches!(refused.reason, Refusal::Full), "{:?}", refused.reason);
                waiting = Some(refused.request);
                check(&mut pair, posted);
                None
            });
            posted += 1;
            offset += len;
        }
    }
    wait_for("all immediates", || (check(&mut pair, posted) == (ROUNDS, true)).then_some(()));
    pair.assert_quiet();
}

pub(crate) fn a_read_gathers_several_ranges(place: &Place) {
    let mut pair = Pair::open(place);
    let granted = pair.expose(B, 40_000);
    let data = pattern(5, 40_000);
    granted.memory.write_at(0, &data);
    if pair.rails[A].properties().limits.targets >= 2 {
        let lent = pair.slice(A, &[0; 8192]).lend();
        let extents = [Extent { offset: 20_000, len: 5000 }, Extent { offset: 0, len: 3192 }];
        let targets = RemoteSegments::new(granted.key.address, granted.key.key, &extents).unwrap();
        pair.post(A, 3, (WorkRequest::ReadGathered { targets }, lent.clone().into()));
        drop(pair.done(A, 3));
        assert_eq!(lent.try_reclaim().unwrap()[..], [&data[20_000..25_000], &data[..3192]].concat());
    }

    // Shared memory must not be the target of a read.
    let shared = pair.slice(A, &[0; 64]).share();
    let request = (WorkRequest::Read { target: granted.target(0, 64) }, shared.into());
    let refused = post(&mut pair.rails[A], pair.links[A], 4, request).unwrap_err();
    let Refusal::Never(error) = refused.reason else { panic!("{:?}", refused.reason) };
    assert!(error.cause.contains("shared") && !error.fix.is_empty(), "{error:?}");
    pair.assert_quiet();
}

pub(crate) fn a_full_rail_hands_the_request_back(place: &Place) {
    let settings = FabricSettings { transmit_depth: 4, ..FabricSettings::default() };
    let mut pair = Pair::open_with(place, &settings);
    assert_eq!(pair.rails[A].properties().window, 4);
    let granted = pair.expose(B, 4096);
    // Nothing is polled, so the queue fills up. A connection that is not established yet may also
    // be the reason.
    let (mut tag, mut posted) = (0, 0);
    let request = loop {
        let slice = pair.slice(A, &pattern(tag as u8, 64));
        match post(&mut pair.rails[A], pair.links[A], tag, write(slice, granted.target(0, 64), Some(1))) {
            Ok(()) => posted += 1,
            Err(Refused { reason: Refusal::Full, request }) => break request,
            Err(refused) => panic!("{:?}", refused.reason),
        }
        tag += 1;
    };
    assert!(posted <= 4 && pair.rails[A].in_flight() == posted);
    assert_eq!(request.1.as_slice()[0].bytes().unwrap(), pattern(tag as u8, 64));

    // There is room later.
    pair.post(A, 99, request);
    let (mut tags, mut immediates) = (Vec::new(), 0);
    wait_for("all of them", || {
        pair.progress();
        for seen in pair.seen[A].drain(..) {
            let Seen::Completed { tag, outcome: Ok(()), .. } = seen else { panic!("{seen:?}") };
            tags.push(tag);
        }
        immediates += pair.seen[B].drain(..).filter(|seen| matches!(seen, Seen::Immediate(1))).count();
        (tags.len() == posted + 1 && immediates == posted + 1).then_some(())
    });
    tags.sort_unstable();
    assert_eq!(tags, (0..posted as u64).chain([99]).collect::<Vec<_>>());
    pair.assert_quiet();
}

pub(crate) fn what_can_never_be_done_is_handed_back_with_a_reason(place: &Place) {
    let mut pair = Pair::open(place);
    let granted = pair.expose(B, 4096);
    let properties = pair.rails[A].properties().clone();
    let pieces = |pair: &mut Pair, count: usize| {
        Buffers::List((0..count).map(|_| pair.slice(A, &[1; 8]).into()).collect())
    };
    let slice = |pair: &mut Pair, len: usize| -> Buffers { pair.slice(A, &vec![1; len]).into() };
    let target = granted.target(0, 64);
    let too_many = pieces(&mut pair, properties.limits.pieces + 1);
    let two_words = pieces(&mut pair, 2);
    let nowhere = RemoteSegments::new(0, 1, &[]).unwrap();
    let requests = [
        (WorkRequest::Write { target, immediate: None }, slice(&mut pair, 65)),
        (WorkRequest::Write { target: granted.target(0, 4096), immediate: None }, too_many),
        (WorkRequest::WriteScattered { targets: nowhere, immediate: None }, slice(&mut pair, 8)),
        (WorkRequest::ReadGathered { targets: nowhere }, Buffers::None),
        (WorkRequest::Read { target }, slice(&mut pair, 65)),
        (WorkRequest::Send, slice(&mut pair, properties.message_max + 1)),
        (WorkRequest::FetchAdd { target: granted.target(0, 8), add: 1 }, two_words),
    ];
    for request in requests {
        let before = format!("{request:?}");
        let refused = post(&mut pair.rails[A], pair.links[A], 1, request).expect_err(&before);
        let Refusal::Never(error) = refused.reason else { panic!("{before}: {:?}", refused.reason) };
        assert!(!error.operation.is_empty() && !error.cause.is_empty() && !error.fix.is_empty());
        assert_eq!(format!("{:?}", refused.request), before, "it is handed back whole");
    }
    // The link works as before.
    pair.post(A, 2, granted.immediate(5));
    assert_eq!(pair.immediate(B), 5);
    pair.done(A, 2);
    pair.assert_quiet();
}
