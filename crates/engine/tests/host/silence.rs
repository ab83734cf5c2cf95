//! A peer that does not answer ends every wait for it, and a wait for a peer that answers goes on.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use farreach::{CounterToken, ErrorKind, GrantToken, Pending, Rights, Settings};
use farreach_sim::SimCard;

use crate::over_simulation::over;
use crate::suite::{Pair, SOON};

const SILENCE: Duration = Duration::from_millis(600);
/// Longer than any wait may take, and shorter than the interval of pings to idle peers.
const BLOCKED: Duration = Duration::from_secs(3);

struct Blocks;

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        thread::sleep(BLOCKED);
    }
}

/// Connects two engines. The second one answers nothing for a while: a waker blocks its worker.
fn with_a_silent_peer(test: impl FnOnce(&Pair)) {
    let settings = || Settings::new().heartbeat(SILENCE / 6).peer_timeout(SILENCE);
    let pair = Pair::of(over(vec![SimCard::tcp()], settings()), over(vec![SimCard::tcp()], settings()));
    // Nothing waits: neither side is lost, however long that is.
    thread::sleep(2 * SILENCE);
    let waker = Waker::from(Arc::new(Blocks));
    let mut message = pin!(pair.b_to_a.recv());
    assert!(message.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    pair.a_to_b.send("block").wait(SOON).unwrap();
    // The message is held before the waker runs.
    thread::sleep(SILENCE / 6);
    test(&pair);
}

fn assert_ends<T: std::fmt::Debug>(mut wait: Pending<T>) {
    let begin = Instant::now();
    let error = wait.wait(BLOCKED).unwrap_err();
    let elapsed = begin.elapsed();
    assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
    assert!((SILENCE / 2..3 * SILENCE).contains(&elapsed), "it took {elapsed:?}");
}

#[test]
fn a_wait_for_a_message_ends() {
    with_a_silent_peer(|pair| assert_ends(pair.a_to_b.recv()));
}

#[test]
fn a_wait_for_pages_ends() {
    with_a_silent_peer(|pair| {
        let counter = pair.a_to_b.open_counter().wait(SOON).unwrap();
        assert_ends(counter.reach(1));
    });
}

#[test]
fn a_wait_for_a_grant_ends() {
    let token: GrantToken = "g-7".parse().unwrap();
    with_a_silent_peer(|pair| assert_ends(pair.a_to_b.remote(token)));
}

#[test]
fn a_wait_for_a_counter_ends() {
    let token: CounterToken = "c-7".parse().unwrap();
    with_a_silent_peer(|pair| assert_ends(pair.a_to_b.remote_counter(token)));
}

#[test]
fn a_task_that_waits_is_woken() {
    with_a_silent_peer(|pair| {
        let waiting = thread::current();
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(waiting)));
        let (begin, mut message) = (Instant::now(), pin!(pair.a_to_b.recv()));
        while message.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            thread::park_timeout(BLOCKED);
        }
        assert!(begin.elapsed() < 3 * SILENCE, "it took {:?}", begin.elapsed());
    });
}

/// Nobody has to wait for the loss to be noticed by one who only looks.
#[test]
fn one_who_only_looks_is_told() {
    with_a_silent_peer(|pair| {
        let begin = Instant::now();
        while pair.a_to_b.recv().try_take().is_none() {
            assert!(begin.elapsed() < 4 * SILENCE, "it took {:?}", begin.elapsed());
            thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn a_wait_for_a_peer_that_answers_goes_on() {
    let settings = || Settings::new().heartbeat(SILENCE / 6).peer_timeout(SILENCE);
    let pair = Pair::of(over(vec![SimCard::tcp()], settings()), over(vec![SimCard::tcp()], settings()));
    let (_granted, _remote) = pair.granted(4096, Rights::WRITE);
    let error = pair.a_to_b.recv().wait(4 * SILENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(pair.a_to_b.lost().is_none() && pair.b_to_a.lost().is_none());
}
