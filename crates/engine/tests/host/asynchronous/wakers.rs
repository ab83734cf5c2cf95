//! Wakers that are replaced, called late, or shared.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;

use farreach::{Peer, Pending, Rights};
use farreach_testkit::wait_for;

use super::runtime::Runtime;
use super::{counter, granted, on_each_executor, pair};

on_each_executor! {
    a_future_that_moves_between_tasks_wakes_the_last_one;
    many_futures_wait_for_one_counter;
    a_task_blocks_on_another_thread_that_awaits;
}

/// Counts how often it wakes.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicUsize);

impl Count {
    pub(super) fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// An engine that does not run: its worker is in a waker that blocks. It runs again when this is dropped.
pub(super) struct Stalled(Arc<Gate>);

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    has_opened: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    is_inside: bool,
    is_open: bool,
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock().unwrap();
        state.is_inside = true;
        drop(self.has_opened.wait_while(state, |state| !state.is_open).unwrap());
    }
}

impl Stalled {
    /// Stalls the engine of `peer`, whose other side is `other`, until this is dropped. No other waker may
    /// be run by the engine's worker meanwhile, and no thread may wait for the engine.
    pub(super) async fn new(runtime: &Runtime, peer: &Peer, other: &Peer) -> Self {
        let gate = Arc::new(Gate::default());
        let mut message = peer.recv();
        let waker = Waker::from(Arc::clone(&gate));
        assert!(Pin::new(&mut message).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        drop(other.send("stall"));
        runtime.until("the worker is in the waker", || gate.state.lock().unwrap().is_inside).await;
        // The message is there.
        assert!(matches!(message.try_take(), Some(Ok(_))));
        Self(gate)
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().is_open = true;
        self.0.has_opened.notify_all();
    }
}

fn polled<T, E>(pending: &mut Pending<T, E>, waker: &Arc<Count>) -> bool {
    let waker = Waker::from(Arc::clone(waker));
    Pin::new(pending).poll(&mut Context::from_waker(&waker)).is_ready()
}

async fn a_future_that_moves_between_tasks_wakes_the_last_one(runtime: Runtime) {
    let pair = pair().await;
    let (counter, raises) = counter(&pair).await;
    let (_grant, remote) = granted(&pair, 4096, Rights::WRITE).await;
    let wakers: [Arc<Count>; 2] = Default::default();
    for round in 1..=20 {
        let mut reached = counter.reach(round);
        let mut received = pair.b_to_a.recv();
        // In turn, so that each waker is replaced and comes again.
        for turn in 0..5 {
            assert!(!polled(&mut reached, &wakers[turn % 2]) && !polled(&mut received, &wakers[turn % 2]));
        }
        let (first, last) = (wakers[1].woken(), wakers[0].woken());
        pair.a_to_b.write_and_count(vec![1; 8], &remote, &raises).await.unwrap();
        pair.a_to_b.send("wake up").await.unwrap();
        runtime.until("the last waker", || wakers[0].woken() >= last + 2).await;
        assert_eq!(wakers[1].woken(), first, "it was replaced");
        // The future goes on in another task, and is ready there.
        let (reached, received) = (runtime.spawn(reached), runtime.spawn(received));
        reached.await.expect("it was not cancelled").unwrap();
        assert_eq!(received.await.expect("it was not cancelled").unwrap(), b"wake up");
    }
    drop(pair);
    runtime.until("the engine keeps no waker", || wakers.iter().all(|it| Arc::strong_count(it) == 1)).await;
}

async fn many_futures_wait_for_one_counter(runtime: Runtime) {
    const WAITS: u64 = 2000;
    let pair = pair().await;
    let (counter, raises) = counter(&pair).await;
    let (_grant, remote) = granted(&pair, 4096, Rights::WRITE).await;
    let waits: Vec<_> = (0..WAITS).map(|number| runtime.spawn(counter.reach(1 + number % 10))).collect();
    for _ in 0..10 {
        pair.a_to_b.write_and_count(vec![1; 8], &remote, &raises).await.unwrap();
    }
    for wait in waits {
        wait.await.expect("it was not cancelled").unwrap();
    }
}

/// As a program does that calls asynchronous code from code that is not.
async fn a_task_blocks_on_another_thread_that_awaits(runtime: Runtime) {
    let pair = pair().await;
    let (message, peer) = (pair.b_to_a.recv(), pair.a_to_b.clone());
    let other = thread::spawn(move || {
        futures_executor::block_on(async {
            peer.send("from the other thread").await.unwrap();
            message.await.unwrap()
        })
    });
    runtime.until("the end of the thread", || other.is_finished()).await;
    assert_eq!(other.join().unwrap(), b"from the other thread");
    // And on this one, which keeps its executor.
    let message = pair.a_to_b.recv();
    drop(pair.b_to_a.send("blocks"));
    let received = thread::scope(|scope| scope.spawn(|| futures_executor::block_on(message)).join().unwrap());
    assert_eq!(received.unwrap(), b"blocks");
}

/// A waker that is called when its future has been dropped does nothing, and is freed.
#[test]
fn a_waker_that_comes_after_the_drop_is_freed() {
    futures_executor::block_on(async {
        let pair = pair().await;
        let count = Arc::new(Count::default());
        for _ in 0..200 {
            let mut message = pair.b_to_a.recv();
            assert!(!polled(&mut message, &count));
            let sent = pair.a_to_b.send("late");
            drop(message);
            sent.await.unwrap();
            assert_eq!(pair.b_to_a.recv().await.unwrap(), b"late");
        }
        wait_for("the end of the wakers", || (Arc::strong_count(&count) == 1).then_some(()));
    });
}

/// A runtime that is dropped drops its tasks, and with them the futures. The engine continues.
#[test]
fn a_runtime_that_is_shut_down_leaves_the_engine_running() {
    for threads in [1, 2] {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let tokio = builder.worker_threads(threads).enable_time().build().unwrap();
        let pair = Arc::new(futures_executor::block_on(pair()));
        let (grant, remote) = futures_executor::block_on(granted(&pair, 1 << 20, Rights::WRITE));
        for number in 0..200_u64 {
            let (pair, remote) = (Arc::clone(&pair), remote.at(number * 4096));
            tokio.spawn(async move {
                loop {
                    pair.a_to_b.write(vec![number as u8; 4096], &remote).await.unwrap();
                    drop(pair.a_to_b.recv().await);
                }
            });
        }
        drop(tokio);
        assert_eq!(Arc::strong_count(&pair), 1, "all tasks were dropped");
        futures_executor::block_on(async {
            pair.a_to_b.write(vec![9; 4096], &remote).await.unwrap();
            pair.b_to_a.send("still here").await.unwrap();
            assert_eq!(pair.a_to_b.recv().await.unwrap(), b"still here");
        });
        let mut byte = [0];
        grant.read_at(0, &mut byte);
        assert_eq!(byte, [9]);
    }
}
