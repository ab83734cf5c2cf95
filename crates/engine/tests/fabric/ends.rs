//! The end of links, rails and keys.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use farreach::Rights;
use farreach_rail::{EndedKeys, Rail, Refusal, WorkRequest};
use farreach_sim::request::post;
use farreach_testkit::{pattern, wait_for};

use super::pair::{A, B, Granted, Pair, Place, Seen, write};

const LEN: usize = 1 << 20;

/// Checks that a write with an immediate arrives.
#[track_caller]
fn assert_works(pair: &mut Pair, granted: &Granted, seed: u8) {
    let data = pattern(seed, 5000);
    let slice = pair.slice(A, &data);
    pair.post(A, 1000, write(slice, granted.target(0, 5000), Some(seed.into())));
    assert_eq!(pair.immediate(B), seed.into());
    assert_eq!(granted.copy(0, 5000), data);
    assert_eq!(pair.done(A, 1000).len(), 5000);
}

/// Posts as many large writes as the rail accepts, while their target does not poll. Returns how
/// many.
fn fill(pair: &mut Pair, granted: &Granted) -> u64 {
    for tag in 0..16 {
        let slice = pair.slice(A, &pattern(tag as u8, LEN));
        let request = write(slice, granted.target(0, LEN as u64), Some(tag));
        if let Err(refused) = post(&mut pair.rails[A], pair.links[A], tag.into(), request) {
            assert!(matches!(refused.reason, Refusal::Full), "{:?}", refused.reason);
            return tag.into();
        }
    }
    16
}

/// Takes the completions that a side has reported, by tag: the bytes that were returned, and
/// whether it succeeded.
fn completions(pair: &mut Pair, side: usize) -> BTreeMap<u64, (usize, bool)> {
    let mut told = BTreeMap::new();
    for seen in pair.seen[side].drain(..) {
        let Seen::Completed { tag, buffers, outcome, .. } = seen else { continue };
        let before = told.insert(tag, (buffers.len(), outcome.is_ok()));
        assert_eq!(before, None, "a request comes back once");
    }
    told
}

pub(crate) fn a_closed_link_takes_nothing_and_gives_all_back(place: &Place) {
    let mut pair = Pair::open(place);
    let granted = pair.expose(B, LEN);
    assert_works(&mut pair, &granted, 1);
    let count = fill(&mut pair, &granted);
    assert!(count > 0);
    let closed = pair.links[A];
    pair.rails[A].close_link(closed);
    let refused = post(&mut pair.rails[A], closed, 7, granted.immediate(1)).unwrap_err();
    let Refusal::LinkDown(error) = refused.reason else { panic!("{:?}", refused.reason) };
    assert!(error.cause.contains("closed") && error.fix.contains("new link"), "{error:?}");
    // Closing it twice has no effect.
    pair.rails[A].close_link(closed);

    wait_for("all that was in flight", || {
        pair.progress();
        (pair.rails[A].in_flight() == 0).then_some(())
    });
    let told = completions(&mut pair, A);
    assert_eq!(told.len() as u64, count);
    assert!(told.values().all(|(len, _)| *len == LEN), "{told:?}");
    pair.seen[B].clear();

    pair.link();
    assert_ne!(pair.links[A], closed, "a name is not used again");
    assert_works(&mut pair, &granted, 2);
    pair.assert_quiet();
}

/// One library keeps a closed endpoint in the list that it checks before a sleep.
pub(crate) fn a_rail_that_was_reset_can_be_slept_on(place: &Place) {
    let mut pair = Pair::open(place);
    let granted = pair.expose(B, LEN);
    for round in 1..=10 {
        assert_works(&mut pair, &granted, round);
        pair.rails[A].reset().unwrap();
        // The memory of the closed endpoint is used by something else now.
        let _other = Pair::open(place);
        for _ in 0..50 {
            pair.progress();
            // An error is a valid result: the engine polls then.
            let _ = pair.rails[A].may_sleep();
        }
        pair.seen.iter_mut().for_each(VecDeque::clear);
        pair.link();
    }
    assert_works(&mut pair, &granted, 11);
}

pub(crate) fn a_reset_gives_back_all_and_a_new_link_works(place: &Place) {
    let mut pair = Pair::open(place);
    let (granted, own) = (pair.expose(B, LEN), pair.expose(A, 4096));
    assert_works(&mut pair, &granted, 1);
    let count = fill(&mut pair, &granted);
    assert!(count > 0);
    // A read too: its buffers must not be returned while a peer may still write to them.
    let lent = pair.slice(A, &[0; 64]).lend();
    let read = (WorkRequest::Read { target: granted.target(0, 64) }, lent.clone().into());
    let reads = u64::from(post(&mut pair.rails[A], pair.links[A], 500, read).is_ok());
    let old = pair.links[A];
    pair.seen[A].clear();
    let in_flight = pair.rails[A].in_flight();
    assert_eq!(in_flight as u64, count + reads);

    pair.rails[A].reset().unwrap();
    assert_eq!(pair.rails[A].in_flight(), in_flight, "it was not told of yet");
    assert!(!pair.rails[A].may_sleep().unwrap(), "there is something to poll for");
    pair.poll(A);
    assert_eq!(pair.rails[A].in_flight(), 0);
    let told = completions(&mut pair, A);
    assert_eq!(told.len() as u64, count + reads, "{told:?}");
    let is_back = |tag: u64, len: usize| tag == 500 || len == LEN;
    assert!(told.iter().all(|(tag, (len, is_ok))| !is_ok && is_back(*tag, *len)), "{told:?}");
    assert!(lent.try_reclaim().is_ok(), "no peer writes to it any more");

    let refused = post(&mut pair.rails[A], old, 7, granted.immediate(1)).unwrap_err();
    assert!(matches!(refused.reason, Refusal::LinkDown(_)), "{:?}", refused.reason);
    // Half a write may still be in flight to the closed endpoint.
    for _ in 0..100 {
        pair.progress();
    }
    pair.seen[B].clear();
    pair.link();
    assert_ne!(pair.links[A], old);
    assert_works(&mut pair, &granted, 2);
    // Keys stay valid, and receive buffers are posted again.
    let slice = pair.slice(B, &[9; 64]);
    pair.post(B, 1, write(slice, own.target(8, 64), None));
    pair.done(B, 1);
    assert_eq!(own.copy(8, 64), [9; 64]);
    let slice = pair.slice(B, b"hello");
    pair.post(B, 2, (WorkRequest::Send, slice.into()));
    assert_eq!(pair.message(A), b"hello");
    pair.done(B, 2);
    pair.assert_quiet();
}

pub(crate) fn a_peer_that_was_reset_costs_its_links_and_not_the_rail(place: &Place) {
    let mut pair = Pair::open(place);
    let granted = pair.expose(B, LEN);
    assert_works(&mut pair, &granted, 1);
    let count = fill(&mut pair, &granted);
    pair.rails[B].reset().unwrap();
    // Some libraries notice the reset, and some wait for ever.
    let end = Instant::now() + Duration::from_secs(2);
    while pair.rails[A].in_flight() > 0 && Instant::now() < end {
        pair.progress();
    }
    if pair.rails[A].in_flight() > 0 {
        pair.rails[A].reset().unwrap();
        pair.poll(A);
    }
    let told = completions(&mut pair, A);
    assert_eq!((told.len() as u64, pair.rails[A].in_flight()), (count, 0));
    assert!(told.values().all(|(len, _)| *len == LEN), "{told:?}");
    pair.rails[A].close_link(pair.links[A]);
    pair.progress();
    pair.seen[B].clear();
    pair.link();
    assert_works(&mut pair, &granted, 2);
    pair.assert_quiet();
}

pub(crate) fn revoked_memory_takes_no_late_write(place: &Place) {
    let mut pair = Pair::open(place);
    let [granted, other] = [pair.expose(B, 8192), pair.expose(B, 8192)];
    assert_works(&mut pair, &granted, 1);
    assert_eq!(granted.memory.keys(), 1);
    pair.rails[B].end_key(granted.key.id).unwrap();
    // A library checks the key when a write begins, and a card at each packet.
    let proves = pair.rails[B].properties().ended_keys == EndedKeys::StopAll;
    assert_eq!(granted.memory.keys() == 0, proves);
    let again = pair.rails[B].end_key(granted.key.id).unwrap_err();
    assert!(!again.fix.is_empty(), "{again:?}");
    granted.memory.write_at(0, &[0; 8192]);
    let slice = pair.slice(A, &pattern(7, 8192));
    pair.post(A, 5, write(slice, granted.target(0, 8192), Some(5)));
    let (tag, buffers, outcome) = pair.completed(A);
    let error = outcome.expect_err("the key is dead").into_error();
    assert_eq!((tag, buffers.len()), (5, 8192));
    assert!(!error.cause.is_empty() && !error.fix.is_empty(), "{error:?}");
    for _ in 0..1000 {
        pair.progress();
    }
    assert_eq!(granted.copy(0, 8192), [0; 8192], "a late write has landed");
    assert!(!pair.seen[B].iter().any(|seen| matches!(seen, Seen::Immediate(_))), "{:?}", pair.seen[B]);

    // After a failure the link cannot be used any more, and its user closes it.
    pair.rails[A].close_link(pair.links[A]);
    let refused = post(&mut pair.rails[A], pair.links[A], 6, other.immediate(1)).unwrap_err();
    let Refusal::LinkDown(reason) = refused.reason else { panic!("{:?}", refused.reason) };
    assert!(reason.cause.contains("closed"), "{reason}");
    assert_eq!(pair.rails[A].in_flight(), 0);
    pair.rails[B].reset().unwrap();
    assert_eq!(granted.memory.keys(), 0, "with the endpoint ended what was under way");
    assert_eq!(other.memory.keys(), 1, "what was not concealed stays granted");
}

/// Memory that no user holds any more, and that a write in flight may still reach, is held until a
/// reset, which becomes due when it is too much.
pub(crate) fn dead_keys_hold_memory_up_to_a_bound(place: &Place) {
    const PART: usize = 32 << 20;
    let mut pair = Pair::open(place);
    let proves = pair.rails[B].properties().ended_keys == EndedKeys::StopAll;
    let mut parts = 0;
    while !pair.rails[B].holds_too_much() {
        parts += 1;
        let granted = pair.expose(B, PART);
        pair.rails[B].end_key(granted.key.id).unwrap();
        if parts == 20 {
            assert!(proves, "640 MiB are held, and it is not too much");
            return;
        }
    }
    assert!(!proves && (9..=12).contains(&parts), "{parts} parts of 32 MiB");
    pair.rails[B].reset().unwrap();
    assert!(!pair.rails[B].holds_too_much());
    // Memory that a user holds does not count.
    let granted = pair.expose(B, PART);
    for _ in 0..20 {
        let key = pair.rails[B].make_key(farreach_rail::PeerKey(0), &granted.memory, Rights::WRITE).unwrap();
        pair.rails[B].end_key(key.id).unwrap();
        assert!(!pair.rails[B].holds_too_much());
    }
}

pub(crate) fn a_new_link_takes_the_place_of_one_that_failed(place: &Place) {
    let mut pair = Pair::open(place);
    let [granted, other] = [pair.expose(B, 8192), pair.expose(B, 8192)];
    assert_works(&mut pair, &granted, 1);
    pair.rails[B].end_key(granted.key.id).unwrap();
    let slice = pair.slice(A, &[1; 64]);
    pair.post(A, 5, write(slice, granted.target(0, 64), None));
    assert!(pair.completed(A).2.is_err(), "the key is dead");
    for side in [A, B] {
        pair.rails[side].close_link(pair.links[side]);
    }
    link_again(&mut pair, &other);
    assert_works(&mut pair, &other, 3);
    pair.assert_quiet();
}

/// Connects a new link after one has failed. A layer over tcp takes some time to notice that the
/// connection is gone, and until then it fails the next operations too.
fn link_again(pair: &mut Pair, granted: &Granted) {
    wait_for("link that works", || {
        pair.link();
        pair.post(A, 77, granted.immediate(77));
        let is_up = pair.completed(A).2.is_ok();
        if is_up {
            assert_eq!(pair.immediate(B), 77);
            return Some(());
        }
        for side in [A, B] {
            pair.rails[side].close_link(pair.links[side]);
        }
        None
    });
}

pub(crate) fn a_rail_that_is_dropped_lets_go_of_what_it_had(place: &Place) {
    let mut pair = Pair::open(place);
    let granted = pair.expose(B, LEN);
    assert_works(&mut pair, &granted, 1);
    assert!(fill(&mut pair, &granted) > 0);
    drop(pair);
    assert_eq!(granted.memory.keys(), 0, "no peer writes to it any more");
}
