//! Futures that are dropped at any point, thousands of transfers, and tokens of closed counters:
//! they leave nothing behind.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use farreach::{ErrorKind, PageMap, Rights, Transfer};
use farreach_testkit::wait_for;
use rand_mt::Mt;

use super::pair::{Pair, RailUnderTest, SOON};

/// The memory of an idle peer, and of the places of its window, which stay.
const MEMORY_MAX: usize = (8 + 256) << 10;

/// Wakes a thread, and counts.
struct Count {
    thread: thread::Thread,
    woken: AtomicUsize,
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Polls a future at most this many times and drops it, done or not.
fn poll_and_drop<F: Future + Unpin>(mut future: F, polls: u32) {
    let count = Arc::new(Count { thread: thread::current(), woken: AtomicUsize::new(0) });
    let waker = Waker::from(Arc::clone(&count));
    for _ in 0..polls {
        if Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_ready() {
            return;
        }
        thread::park_timeout(Duration::from_micros(100));
    }
    drop(future);
    drop(waker);
    // The engine may hold a waker for a moment that it is about to run.
    wait_for("the end of the waker", || (Arc::strong_count(&count) == 1).then_some(()));
}

pub(crate) fn futures_may_be_dropped_at_any_point(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(64 << 10, Rights::WRITE | Rights::READ);
    let (arrived, raises) = pair.counter();
    let map = PageMap::of(4096).first(16);
    let (mut random, mut pages) = (Mt::new(5), 0);
    for round in 0..200 {
        let polls = random.next_u32() % 4;
        let memory = || pair.a.allocate(64 << 10).wait(SOON).unwrap();
        match round % 9 {
            0 => {
                pages += 16;
                poll_and_drop(pair.a_to_b.write_pages(memory(), &map, &remote, Some(&raises)), polls);
            }
            1 => poll_and_drop(pair.a_to_b.read_pages(&remote, &map, memory()), polls),
            2 => poll_and_drop(pair.a_to_b.remote(granted.token()), polls),
            3 => poll_and_drop(pair.a_to_b.remote_counter(arrived.token()), polls),
            4 => poll_and_drop(pair.a_to_b.recv(), polls),
            5 => poll_and_drop(pair.a_to_b.grant(memory(), Rights::WRITE), polls),
            6 => poll_and_drop(pair.a_to_b.open_counter(), polls),
            7 => poll_and_drop(pair.a.allocate(64 << 10), polls),
            _ => {
                let granted = pair.a_to_b.grant(memory(), Rights::READ).wait(SOON).unwrap();
                poll_and_drop(granted.begin_revoke(SOON), polls);
            }
        }
    }
    // Operations that were begun are done nevertheless, and both engines continue.
    arrived.reach(pages).wait(SOON).unwrap();
    pair.b_to_a.send("both go on").wait(SOON).unwrap();
    assert_eq!(pair.a_to_b.recv().wait(SOON).unwrap(), b"both go on");
    assert!(
        pair.a_to_b.lost().is_none() && pair.a_to_b.link_errors().is_empty(),
        "{:?}",
        pair.a_to_b.link_errors()
    );
}

pub(crate) fn thousands_of_transfers_leave_no_memory(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(64 << 10, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let (source, map) = (pair.source(64 << 10, 1).share(), PageMap::of(4096).first(1));
    let begin = |_| pair.a_to_b.write_pages(source.clone(), &map, &remote, Some(&raises));
    let mut transfers: Vec<Transfer> = (0..4000).map(begin).collect();
    for transfer in transfers.iter().step_by(3) {
        transfer.abort();
    }
    let mut whole = 0;
    for transfer in transfers.iter_mut().rev() {
        match transfer.wait(SOON) {
            Ok(_) => whole += 1,
            Err(error) => assert_eq!(error.error.kind(), ErrorKind::Aborted),
        }
    }
    wait_for("the pages of whole transfers", || (arrived.reached() >= whole).then_some(()));
    let waiting: Vec<_> = (0..4000).map(|_| pair.a_to_b.recv()).collect();
    drop((waiting, transfers));
    for peer in [&pair.a_to_b, &pair.b_to_a] {
        let memory = peer.memory().unwrap();
        assert!(memory <= MEMORY_MAX, "{memory} bytes are held for nothing");
    }
}

pub(crate) fn an_engine_may_be_dropped_in_a_waker(provider: &RailUnderTest) {
    for is_waited_for in [true, false] {
        let Pair { a, b, a_to_b, b_to_a } = Pair::new(provider);
        let ours = Mutex::new(Some((a, a_to_b.clone())));
        let was_called = Arc::new(AtomicUsize::new(0));
        let waker = Waker::from(Arc::new(DropsAll { ours, was_called: Arc::clone(&was_called) }));
        let mut received = a_to_b.recv();
        assert!(Pin::new(&mut received).poll(&mut Context::from_waker(&waker)).is_pending());
        b_to_a.send("wake up").wait(SOON).unwrap();
        wait_for("the waker", || (was_called.load(Ordering::SeqCst) > 0).then_some(()));
        if is_waited_for {
            assert_eq!(received.wait(SOON).unwrap(), b"wake up");
        }
        drop((received, a_to_b));
        wait_for("the end of the peer", || b_to_a.lost().map(drop));
        drop(b);
    }
}

struct DropsAll<T> {
    ours: Mutex<Option<T>>,
    was_called: Arc<AtomicUsize>,
}

impl<T: Send + 'static> Wake for DropsAll<T> {
    fn wake(self: Arc<Self>) {
        drop(self.ours.lock().unwrap().take());
        self.was_called.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) fn a_token_of_a_counter_that_is_closed_raises_no_other(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(4096, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let (stale, map) = (arrived.token(), PageMap::of(8).first(4));
    drop(arrived);
    // More than an epoch of a few bits could distinguish.
    for _ in 0..300 {
        let other = pair.b_to_a.open_counter().wait(SOON).unwrap();
        assert_ne!(other.token(), stale);
    }
    let others: Vec<_> = (0..4).map(|_| pair.b_to_a.open_counter().wait(SOON).unwrap()).collect();
    let written = pair.a_to_b.write_pages(pair.source(4096, 1), &map, &remote, Some(&raises)).wait(SOON);
    drop(written);
    // The message arrives after all immediates of the write.
    pair.a_to_b.send("written").wait(SOON).unwrap();
    pair.b_to_a.recv().wait(SOON).unwrap();
    for other in &others {
        assert_eq!(other.reached(), 0, "{} was raised by pages for {stale}", other.token());
    }
}
