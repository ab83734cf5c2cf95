//! Tests waiting: no completion is missed by sleeping, and every event is acknowledged.

use std::time::{Duration, Instant};

use super::count;
use super::script::{Bench, armings, complete, complete_at_arming, fail_polls, forge, held, unacknowledged};
use crate::Error;
use crate::cq::{CompletionQueueBuilder, Wait};
use crate::qp::QueuePair;
use crate::wr::SendRequest;

/// Long enough to distinguish a wait that ends early from one that sleeps, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(2);

fn post(bench: &Bench, qp: &QueuePair, tag: u64) {
    qp.post_send(SendRequest::send(bench.memory().0).tag(tag)).unwrap();
}

/// Waits, and returns the tags of the completions and the duration.
fn waited(bench: &Bench, wait: Wait, deadline: Duration) -> (Vec<u64>, Duration) {
    let start = Instant::now();
    let mut poller = bench.cq.poller();
    let completions = poller.wait(wait, Some(start + deadline)).unwrap();
    (completions.map(|completion| completion.tag()).collect(), start.elapsed())
}

#[test]
fn what_completes_between_the_last_look_and_the_arming_is_found_without_an_event() {
    for (round, wait) in [(1, Wait::Event), (2, Wait::default())] {
        let bench = Bench::with_channel(16);
        let qp = bench.queue_pair(4);
        post(&bench, &qp, round);
        complete_at_arming(1, 1);
        let (tags, took) = waited(&bench, wait, DEADLINE);
        assert_eq!((tags, armings()), (vec![round], round));
        assert!(took < DEADLINE / 2, "it slept for {took:?}");
        assert_eq!(bench.cq.channel().unwrap().get_event().unwrap(), None);
    }
}

/// The queue stays armed if the second poll found the completion that it was armed for.
#[test]
fn a_wake_up_of_an_earlier_arming_ends_no_wait() {
    let bench = Bench::with_channel(16);
    let qp = bench.queue_pair(4);
    let leave_a_wake_up = |tag| {
        post(&bench, &qp, tag);
        complete_at_arming(1, 1);
        assert_eq!(waited(&bench, Wait::Event, DEADLINE).0, [tag]);
        post(&bench, &qp, tag + 1);
        complete(1);
        assert_eq!(waited(&bench, Wait::Event, DEADLINE).0, [tag + 1], "it needed no sleep");
    };
    leave_a_wake_up(1);
    let (tags, took) = waited(&bench, Wait::Event, Duration::from_millis(50));
    assert!(tags.is_empty() && took >= Duration::from_millis(50), "{tags:?} after {took:?}");

    leave_a_wake_up(3);
    post(&bench, &qp, 5);
    complete_at_arming(2, 1);
    let (tags, took) = waited(&bench, Wait::Event, DEADLINE);
    assert!(tags == [5] && took < DEADLINE / 2, "{tags:?} after {took:?}");
}

#[test]
fn a_poll_that_fails_ends_the_wait_and_releases_nothing() {
    let bench = Bench::with_channel(16);
    let qp = bench.queue_pair(4);
    let (slice, watch) = bench.memory();
    qp.post_send(SendRequest::send(slice).tag(1)).unwrap();
    complete(1);
    for wait in [Wait::Busy, Wait::Event, Wait::default()] {
        fail_polls(1);
        let error = bench.cq.poller().wait(wait, None).unwrap_err();
        assert!(matches!(error, Error::Call { operation: "ibv_poll_cq", .. }), "{error}");
        assert!(watch.is_kept() && qp.in_flight() == (1, 0));
    }
    assert_eq!(waited(&bench, Wait::Busy, DEADLINE).0, [1]);
    assert!(!watch.is_kept());
}

#[test]
fn a_wait_in_vain_ends_at_its_deadline_and_leaves_all_in_flight() {
    let bench = Bench::with_channel(16);
    let qp = bench.queue_pair(4);
    post(&bench, &qp, 1);
    for wait in [Wait::Busy, Wait::Event, Wait::default()] {
        let (tags, took) = waited(&bench, wait, Duration::from_millis(5));
        assert!(tags.is_empty() && took >= Duration::from_millis(5));
    }
    assert_eq!((qp.in_flight(), held()), ((1, 0), 1));
}

#[test]
fn a_queue_sleeps_on_a_channel_of_its_own_only() {
    let bench = Bench::new(16);
    assert!(matches!(bench.cq.poller().wait(Wait::Event, None), Err(Error::Unsupported { .. })));
    let bench = Bench::with_channel(16);
    let channel = bench.cq.channel().unwrap();
    let other = CompletionQueueBuilder::new(4).channel(channel).build(&bench.context).unwrap();
    assert!(matches!(other.poller().wait(Wait::default(), None), Err(Error::Unsupported { .. })));
    drop(other);
    assert!(waited(&bench, Wait::Event, Duration::ZERO).0.is_empty());
}

/// In C, a queue with an unacknowledged event is never destroyed.
#[test]
fn events_are_acknowledged_in_batches_and_before_their_queue_is_destroyed() {
    let live = count("table_live");
    let bench = Bench::with_channel(16);
    let channel = bench.cq.channel().unwrap().clone();
    for taken in 1..=70 {
        bench.cq.req_notify(false).unwrap();
        forge(&bench.cq, 0);
        assert_eq!(channel.get_event().unwrap().as_ref(), Some(&bench.cq));
        assert_eq!(unacknowledged(), taken % 64);
    }
    assert_eq!(bench.cq.poller().poll().unwrap().count(), 0);
    drop((bench, channel));
    assert_eq!((unacknowledged(), count("table_violations"), count("table_live")), (0, 0, live));
}
