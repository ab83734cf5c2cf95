//! Orderly and other ends: what was reported stays true, every wait ends, and nothing is left
//! behind.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use farreach::{ErrorKind, PageMap, Peer, Rights};
use farreach_testkit::wait_for;

use super::pair::{Pair, RailUnderTest, SOON, counter, grant, join, settings};
use super::peers::block_on;

/// An engine may end as soon as its message is reported as sent. `FARREACH_LAST_MESSAGES` sets
/// the number of rounds.
pub(crate) fn the_last_message_arrives(provider: &RailUnderTest) {
    let rounds = std::env::var("FARREACH_LAST_MESSAGES").map_or(10, |count| count.parse().expect("a number"));
    let b = provider.engine("b");
    for round in (0..rounds).map(|round: u32| round % 10) {
        let a = provider.engine("a");
        let (a_to_b, b_to_a) = join(&a, &b);
        for number in 0..round {
            // These are not waited for, and arrive before the one that is.
            drop(a_to_b.send(number.to_le_bytes()));
        }
        a_to_b.send("the last word").wait(SOON).unwrap();
        drop((a_to_b, a));
        for number in 0..round {
            assert_eq!(b_to_a.recv().wait(SOON).unwrap(), number.to_le_bytes());
        }
        assert_eq!(b_to_a.recv().wait(SOON).unwrap(), b"the last word");
        let lost = b_to_a.recv().wait(SOON);
        assert_eq!(lost.unwrap_err().kind(), ErrorKind::PeerLost);
    }
}

/// A confirmation may wait for the answer to its message. An engine that ends gives none.
pub(crate) fn what_an_engine_that_ends_has_received_is_confirmed(provider: &RailUnderTest) {
    let a = provider.engine("a");
    for round in 0..5 {
        let b = provider.engine("b");
        let (a_to_b, b_to_a) = join(&a, &b);
        // Each message is answered, so that the next one is expected to be.
        for _ in 0..8 {
            for (from, to) in [(&a_to_b, &b_to_a), (&b_to_a, &a_to_b)] {
                drop(from.send("again"));
                to.recv().wait(SOON).unwrap();
            }
        }
        let mut last = a_to_b.send("the last one");
        b_to_a.recv().wait(SOON).unwrap();
        drop((b_to_a, b));
        let sent = last.wait(SOON);
        assert!(sent.is_ok(), "round {round}: {sent:?}");
    }
}

/// Keeps the thread that drives an engine.
struct Late;

impl Wake for Late {
    fn wake(self: Arc<Self>) {
        thread::sleep(Duration::from_millis(100));
    }
}

/// An engine may end as soon as its pages are reported as written. The receiver has counted none of
/// them: its thread was kept by something else, and finds them together with the goodbye.
pub(crate) fn the_last_pages_are_counted(provider: &RailUnderTest) {
    const PAGES: u32 = 16;
    let b = provider.engine("b");
    for round in 0..3 {
        let a = provider.engine("a");
        let (a_to_b, b_to_a) = join(&a, &b);
        let (_grant, remote) = grant(&b, &b_to_a, &a_to_b, PAGES as usize * 4096, Rights::WRITE);
        let (counter, raises) = counter(&b_to_a, &a_to_b);
        let source = a.allocate(PAGES as usize * 4096).wait(SOON).unwrap();
        let mut message = pin!(b_to_a.recv());
        let waker = Waker::from(Arc::new(Late));
        assert!(message.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(a_to_b.send("something else"));
        // Where the receiver takes part in a write, this waits for its thread.
        let map = PageMap::of(4096).first(PAGES);
        thread::sleep(Duration::from_millis(20));
        a_to_b.write_pages(source, &map, &remote, Some(&raises)).wait(SOON).unwrap();
        drop((a_to_b, remote, raises, a));
        let reached = counter.reach(PAGES.into()).wait(SOON);
        assert!(reached.is_ok(), "round {round}: {reached:?}, {} are counted", counter.reached());
    }
}

pub(crate) fn whoever_closes_waits_until_its_messages_are_held(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    for number in 0..40_u32 {
        drop(pair.a_to_b.send(number.to_le_bytes()));
    }
    pair.a_to_b.flush().wait(SOON).unwrap();
    for number in 40..50_u32 {
        drop(pair.a_to_b.send(number.to_le_bytes()));
    }
    let clone = pair.a_to_b.clone();
    pair.a_to_b.close(SOON).unwrap();
    assert!(clone.lost().is_some());
    assert_eq!(clone.flush().wait(SOON).unwrap_err().kind(), ErrorKind::PeerLost);
    for number in 0..50_u32 {
        assert_eq!(pair.b_to_a.recv().wait(SOON).unwrap(), number.to_le_bytes());
    }
    let lost = pair.b_to_a.recv().wait(SOON).unwrap_err();
    assert!(lost.to_string().contains("closed the connection"), "{lost}");
}

pub(crate) fn an_engine_that_is_closed_leaves_all_its_peers(provider: &RailUnderTest) {
    let hub = provider.engine("hub");
    let spokes: Vec<_> = (0..3).map(|number| provider.engine(&format!("spoke {number}"))).collect();
    let joined: Vec<(Peer, Peer)> = spokes.iter().map(|spoke| join(&hub, spoke)).collect();
    for (hub_to_spoke, _) in &joined {
        drop(hub_to_spoke.send("the last word"));
    }
    hub.close(SOON).unwrap();
    for (hub_to_spoke, spoke_to_hub) in &joined {
        assert!(hub_to_spoke.lost().is_some());
        assert_eq!(spoke_to_hub.recv().wait(SOON).unwrap(), b"the last word");
    }
}

pub(crate) fn a_peer_keeps_its_engine_going(provider: &RailUnderTest) {
    let Pair { a, b, a_to_b, b_to_a } = Pair::new(provider);
    drop((a, b));
    block_on(async {
        a_to_b.send("are you there?").await.unwrap();
        assert_eq!(b_to_a.recv().await.unwrap(), b"are you there?");
    });
    // A thread that waits when the last handle of the other side is dropped gets an error.
    let waiting = thread::spawn(move || block_on(b_to_a.recv()));
    thread::sleep(Duration::from_millis(20));
    drop(a_to_b);
    let lost = waiting.join().unwrap();
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::PeerLost);
}

pub(crate) fn a_grant_that_was_handed_back_is_revoked_again(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    for patience in [0, 1, 5, 50] {
        let (granted, _remote) = pair.granted(64 * 1024, Rights::WRITE);
        let mut revoked = granted.begin_revoke(SOON);
        let memory = match revoked.wait(Duration::from_millis(patience)) {
            Ok(memory) => memory,
            Err(error) => {
                let granted = error.grant.expect("it is handed back");
                // The engine has finished the revoke meanwhile, and this side holds the grant.
                thread::sleep(Duration::from_millis(20));
                granted.write_at(0, b"ours as well");
                granted.revoke(SOON).expect("nobody else has it")
            }
        };
        assert_eq!(memory.len(), 64 * 1024);
    }
    // A wait that times out at the moment of the engine's answer returns either the grant or the
    // memory.
    for round in 0..40 {
        let (granted, _remote) = pair.granted(4096, Rights::WRITE);
        let patience = Duration::from_micros(round * 37 % 1000);
        if let Err(error) = granted.begin_revoke(SOON).wait(patience) {
            error.grant.expect("it is handed back").revoke(SOON).expect("nobody else has it");
        }
    }
}

pub(crate) fn a_revoke_that_nobody_waits_for_keeps_no_peer(provider: &RailUnderTest) {
    let hub = provider.engine("hub");
    for wait in [None, Some(Duration::ZERO)] {
        let spoke = provider.engine("spoke");
        let (spoke_to_hub, hub_to_spoke) = join(&spoke, &hub);
        let (granted, remote) = grant(&hub, &hub_to_spoke, &spoke_to_hub, 4096, Rights::WRITE);
        let mut revoked = granted.begin_revoke(Duration::from_millis(1));
        if let Some(wait) = wait {
            drop(revoked.wait(wait));
        }
        drop((revoked, remote, hub_to_spoke, spoke_to_hub, spoke));
        wait_for("the end of the peer", || (hub.peer_count().unwrap() == 0).then_some(()));
    }
}

pub(crate) fn a_grant_outlives_the_handle_on_its_peer(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let other = provider.engine("other");
    let (_other_to_b, b_to_other) = join(&other, &pair.b);
    let (granted, remote) = pair.granted(64 * 1024, Rights::WRITE);
    let Pair { a, b: _b, a_to_b, b_to_a } = pair;
    drop(b_to_a);
    let source = a.allocate(64 * 1024).wait(SOON).unwrap();
    let map = PageMap::of(4096).first(16);
    a_to_b.write_pages(source, &map, &remote, None).wait(SOON).unwrap();
    granted.revoke(SOON).unwrap();
    assert!(
        b_to_other.lost().is_none() && b_to_other.link_errors().is_empty(),
        "{:?}",
        b_to_other.link_errors()
    );
}

struct Does<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Does<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Does(wake)))
}

pub(crate) fn a_waker_that_waits_or_panics_ends_nothing(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (engine, peer, is_done) = (pair.a.clone(), pair.a_to_b.clone(), Arc::new(AtomicBool::new(false)));
    let waits = {
        let is_done = Arc::clone(&is_done);
        waker(move || {
            // The thread that runs this has to lead itself, if no other thread does.
            let (asked, waited) = (engine.peer_count(), peer.send("by a waker").wait(SOON));
            is_done.store(matches!(asked, Ok(1)) && waited.is_ok(), Ordering::SeqCst);
        })
    };
    // Without the panic hook: with backtraces it takes longer than the peer timeout (seconds in an
    // emulated guest).
    let wakers = [waits, waker(|| resume_unwind(Box::new("in a waker")))];
    let begin = Instant::now();
    for waker in wakers {
        let mut future = pin!(pair.a_to_b.recv());
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        pair.b_to_a.send("wake up").wait(SOON).unwrap();
        let mut received = pair.a_to_b.recv();
        wait_for("the message", || received.wait(Duration::from_millis(10)).ok());
    }
    assert!(begin.elapsed() < SOON / 2, "{:?}", begin.elapsed());
    wait_for("the first waker", || is_done.load(Ordering::SeqCst).then_some(()));
    assert_eq!(pair.b_to_a.recv().wait(SOON).unwrap(), b"by a waker");
    pair.a_to_b.send("both go on").wait(SOON).unwrap();
    assert_eq!(pair.b_to_a.recv().wait(SOON).unwrap(), b"both go on");
}

pub(crate) fn no_time_is_too_long_for_a_wait(provider: &RailUnderTest) {
    let patient = |name| (provider.open)(settings(name).heartbeat(Duration::MAX).peer_timeout(Duration::MAX));
    let pair = Pair::of(patient("a"), patient("b"));
    let (granted, remote) = pair.granted(4096, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let map = PageMap::of(4096).first(1);
    let mut transfer = pair.a_to_b.write_pages(pair.source(4096, 1), &map, &remote, Some(&raises));
    transfer.wait(Duration::MAX).unwrap();
    arrived.reach(1).wait(Duration::MAX).unwrap();
    arrived.reach(1).wait(Duration::MAX).unwrap();
    granted.revoke(Duration::MAX).unwrap();
    let again = catch_unwind(AssertUnwindSafe(|| transfer.wait(Duration::MAX).is_ok())).unwrap_err();
    // A `String` if the result was there when the transfer was started, and else a `&str`.
    let told = again.downcast_ref::<String>().map(String::as_str).or(again.downcast_ref::<&str>().copied());
    assert!(told.is_some_and(|told| told.contains("taken before")), "{told:?}");
}
