//! Every kind of request, by its effect on memory.

use farreach_memory::{Buffer, Buffers};
use farreach_rail::{Proof, Rail, Refusal, WorkRequest};
use farreach_sim::request::{Request, post};
use farreach_testkit::pattern;

use super::pair::{A, B, Pair, Seen, write};

const IMMEDIATE: u32 = 0xfa77_eac4;

pub(crate) fn a_write_lands_and_its_immediate_is_told<R: Rail>(mut pair: Pair<R>) {
    let proof = pair.rails[A].properties().writes_prove;
    let granted = pair.expose(B, 65_536);
    for (tag, len, immediate) in
        [(1, 64, None), (2, 40_000, Some(IMMEDIATE)), (3, 4096, Some(0)), (4, 50_000, None)]
    {
        let data = pattern(tag as u8, len);
        let slice = pair.slice(A, &data);
        pair.post(A, tag, write(slice, granted.target(100, len as u64), immediate));
        assert_eq!(pair.rails[A].in_flight(), 1);
        if let Some(immediate) = immediate {
            assert_eq!(pair.immediate(B), immediate);
            assert_eq!(granted.copy(100, len), data, "the bytes are there when it is told");
        }
        assert_eq!(pair.done(A, tag).into_slice().unwrap()[..], data);
        if proof == Proof::Delivered {
            assert_eq!(granted.copy(100, len), data, "a completed write is delivered");
        }
        pair.assert_quiet();
        assert_eq!(granted.copy(100, len), data);
    }
    assert_eq!(granted.copy(0, 100), [0; 100]);
}

pub(crate) fn a_write_without_bytes_tells_its_immediate<R: Rail>(mut pair: Pair<R>) {
    let granted = [A, B].map(|side| pair.expose(side, 64));
    for (tag, from, to) in [(1, A, B), (2, A, B), (3, B, A)] {
        for immediate in [0, IMMEDIATE + tag as u32, u32::MAX] {
            pair.post(from, tag, granted[to].immediate(immediate));
            assert_eq!(pair.immediate(to), immediate);
            assert!(pair.done(from, tag).is_empty());
        }
    }
    pair.assert_quiet();
}

/// The target is one range, whose boundaries are not those of the pieces.
pub(crate) fn several_pieces_are_written_as_one_range_up_to_the_limit<R: Rail>(mut pair: Pair<R>) {
    let limit = pair.rails[A].properties().limits.pieces;
    let granted = pair.expose(B, 65_536);
    let data = pattern(9, 16_384);
    let shared = pair.slice(A, &data).share();
    let pieces = |count: usize| {
        let piece = |number: usize| shared.get(number * 16_384 / count..(number + 1) * 16_384 / count);
        Buffers::List((0..count).map(|number| piece(number).unwrap().into()).collect())
    };
    let target = granted.target(4096, 16_384);
    let request = |count| (WorkRequest::Write { target, immediate: Some(IMMEDIATE) }, pieces(count));
    pair.post(A, 1, request(limit));
    assert_eq!(pair.immediate(B), IMMEDIATE);
    assert_eq!(granted.copy(4096, 16_384), data);
    assert_eq!(pair.done(A, 1).count(), limit, "each comes back");
    assert_never(&mut pair, request(limit + 1));
    pair.assert_quiet();
    assert_eq!(shared.try_unshare().unwrap()[..], data, "all pieces came back");
}

pub(crate) fn a_read_fills_lent_parts<R: Rail>(mut pair: Pair<R>) {
    let has_pieces = pair.rails[A].properties().limits.pieces > 1;
    let granted = pair.expose(B, 40_000);
    let data = pattern(5, 40_000);
    granted.memory.write_at(0, &data);
    let lent = pair.slice(A, &[0; 40_000]).lend();
    let part = |start: usize, end: usize| lent.get(start..end).unwrap();
    // Two requests in flight at once.
    for (tag, start) in [(0, 0), (1, 20_000)] {
        let parts = match has_pieces {
            true => vec![part(start, start + 5), part(start + 5, start + 20_000)],
            false => vec![part(start, start + 20_000)],
        };
        let read = WorkRequest::Read { target: granted.target(start as u64, 20_000) };
        pair.post(A, tag, (read, Buffers::of_lent(parts)));
    }
    let mut tags: Vec<_> =
        (0..2).map(|_| pair.completed(A)).map(|(tag, _, outcome)| (tag, outcome.is_ok())).collect();
    tags.sort_unstable();
    assert_eq!(tags, [(0, true), (1, true)]);
    assert_eq!(lent.try_reclaim().expect("both are back")[..], data);
    pair.assert_quiet();
}

pub(crate) fn atomics_are_there_where_the_rail_says_so<R: Rail>(mut pair: Pair<R>) {
    let granted = pair.expose(B, 4096);
    granted.memory.write_at(64, &40_u64.to_ne_bytes());
    let target = granted.target(64, 8);
    let into = |pair: &mut Pair<R>| Buffers::from(pair.slice(A, &[0; 8]));
    let request = (WorkRequest::FetchAdd { target, add: 2 }, into(&mut pair));
    if !pair.rails[A].properties().has_atomics {
        return assert_never(&mut pair, request);
    }
    let word = |buffers: Buffers| u64::from_ne_bytes(buffers.into_slice().unwrap()[..].try_into().unwrap());
    pair.post(A, 1, request);
    assert_eq!(word(pair.done(A, 1)), 40);
    for (expected, found, left) in [(41, 42, 42), (42, 42, 7)] {
        let request = (WorkRequest::CompareSwap { target, expected, desired: 7 }, into(&mut pair));
        pair.post(A, 2, request);
        assert_eq!(word(pair.done(A, 2)), found);
        assert_eq!(granted.copy(64, 8), u64::to_ne_bytes(left));
    }
    pair.assert_quiet();
}

pub(crate) fn messages_go_both_ways_and_not_beyond_their_longest<R: Rail>(mut pair: Pair<R>) {
    let message_max = pair.rails[A].properties().message_max;
    let has_pieces = pair.rails[A].properties().limits.pieces > 1;
    for round in 0..10_u64 {
        let len = [0, 1, 100, message_max - 1, message_max][round as usize % 5];
        for (from, to) in [(A, B), (B, A)] {
            let data = pattern(round as u8, len);
            let pieces = match len {
                0 => Buffers::None,
                _ => pair.slice(from, &data).into(),
            };
            pair.post(from, round, (WorkRequest::Send, pieces));
            assert_eq!(pair.message(to), data);
            assert_eq!(pair.done(from, round).len(), len);
        }
    }
    // Several in flight in both directions.
    for tag in 0..8 {
        for side in [A, B] {
            let pieces: Vec<Buffer> = match has_pieces {
                true => vec![pair.slice(side, &[tag; 3]).into(), pair.slice(side, b"...").into()],
                false => vec![pair.slice(side, &[tag, tag, tag, b'.', b'.', b'.']).into()],
            };
            pair.post(side, tag.into(), (WorkRequest::Send, pieces.into()));
        }
    }
    for side in [A, B] {
        let (mut messages, mut tags) = (Vec::new(), Vec::new());
        while messages.len() < 8 || tags.len() < 8 {
            match pair.next(side) {
                Seen::Message(bytes) => messages.push(bytes),
                Seen::Completed { tag, outcome: Ok(()), .. } => tags.push(tag),
                other => panic!("{other:?}"),
            }
        }
        messages.sort();
        tags.sort_unstable();
        assert!(messages.iter().zip(0..8).all(|(bytes, tag)| bytes[..] == [tag, tag, tag, b'.', b'.', b'.']));
        assert_eq!(tags, (0..8).collect::<Vec<_>>());
    }
    let longer = pair.slice(A, &vec![1; message_max + 1]);
    assert_never(&mut pair, (WorkRequest::Send, longer.into()));
    pair.assert_quiet();
}

/// Checks that a request is refused for good, with a reason, and handed back whole.
#[track_caller]
fn assert_never<R: Rail>(pair: &mut Pair<R>, request: Request<'_>) {
    let (before, in_flight) = (format!("{request:?}"), pair.rails[A].in_flight());
    let refused = post(&mut pair.rails[A], pair.links[A], 1, request).expect_err(&before);
    let Refusal::Never(error) = refused.reason else { panic!("{before}: {:?}", refused.reason) };
    assert!(!error.operation.is_empty() && !error.cause.is_empty() && !error.fix.is_empty(), "{error:?}");
    assert_eq!(format!("{:?}", refused.request), before, "it is handed back whole");
    assert_eq!(pair.rails[A].in_flight(), in_flight);
}
