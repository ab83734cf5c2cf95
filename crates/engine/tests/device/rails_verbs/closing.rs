//! The end of links and keys: every buffer is returned, and no write lands any more.

use std::time::{Duration, Instant};

use farreach::Rights;
use farreach::rails::verbs::VerbsSettings;
use farreach_rail::{KeyId, Rail, Refusal, RemoteSegment, WorkRequest};
use farreach_testkit::{on_host_a, pattern, wait_for};

use crate::rails_verbs::pair::{Granted, Pair, send, tell, write};

/// Posts a window of writes. Returns how many.
fn fill(pair: &mut Pair, target: RemoteSegment) -> u64 {
    let window = u64::from(pair.a.rail.properties().window);
    for tag in 0..window {
        let slice = pair.a.filled(tag as u8, target.len as usize);
        pair.a.post(tag, write(slice, target));
    }
    window
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_link_that_is_closed_gives_every_buffer_back_with_the_next_poll() {
    on_host_a(|| {
        for is_peer_gone in [false, true] {
            let mut pair = Pair::new();
            let granted = pair.b.granted(0, 5000);
            if is_peer_gone {
                // Nothing is acknowledged any more: all posted requests are in flight when the link
                // is closed.
                pair.b.rail.close_link(pair.b.link);
            }
            let window = fill(&mut pair, granted.part(0, 5000));
            pair.a.rail.close_link(pair.a.link);
            let refused = pair.a.refused(tell(1));
            assert!(matches!(&refused.reason, Refusal::LinkDown(reason) if reason.cause.contains("closed")));

            assert_eq!(pair.a.rail.in_flight(), window as usize, "nothing was told yet");
            pair.a.poll();
            assert_eq!(pair.a.rail.in_flight(), 0);
            let mut failed = 0;
            for tag in 0..window {
                let done = pair.a.told.done.pop_front().expect("each is told of");
                assert_eq!(done.tag, tag);
                assert_eq!(*done.buffers.into_slice().unwrap(), *pattern(tag as u8, 5000));
                if let Err(reason) = done.outcome {
                    failed += 1;
                    assert!(reason.cause.contains("the link was closed on this side"), "{reason}");
                }
            }
            assert_eq!(pair.a.rail.given_up(), failed);
            assert!(!is_peer_gone || failed == window);

            // The peer's end cannot be used any more, but a new link can.
            pair.b.rail.close_link(pair.b.link);
            assert_new_link_works(pair, &granted);
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_had_come_before_a_link_was_closed_is_told_all_the_same() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let (kept, at_b) = (pair.link(), pair.b.link);
        let slice = pair.a.filled(1, 64);
        pair.a.post(1, send(slice));
        pair.a.post(2, tell(7));
        // An acknowledgement means that they are in b's queue.
        while pair.a.told.done.len() < 2 {
            pair.a.poll();
        }
        pair.b.rail.close_link(at_b);
        assert_eq!(pair.message(), (at_b, pattern(1, 64)));
        assert_eq!(pair.immediate(), (at_b, 7));
        pair.well_done();
        pair.well_done();
        pair.a.rail.close_link(pair.a.link);
        // Their receive buffers are free again.
        (pair.a.link, pair.b.link) = kept;
        pair.a.post(3, tell(8));
        assert_eq!(pair.immediate(), (pair.b.link, 8));
        pair.well_done();
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_was_done_before_a_link_was_closed_is_told_to_have_gone_well() {
    on_host_a(|| {
        let mut pair = Pair::new();
        for number in 0..3 {
            pair.a.post(number.into(), tell(number));
        }
        for _ in 0..3 {
            let immediate = wait_for("immediate", || {
                pair.b.poll();
                pair.b.told.immediates.pop_front()
            });
            assert_eq!(immediate.0, pair.b.link);
        }
        // The last acknowledgement is still in flight, and only a poll, which must not happen here,
        // would report it. It takes milliseconds, or as long as a busy guest stalls.
        std::thread::sleep(Duration::from_secs(2));
        pair.a.rail.close_link(pair.a.link);
        for number in 0..3 {
            assert_eq!(pair.well_done().tag, number);
        }
        assert_eq!(pair.a.rail.given_up(), 0);
        pair.finish();
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_dead_key_fails_at_its_sender_and_nothing_lands() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let other = pair.link();
        let (granted, lasting) = (pair.b.granted(3, 64), pair.b.granted(5, 64));
        let target = granted.part(0, 64);
        let slice = pair.a.filled(4, 64);
        pair.a.post(1, write(slice, target));
        pair.well_done();
        pair.b.rail.end_key(granted.id).expect("the key is ended");
        assert_eq!(granted.memory.keys(), 0, "the rail lets the memory go");
        assert!(pair.b.rail.end_key(granted.id).is_err(), "there is no such key any more");

        let (late, behind) = (pair.a.filled(6, 64), pair.a.filled(7, 64));
        pair.a.post(2, write(late, target));
        pair.a.post(3, write(behind, lasting.part(0, 64)));
        let first = pair.done();
        let reason = first.outcome.unwrap_err();
        assert_eq!(first.tag, 2);
        assert!(reason.cause.contains("the peer's key is wrong or revoked"), "{reason}");
        assert!(reason.operation.starts_with("write over"), "{reason}");
        assert_eq!(*first.buffers.into_slice().unwrap(), *pattern(6, 64));
        let second = pair.done();
        let reason = second.outcome.unwrap_err();
        assert!(reason.cause.starts_with("flushed when its link ended"), "{reason}");
        assert!(
            reason.cause.contains("the peer's key is wrong or revoked"),
            "the first failure is the cause: {reason}"
        );
        assert_eq!(pair.a.rail.given_up(), 1);
        assert_eq!((granted.bytes(), lasting.bytes()), (pattern(4, 64), pattern(5, 64)));

        let refused = pair.a.refused(tell(1));
        assert!(
            matches!(&refused.reason, Refusal::LinkDown(reason) if reason.cause.contains("wrong or revoked"))
        );
        pair.a.rail.close_link(pair.a.link);
        pair.b.rail.close_link(pair.b.link);
        // Other links of the same rails keep working.
        (pair.a.link, pair.b.link) = other;
        let slice = pair.a.filled(8, 64);
        pair.a.post(4, write(slice, lasting.part(0, 64)));
        pair.well_done();
        assert_eq!(lasting.bytes(), pattern(8, 64));
        pair.b.rail.end_key(lasting.id).expect("the key is ended");
        pair.finish();
    });
}

/// Stops a write in its middle, if that is early enough, and returns whether it was. No byte lands
/// afterwards in either case.
fn is_stopped_in_the_middle(stop: fn(&mut Pair, KeyId)) -> bool {
    const LEN: u64 = 1 << 22;
    let mut pair = Pair::new();
    let (zeroes, mut ones) = (pair.b.blank(LEN as usize), pair.a.blank(LEN as usize));
    let granted = pair.b.grant(zeroes, Rights::WRITE);
    ones.fill(1);
    pair.a.post(1, write(ones, granted.part(0, LEN)));
    wait_for("beginning of the write", || {
        let mut first = [0];
        granted.memory.read_at(0, &mut first);
        (first == [1]).then_some(())
    });
    let since = Instant::now();
    stop(&mut pair, granted.id);
    assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    let seen = granted.bytes();
    let is_in_time = seen.last() == Some(&0);
    let deadline = Instant::now() + Duration::from_millis(200);
    while Instant::now() < deadline {
        pair.poll();
        assert!(granted.bytes() == seen, "it lands still");
    }
    pair.a.rail.close_link(pair.a.link);
    let done = pair.done();
    assert!(done.outcome.is_err() || !is_in_time, "{done:?}");
    pair.finish();
    is_in_time
}

#[track_caller]
fn stops_what_is_under_way(stop: fn(&mut Pair, KeyId)) {
    let in_time = (0..20).filter(|_| is_stopped_in_the_middle(stop)).take(2).count();
    assert_eq!(in_time, 2, "twice in twenty times, at least");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn after_a_link_is_closed_nothing_lands_that_the_peer_has_begun() {
    on_host_a(|| stops_what_is_under_way(|pair, _| pair.b.rail.close_link(pair.b.link)));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn after_a_key_is_ended_nothing_lands_that_the_peer_has_begun() {
    on_host_a(|| stops_what_is_under_way(|pair, key| pair.b.rail.end_key(key).expect("it is ended")));
}

/// The write is half done, and its sender does not continue it.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_key_is_ended_though_its_user_is_gone() {
    on_host_a(|| {
        stops_what_is_under_way(|pair, key| {
            pair.a.rail.close_link(pair.a.link);
            pair.b.rail.end_key(key).expect("it is ended");
        });
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_reset_ends_all_links_and_new_ones_work() {
    on_host_a(|| {
        let mut pair = Pair::new();
        let granted = pair.b.granted(0, 5000);
        let links = [pair.link(), pair.link()];
        let mut posted = fill(&mut pair, granted.part(0, 5000));
        for (at_a, _) in links {
            pair.a.link = at_a;
            let into = pair.a.filled(0, 5000);
            pair.a.post(posted, (WorkRequest::Read { target: granted.part(0, 5000) }, into.into()));
            posted += 1;
        }
        pair.a.rail.reset().expect("the rail begins anew");
        pair.a.poll();
        let mut tags: Vec<_> = pair.a.told.done.drain(..).map(|done| done.tag).collect();
        tags.sort_unstable();
        assert!(tags.into_iter().eq(0..posted), "each request is told of once");
        pair.b.rail.reset().expect("the rail begins anew");
        assert_new_link_works(pair, &granted);
    });
}

/// Connects a new link, and finishes.
fn assert_new_link_works(mut pair: Pair, granted: &Granted) {
    (pair.a.link, pair.b.link) = pair.link();
    let slice = pair.a.filled(9, 5000);
    pair.a.post(1, write(slice, granted.part(0, 5000)));
    pair.well_done();
    assert_eq!(granted.bytes(), pattern(9, 5000));
    pair.finish();
}

const RECEIVES: u32 = 8;

/// Returns for how many messages there are receive buffers after some links ended in the middle of
/// messages, with or without another link that stays.
fn room_after_links_ended_early(has_another: bool) -> usize {
    const LEN: usize = 1 << 19;
    let settings = VerbsSettings { receives: RECEIVES, message_max: LEN, ..Default::default() };
    let mut pair = Pair::with(&settings);
    let mut slices = [0, 1].map(|_| Some(pair.a.blank(LEN)));
    for _ in 0..RECEIVES {
        let lasting = (pair.a.link, pair.b.link);
        if has_another {
            (pair.a.link, pair.b.link) = pair.link();
        }
        for (tag, slice) in slices.iter_mut().enumerate() {
            pair.a.post(tag as u64, send(slice.take().unwrap()));
        }
        // One of them is in flight in most cases: it has hundreds of packets.
        std::thread::sleep(Duration::from_millis(1));
        pair.b.rail.close_link(pair.b.link);
        pair.a.rail.close_link(pair.a.link);
        pair.until("end of the messages", |pair| (pair.a.told.done.len() == 2).then_some(()));
        for done in pair.a.told.done.drain(..) {
            slices[done.tag as usize] = done.buffers.into_slice().ok();
        }
        pair.b.told.messages.clear();
        (pair.a.link, pair.b.link) = if has_another { lasting } else { pair.link() };
    }
    let mut message = pair.a.filled(7, 30 * 8);
    for tag in 0..30 {
        pair.a.post(tag, send(message.split_to(8)));
    }
    // The receiver does not poll, so as many messages arrive as it has receive buffers.
    let deadline = Instant::now() + Duration::from_secs(1);
    while Instant::now() < deadline {
        pair.a.poll();
    }
    let room = pair.a.told.done.len();
    for _ in 0..30 {
        pair.message();
        pair.well_done();
    }
    pair.finish();
    room
}

/// A link that ends in the middle of a message keeps the buffer that was being filled. Soft-RoCE
/// does not report it either.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn links_that_end_in_the_middle_of_messages_leave_as_much_room_for_those_of_others() {
    on_host_a(|| {
        let room = room_after_links_ended_early(true);
        assert!((RECEIVES as usize..=2 * RECEIVES as usize).contains(&room), "room for {room}");
        assert_eq!(room_after_links_ended_early(false), RECEIVES as usize);
    });
}
