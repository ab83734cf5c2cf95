//! Waits that end early: the loser of a `select!`, and waits that time out and begin again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use farreach::{Access, ErrorKind, PeerEvent, Rights};

use super::runtime::Runtime;
use super::wakers::Stalled;
use super::{BRIEF, counter, engine, granted, on_each_executor, pair};
use crate::suite::Pair;

on_each_executor! {
    the_loser_of_a_select_has_lost_no_message;
    the_loser_of_a_select_has_lost_no_count;
    a_wait_that_timed_out_begins_again;
    a_request_that_timed_out_is_awaited_again;
    a_connection_that_timed_out_is_awaited_again;
}

const MESSAGES: usize = 300;

async fn the_loser_of_a_select_has_lost_no_message(runtime: Runtime) {
    let pair = Arc::new(pair().await);
    let (of_peer, of_any) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let sender = {
        let pair = Arc::clone(&pair);
        runtime.spawn(async move {
            for number in 0..MESSAGES as u32 {
                pair.a_to_b.send(number.to_le_bytes()).await.unwrap();
            }
        })
    };
    let mut received = Vec::new();
    let mut turn = 0_u32;
    while received.len() < MESSAGES {
        // Both are new each time: the loser is dropped.
        turn += 1;
        let message = tokio::select! {
            message = pair.b_to_a.recv(), if turn.is_multiple_of(2) => {
                of_peer.fetch_add(1, Ordering::Relaxed);
                message.unwrap()
            }
            message = pair.b.recv_any() => {
                of_any.fetch_add(1, Ordering::Relaxed);
                message.unwrap().1
            }
            () = runtime.yields() => continue,
        };
        received.push(u32::from_le_bytes(message.try_into().unwrap()));
    }
    sender.await.expect("it was not cancelled");
    assert!(received.iter().copied().eq(0..MESSAGES as u32), "in order, each once: {received:?}");
    assert_eq!(of_peer.into_inner() + of_any.into_inner(), MESSAGES);
}

async fn the_loser_of_a_select_has_lost_no_count(runtime: Runtime) {
    const PAGES: u64 = 200;
    let pair = Arc::new(pair().await);
    let (_grant, remote) = granted(&pair, 4096, Rights::WRITE).await;
    let ((first, raises), (second, raises_too)) = (counter(&pair).await, counter(&pair).await);
    let writer = {
        let pair = Arc::clone(&pair);
        runtime.spawn(async move {
            for number in 0..2 * PAGES {
                let raises = if number % 2 == 0 { &raises } else { &raises_too };
                pair.a_to_b.write_and_count(vec![1; 8], &remote, raises).await.unwrap();
            }
        })
    };
    let (mut of_first, mut of_second) = (0, 0);
    while of_first < PAGES || of_second < PAGES {
        tokio::select! {
            reached = first.reach(of_first + 1), if of_first < PAGES => {
                reached.unwrap();
                of_first += 1;
            }
            reached = second.reach(of_second + 1), if of_second < PAGES => {
                reached.unwrap();
                of_second += 1;
            }
        }
    }
    writer.await.expect("it was not cancelled");
    assert_eq!((first.reached(), second.reached()), (PAGES, PAGES));
}

/// Times a wait out, lets its event happen, and awaits the same wait again.
macro_rules! again {
    ($runtime:ident, $wait:expr, $event:expr) => {{
        let mut wait = $wait;
        for _ in 0..2 {
            assert!($runtime.within(BRIEF, &mut wait).await.is_none(), "{}", stringify!($wait));
        }
        $event;
        wait.await.unwrap()
    }};
}

async fn a_wait_that_timed_out_begins_again(runtime: Runtime) {
    let pair = pair().await;
    let (_grant, remote) = granted(&pair, 4096, Rights::WRITE).await;
    let (counter, raises) = counter(&pair).await;
    let Pair { b, a_to_b, b_to_a, .. } = &pair;
    let write = || a_to_b.write_and_count(vec![1; 8], &remote, &raises);
    again!(runtime, counter.reach(1), write().await.unwrap());
    assert_eq!(again!(runtime, b_to_a.recv(), a_to_b.send("one").await.unwrap()), b"one");
    assert_eq!(again!(runtime, b.recv_any(), a_to_b.send("two").await.unwrap()).1, b"two");

    let shared = b.open_counter(Access::Anyone).await.unwrap();
    let raises;
    again!(runtime, shared.opened_by(1), {
        raises = a_to_b.open_shared_counter(shared.token()).await.unwrap();
    });
    let write = || a_to_b.write_and_count(vec![1; 8], &remote, &raises);
    again!(runtime, shared.reach(1), write().await.unwrap());
    again!(runtime, shared.reach_each(2), write().await.unwrap());

    let (c, address) = (engine("c"), b.listen("127.0.0.1:0").unwrap());
    let mut events = b.next_event();
    let c_to_b;
    let accepted = again!(runtime, b.accept(), {
        c_to_b = c.connect(address).unwrap().await.unwrap();
    });
    assert_eq!(accepted.name(), "c");
    let connected = (&mut events).await.unwrap();
    assert!(matches!(connected, PeerEvent::Connected { peer, .. } if peer == accepted.id()), "{connected:?}");
    let lost = again!(runtime, events, drop((c_to_b, c)));
    assert!(!matches!(lost, PeerEvent::Connected { .. }), "{lost:?}");
}

/// While an engine does not run, requests to it get no answer.
async fn a_request_that_timed_out_is_awaited_again(runtime: Runtime) {
    let pair = pair().await;
    let Pair { a, b, a_to_b, b_to_a } = &pair;
    let memory = b.allocate(4096).await.unwrap();
    let published = b.publish_exposed(memory, Rights::READ, Access::Anyone).await.unwrap();
    let shared = b.open_counter(Access::Anyone).await.unwrap();
    let granted = a_to_b.grant(a.allocate(4096).await.unwrap(), Rights::WRITE).await.unwrap();
    b_to_a.remote(granted.token()).await.unwrap();

    let stalled = Stalled::new(&runtime, b_to_a, a_to_b).await;
    let mut sent = a_to_b.send("late");
    let mut flushed = a_to_b.flush();
    let mut opened = a_to_b.open(published.token());
    let mut raises = a_to_b.open_shared_counter(shared.token());
    let mut revoked = granted.begin_revoke(Duration::from_secs(60));
    for _ in 0..2 {
        assert!(runtime.within(BRIEF, &mut sent).await.is_none());
        assert!(runtime.within(BRIEF, &mut flushed).await.is_none());
        assert!(runtime.within(BRIEF, &mut opened).await.is_none());
        assert!(runtime.within(BRIEF, &mut raises).await.is_none());
        assert!(runtime.within(BRIEF, &mut revoked).await.is_none());
    }
    drop(stalled);
    sent.await.unwrap();
    flushed.await.unwrap();
    assert_eq!(opened.await.unwrap().len(), 4096);
    raises.await.unwrap();
    assert_eq!(revoked.await.unwrap().len(), 4096);
}

async fn a_connection_that_timed_out_is_awaited_again(runtime: Runtime) {
    let pair = pair().await;
    let Pair { b, a_to_b, b_to_a, .. } = &pair;
    let (c, address) = (engine("c"), b.listen("127.0.0.1:0").unwrap());
    let stalled = Stalled::new(&runtime, b_to_a, a_to_b).await;
    let mut connecting = c.connect(address).unwrap();
    for _ in 0..2 {
        assert!(runtime.within(BRIEF, &mut connecting).await.is_none());
    }
    drop(stalled);
    // A peer that has left before it is accepted is never accepted.
    let connected = connecting.await.unwrap();
    assert_eq!(connected.name(), "b");
    assert_eq!(b.accept().await.unwrap().name(), "c");
    // And one that is refused.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(c.connect(free).unwrap().await.unwrap_err().kind(), ErrorKind::Connect);
}
