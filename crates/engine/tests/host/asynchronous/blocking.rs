//! Starting an operation and awaiting it does not block an executor: another task of its only thread keeps
//! running.

use std::future::IntoFuture;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farreach::{Access, ErrorKind, Memory, Pending, Rights, Shared, TransferList};
use farreach_rail::RailCall;
use farreach_testkit::in_own_process;
use rustix::time::{ClockId, clock_gettime};

use super::runtime::{Runtime, Task, tokio_current_thread};
use super::wakers::Stalled;
use super::{BRIEF, engine, granted, pair};
use crate::hung_call::{self, Gate};
use crate::suite::{Pair, SOON};

/// A task that runs as long as its executor does.
struct Ticker {
    ticks: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    task: Task<()>,
}

impl Ticker {
    fn new(runtime: &Runtime) -> Self {
        let (ticks, is_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (ours, theirs) = ((ticks.clone(), is_over.clone()), runtime.clone());
        let task = runtime.spawn(async move {
            while !ours.1.load(Ordering::SeqCst) {
                ours.0.fetch_add(1, Ordering::SeqCst);
                theirs.within(BRIEF / 5, std::future::pending::<()>()).await;
            }
        });
        Self { ticks, is_over, task }
    }

    /// Returns when the task has run several times since now.
    async fn runs(&self, runtime: &Runtime) {
        let now = self.ticks.load(Ordering::SeqCst);
        runtime.until("ticks", || self.ticks.load(Ordering::SeqCst) > now + 5).await;
    }

    async fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.task.await.expect("it was not cancelled");
    }
}

/// Starts and awaits an operation that makes a slow call of a rail's library. A thread has waited for the
/// engine just before, so that none drives it now.
async fn slowly<T, E: std::fmt::Debug>(
    runtime: &Runtime,
    ticker: &Ticker,
    (pair, gate): (&Pair, &Gate),
    call: RailCall,
    start: impl FnOnce() -> Pending<T, E>,
) -> T {
    pair.a.allocate(64).wait(SOON).unwrap();
    gate.hold(call);
    let mut pending = start();
    assert!(runtime.within(BRIEF, &mut pending).await.is_none(), "{call:?} is held");
    runtime.until("the call", || gate.is_inside()).await;
    ticker.runs(runtime).await;
    gate.open();
    pending.into_future().await.unwrap()
}

async fn slow_calls_of_a_library(runtime: Runtime) {
    let (pair, gate) = hung_call::pair();
    let ticker = Ticker::new(&runtime);
    let (_grant, remote) = granted(&pair, 4096, Rights::WRITE).await;
    let address = pair.b.listen("127.0.0.1:0").unwrap();
    let at = || (&pair, &*gate);
    // Often, because a thread that drives the engine by chance hides a caller that would.
    for _ in 0..5 {
        slowly(&runtime, &ticker, at(), RailCall::Register, || pair.a.allocate(4096)).await;
        slowly(&runtime, &ticker, at(), RailCall::Register, || pair.a.allocate(1 << 20)).await;
        let vector = Memory::from_vec(vec![1; 4096]);
        slowly(&runtime, &ticker, at(), RailCall::Register, || pair.a.register(vector.memory())).await;
        let memory = pair.a.allocate(4096).await.unwrap();
        let grant = || pair.a_to_b.grant(memory, Rights::WRITE);
        slowly(&runtime, &ticker, at(), RailCall::MakeKey, grant).await;
        let mut list = TransferList::<Shared>::new();
        list.push(Memory::from_vec(vec![1; 4096]).share(), &remote);
        let prepare = || pair.a_to_b.prepare_write(list, None);
        slowly(&runtime, &ticker, at(), RailCall::Register, prepare).await;
        let connect = || pair.a.connect(address).unwrap();
        slowly(&runtime, &ticker, at(), RailCall::OpenLink, connect).await;
        pair.b.accept().await.unwrap();
    }
    ticker.end().await;
}

#[test]
fn slow_calls_of_a_library_block_no_executor() {
    tokio_current_thread(slow_calls_of_a_library);
}

async fn peers_that_do_not_answer(runtime: Runtime) {
    let pair = pair().await;
    let ticker = Ticker::new(&runtime);
    let Pair { a, a_to_b, b_to_a, .. } = &pair;
    let (_grant, remote) = granted(&pair, 4096, Rights::WRITE).await;

    // The kernel accepts the connection, and nobody else does.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut connecting = a.connect(silent.local_addr().unwrap()).unwrap();
    assert!(runtime.within(BRIEF, &mut connecting).await.is_none());
    ticker.runs(&runtime).await;

    let stalled = Stalled::new(&runtime, b_to_a, a_to_b).await;
    let grant = a_to_b.grant(a.allocate(1 << 20).await.unwrap(), Rights::WRITE).await.unwrap();
    ticker.runs(&runtime).await;
    drop(a.publish(a.allocate(4096).await.unwrap(), Access::Anyone).await.unwrap());
    drop(a_to_b.open_counter().await.unwrap());
    let mut list = TransferList::<Shared>::new();
    list.push(Memory::from_vec(vec![1; 4096]).share(), &remote);
    drop(a_to_b.prepare_write(list, None).await.unwrap());
    let mut revoking = grant.begin_revoke(SOON);
    assert!(runtime.within(BRIEF, &mut revoking).await.is_none());
    assert!(runtime.within(BRIEF, &mut connecting).await.is_none());
    ticker.runs(&runtime).await;
    drop(stalled);
    revoking.await.unwrap();
    ticker.end().await;
}

#[test]
fn peers_that_do_not_answer_block_no_executor() {
    tokio_current_thread(peers_that_do_not_answer);
}

fn cpu_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

async fn a_large_allocation(_: Runtime) {
    let engine = engine("a");
    let clocks = || [ClockId::ThreadCPUTime, ClockId::ProcessCPUTime].map(cpu_ns);
    let before = clocks();
    let allocating = engine.allocate(256 << 20);
    let started = clocks();
    let slice = allocating.await.unwrap();
    let ended = clocks();
    assert_eq!(slice.len(), 256 << 20);
    // Another thread zeroes the pages. Times of processors do not depend on what else runs.
    let (call, all) = (started[0] - before[0], ended[1] - before[1]);
    assert!(call < all / 4, "the call took {call} ns of {all} ns");
}

#[test]
fn a_large_allocation_blocks_no_executor() {
    in_own_process(&[], || tokio_current_thread(a_large_allocation));
}

async fn a_name(_: Runtime) {
    let (a, b) = (engine("a"), engine("b"));
    let address = b.listen("localhost:0").unwrap();
    let by_name = a.connect(("localhost", address.port())).unwrap().await;
    // `localhost` may have another first address than at the listener, on a host that changes.
    assert_eq!(by_name.unwrap().name(), "b");
    // A call that resolved it would fail.
    let unknown = a.connect("no..name:1").expect("it is not resolved yet");
    let error = unknown.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Address, "{error}");
    assert!(error.to_string().contains("no..name:1"), "{error}");
    // Nobody waits for the result.
    drop(a.connect(format!("localhost:{}", address.port())).unwrap());
    drop(a.connect("no..name:1").unwrap());
}

#[test]
fn a_name_blocks_no_executor() {
    tokio_current_thread(a_name);
}
