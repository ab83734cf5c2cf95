//! Tests of waiting for completions.

use std::time::{Duration, Instant};

use farreach_testkit::on_host_a;
use farreach_verbs::Error;
use farreach_verbs::cq::{CompletionQueue, CompletionQueueBuilder, Wait, WorkKind};
use farreach_verbs::qp::QueuePair;
use farreach_verbs::wr::{RecvRequest, SendRequest};

use super::pair::{DEPTH, Pair, open};

/// The number of round trips.
const ROUNDS: usize = 300;

/// The number of round trips without sleeping: two spinning threads leave no processor to the
/// device, which is the kernel here.
const BUSY_ROUNDS: usize = 30;

/// A wait that takes longer has missed a wake-up.
const LOST: Duration = Duration::from_secs(10);

/// Waits for a message. Completed sends are discarded.
fn receive(cq: &CompletionQueue, wait: Wait) {
    let deadline = Instant::now() + LOST;
    let mut poller = cq.poller();
    loop {
        let mut is_received = false;
        let mut count = 0;
        for completion in poller.wait(wait, Some(deadline)).unwrap() {
            completion.outcome().unwrap();
            is_received |= completion.kind() == WorkKind::Recv;
            count += 1;
        }
        assert!(count > 0, "{wait:?}: no completion, or a missed wake-up");
        if is_received {
            return;
        }
    }
}

/// Each side answers as fast as it can, so that completions come at every moment: before arming,
/// between arming and the second poll, and during sleep.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn no_wake_up_is_lost_whenever_a_completion_comes() {
    on_host_a(|| {
        let short = Wait::Adaptive { spin: Duration::from_micros(300) };
        for wait in [Wait::Event, Wait::default(), short, Wait::Busy] {
            let rounds = if wait == Wait::Busy { BUSY_ROUNDS } else { ROUNDS };
            let pair = Pair::with_channels();
            let ready = |qp: &QueuePair| qp.post_recv(RecvRequest::empty()).unwrap();
            let send = |qp: &QueuePair| qp.post_send(SendRequest::send(Vec::new())).unwrap();
            ready(&pair.a);
            ready(&pair.b);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        receive(&pair.cq_b, wait);
                        ready(&pair.b);
                        send(&pair.b);
                    }
                });
                for _ in 0..rounds {
                    send(&pair.a);
                    receive(&pair.cq_a, wait);
                    ready(&pair.a);
                }
            });
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_wait_ends_when_its_time_is_over() {
    on_host_a(|| {
        let pair = Pair::with_channels();
        for wait in [Wait::Busy, Wait::Event, Wait::default()] {
            let (begin, time) = (Instant::now(), Duration::from_millis(80));
            let mut poller = pair.cq_a.poller();
            assert_eq!(poller.wait(wait, Some(begin + time)).unwrap().count(), 0);
            let taken = begin.elapsed();
            assert!(taken >= time && taken < LOST, "{wait:?}: {taken:?}");
        }
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn one_who_cannot_sleep_is_told_why() {
    on_host_a(|| {
        let context = open();
        let why = |cq: &CompletionQueue| match cq.poller().wait(Wait::Event, None) {
            Err(Error::Unsupported { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        assert!(why(&context.create_cq(DEPTH).unwrap()).contains("no channel"));
        let channel = context.create_comp_channel().unwrap();
        let builder = CompletionQueueBuilder::new(DEPTH).channel(&channel);
        let (first, second) = (builder.build(&context).unwrap(), builder.build(&context).unwrap());
        assert!(why(&first).contains("other queues"));
        drop(second);
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(
            first.poller().wait(Wait::Event, Some(soon)).unwrap().count(),
            0,
            "the channel has no other queue"
        );
    });
}
