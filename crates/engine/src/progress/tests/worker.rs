//! Tests of the worker: it leads when no other thread does, and does not disturb waiters.

use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use super::*;
use crate::progress::oneshot::Closed;

/// Polls a oneshot as an executor does; this thread never leads.
pub(super) fn block_on(rig: &Rig, oneshot: oneshot::Receiver<u64>) -> Result<u64, Closed> {
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(Arc::clone(&parker));
    let mut oneshot = pin!(oneshot);
    loop {
        if let Poll::Ready(end) = oneshot.as_mut().poll(&mut Context::from_waker(&waker)) {
            return end;
        }
        rig.progress.call_worker();
        parker.park(Some(patience()));
    }
}

#[test]
fn futures_are_answered() {
    for progress in [Progress::Busy, Progress::Event, Progress::Adaptive] {
        let rig = Rig::with_worker(progress);
        for number in 0..500 {
            assert_eq!(block_on(&rig, rig.submit(Command::AskPeer)), Ok(number));
        }
    }
}

/// The first future after a wait: the worker leads as soon as it is called, not after its retry
/// interval.
#[test]
fn the_worker_comes_when_called() {
    let rig = Rig::with_worker(Progress::Adaptive);
    let mut times: Vec<_> = (0..200)
        .map(|_| {
            rig.wait(&rig.submit(Command::AskPeer));
            let begun = Instant::now();
            block_on(&rig, rig.submit(Command::AskPeer)).unwrap();
            begun.elapsed()
        })
        .collect();
    times.sort();
    // With retries alone, none would be this fast. On a busy machine not all are.
    assert!(times[20] < backoff::WORKER_RETRY / 2, "nine of ten took {:?} or more", times[20]);
}

#[test]
fn an_idle_engine_sleeps() {
    for progress in [Progress::Event, Progress::Adaptive] {
        let rig = Rig::with_worker(progress);
        block_on(&rig, rig.submit(Command::AskPeer)).unwrap();
        let seen = || (rig.log.steps(), rig.log.sleeps.load(Ordering::Relaxed));
        let (mut before, deadline) = ((0, 0), patience());
        // The engine has to make no step for a fifth of a second.
        while before != seen() {
            assert!(Instant::now() < deadline, "it never sleeps");
            before = seen();
            thread::sleep(Duration::from_millis(200));
        }
        assert!(before.1 > 0);
    }
}

/// One thread asks the peer again and again. It leads itself, and the worker hardly ever does.
#[test]
fn the_worker_is_not_in_the_way_of_who_waits() {
    let rig = Rig::with_worker(Progress::Adaptive);
    rig.wait(&rig.submit(Command::AskPeer));
    let (own, all) = (rig.log.steps_by(thread::current().id()), rig.log.steps());
    for _ in 0..2000 {
        rig.wait(&rig.submit(Command::AskPeer));
    }
    let (own, all) = (rig.log.steps_by(thread::current().id()) - own, rig.log.steps() - all);
    assert!(own * 4 > all * 3, "{own} of {all} steps");
}

/// A thread waits without an event until the worker rests. The worker leads again after that wait.
#[test]
fn the_worker_takes_over_when_who_waited_is_gone() {
    let rig = Rig::with_worker(Progress::Adaptive);
    let (_never, never) = oneshot::channel::<u64>();
    rig.progress.wait(&never, Instant::now() + 20 * backoff::WORKER_RETRY).unwrap();
    let asked = rig.submit(Command::AskPeer);
    let deadline = patience();
    while !asked.is_ready() {
        assert!(Instant::now() < deadline, "nobody drives");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The thread that has led runs the waker, after it has stepped down.
#[test]
fn a_waker_may_wait_for_the_engine_itself() {
    struct Asks(Arc<Rig>, AtomicU64);
    impl Wake for Asks {
        fn wake(self: Arc<Self>) {
            let answer = self.0.wait(&self.0.submit(Command::AskPeer));
            self.1.store(answer, Ordering::Release);
        }
    }
    for mut number in [0, 10] {
        let rig = Arc::new(Rig::with_worker(Progress::Adaptive));
        let asks = Arc::new(Asks(Arc::clone(&rig), AtomicU64::new(0)));
        let others: Vec<_> = (0..number).map(|_| rig.submit(Command::AskPeer)).collect();
        let oneshot = rig.submit(Command::AskPeer);
        oneshot.listen(&Listener::Task(Waker::from(Arc::clone(&asks))));
        if oneshot.is_ready() {
            // The answer arrived before the listener was registered.
            continue;
        }
        rig.progress.call_worker();
        for other in &others {
            rig.wait(other);
        }
        number += 1;
        let deadline = patience();
        while asks.1.load(Ordering::Acquire) != number {
            assert!(Instant::now() < deadline, "it waits for itself");
            thread::yield_now();
        }
    }
}

/// A waker may hold the last reference to the engine.
#[test]
fn a_waker_can_stop_the_worker_that_runs_it() {
    struct Stop(Arc<LeaderFollowers<Asker>>, AtomicBool);
    impl Wake for Stop {
        fn wake(self: Arc<Self>) {
            Arc::clone(&self.0).stop(PATIENCE);
            self.1.store(true, Ordering::Release);
        }
    }
    let rig = Rig::with_worker(Progress::Adaptive);
    let stop = Arc::new(Stop(Arc::clone(&rig.progress), AtomicBool::new(false)));
    let oneshot = rig.submit(Command::AskPeer);
    oneshot.listen(&Listener::Task(Waker::from(Arc::clone(&stop))));
    if !oneshot.is_ready() {
        rig.progress.call_worker();
        let deadline = patience();
        while !stop.1.load(Ordering::Acquire) {
            assert!(Instant::now() < deadline, "it waits for itself");
            thread::yield_now();
        }
    }
}

#[test]
fn stopping_twice_is_stopping_once() {
    let rig = Rig::with_worker(Progress::Event);
    Arc::clone(&rig.progress).stop(PATIENCE);
    Arc::clone(&rig.progress).stop(PATIENCE);
    assert_eq!(rig.wait(&rig.submit(Command::AskPeer)), 0, "whoever waits still drives");
}
