//! Futures that are dropped at every point leave nothing behind: no mapping, no descriptor, no peer, no
//! waker, and no bytes for a peer.

use std::fs;
use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use farreach::{
    Access, Counter, Engine, Grant, Memory, PageMap, Publication, RemoteCounter, RemoteSlice, Rights, Shared,
    SharedCounter, Slice, TransferList,
};
use farreach_testkit::in_own_process;

use super::runtime::{Runtime, thread_pool, tokio_current_thread, tokio_multi_thread};
use super::wakers::Count;
use super::{counter, granted, pair};
use crate::suite::{Pair, SOON};

/// A point at which a future is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    BeforeThePoll,
    AfterOnePoll,
    /// With time for other tasks and for the engine in between.
    AfterPolls(u32),
    /// It has woken its task, or had its result at once, and was not polled again.
    WhenItIsDone,
    /// A thread drops it while the engine may be about to finish it.
    ByAnotherThread,
}

const POINTS: [Point; 6] = [
    Point::BeforeThePoll,
    Point::AfterOnePoll,
    Point::AfterPolls(2),
    Point::AfterPolls(10),
    Point::WhenItIsDone,
    Point::ByAnotherThread,
];

type Dropped = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Two engines, and what operations need.
struct World {
    pair: Pair,
    grant: Grant,
    remote: RemoteSlice,
    counter: Counter,
    raises: RemoteCounter,
    published: Publication,
    shared: SharedCounter,
    silent: TcpListener,
    listening: std::net::SocketAddr,
}

const LEN: usize = 64 << 10;

impl World {
    async fn new() -> Self {
        let pair = pair().await;
        let (grant, remote) = granted(&pair, LEN, Rights::READ | Rights::WRITE | Rights::ATOMIC).await;
        let (counter, raises) = counter(&pair).await;
        let memory = pair.b.allocate(4096).await.unwrap();
        let published = pair.b.publish_exposed(memory, Rights::READ, Access::Anyone).await.unwrap();
        let shared = pair.b.open_counter(Access::Anyone).await.unwrap();
        // What was opened stays open.
        pair.a_to_b.open(published.token()).await.unwrap();
        pair.a_to_b.open_shared_counter(shared.token()).await.unwrap();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let listening = pair.b.listen("127.0.0.1:0").unwrap();
        Self { pair, grant, remote, counter, raises, published, shared, silent, listening }
    }

    /// Starts an operation of each kind. The second value says that it ends by itself.
    async fn start(&self, kind: usize) -> Option<(&'static str, bool, Dropped)> {
        let Pair { a, b, a_to_b, b_to_a } = &self.pair;
        let vector = || vec![kind as u8; LEN];
        let map = PageMap::of(4096).first(16);
        macro_rules! op {
            ($ends:literal, $start:expr) => {{
                let pending = $start;
                (stringify!($start), $ends, Box::pin(async move { drop(pending.await) }) as Dropped)
            }};
        }
        Some(match kind {
            0 => op!(true, a.allocate(LEN)),
            1 => op!(true, a.allocate(1 << 20)),
            2 => op!(true, a.register(Memory::from_vec(vector()).memory())),
            3 => op!(true, a.publish(Memory::from_vec(vector()), Access::Anyone)),
            4 => {
                let memory = a.allocate(LEN).await.unwrap();
                op!(true, a.publish_exposed(memory, Rights::READ, Access::Anyone))
            }
            5 => op!(true, a.open_counter(Access::Anyone)),
            6 => op!(false, a.accept()),
            7 => op!(false, a.recv_any()),
            8 => op!(false, a.connect(self.silent.local_addr().unwrap()).unwrap()),
            // Its other end is accepted, and told goodbye.
            9 => op!(true, a.connect(self.listening).unwrap()),
            10 => op!(true, a.connect(("localhost", self.listening.port())).unwrap()),
            11 => {
                let memory = a.allocate(LEN).await.unwrap();
                op!(true, a_to_b.grant(memory, Rights::WRITE))
            }
            12 => op!(true, a_to_b.open_counter()),
            13 => op!(true, a_to_b.remote(self.grant.token())),
            14 => op!(false, a_to_b.remote("g-7777".parse().unwrap())),
            15 => op!(true, a_to_b.remote_counter(self.counter.token())),
            16 => op!(true, a_to_b.open(self.published.token())),
            17 => op!(true, a_to_b.open_shared_counter(self.shared.token())),
            18 => op!(true, a_to_b.write(vector(), &self.remote)),
            19 => op!(true, a_to_b.write_and_count(vector(), &self.remote, &self.raises)),
            20 => op!(true, a_to_b.read(&self.remote, vector())),
            21 => {
                let memory = a.allocate(LEN).await.unwrap();
                op!(true, a_to_b.write_pages(memory, &map, &self.remote, Some(&self.raises)))
            }
            22 => {
                let memory = a.allocate(LEN).await.unwrap();
                op!(true, a_to_b.read_pages(&self.remote, &map, memory))
            }
            23 => op!(true, a_to_b.fetch_add(&self.remote.range(..8), 1)),
            24 => op!(false, a_to_b.recv()),
            25 => op!(true, a_to_b.flush()),
            26 => op!(false, self.counter.reach(u64::MAX)),
            27 => op!(false, self.shared.reach(u64::MAX)),
            28 => op!(false, self.shared.opened_by(9)),
            29 => {
                let memory = a.allocate(LEN).await.unwrap();
                let grant = a_to_b.grant(memory, Rights::WRITE).await.unwrap();
                b_to_a.remote(grant.token()).await.unwrap();
                op!(true, grant.begin_revoke(SOON))
            }
            30 => {
                let memory = b.allocate(LEN).await.unwrap();
                let published = b.publish_exposed(memory, Rights::READ, Access::Anyone).await.unwrap();
                a_to_b.open(published.token()).await.unwrap();
                op!(true, published.begin_revoke(SOON))
            }
            31 => {
                let memory = b.allocate(LEN).await.unwrap();
                let published = b.publish_exposed(memory, Rights::READ, Access::Anyone).await.unwrap();
                a_to_b.open(published.token()).await.unwrap();
                op!(true, published.revoke_peer(b_to_a, SOON))
            }
            32 => op!(true, a_to_b.prepare_write(self.list(Memory::from_vec(vector()).share()), None)),
            33 => {
                let memory = a.allocate(LEN).await.unwrap();
                op!(true, a_to_b.prepare_read(self.list::<Slice>(memory)))
            }
            34 | 35 => {
                let list = self.list::<Shared>(Memory::from_vec(vector()).share());
                let prepared = a_to_b.prepare_write(list, Some(&self.raises)).await.unwrap();
                let started = prepared.start(&prepared.all().unwrap());
                if kind == 34 { op!(true, started) } else { op!(true, prepared.finish()) }
            }
            36 => op!(true, a_to_b.write_list(self.list(vector()), None)),
            37 => op!(true, a_to_b.read_list(self.list(vector()))),
            38 => op!(false, a.next_event()),
            _ => return None,
        })
    }

    fn list<B: farreach::Source>(&self, own: B) -> TransferList<B> {
        let mut list = TransferList::new();
        list.push(own, &self.remote);
        list
    }

    /// Takes and drops what operations of before have caused, and returns when all of them have ended.
    async fn settle(&self, runtime: &Runtime) {
        let Pair { a_to_b, b_to_a, .. } = &self.pair;
        a_to_b.write(vec![0; LEN], &self.remote).await.unwrap();
        a_to_b.send("settled").await.unwrap();
        assert_eq!(b_to_a.recv().await.unwrap(), b"settled");
        b_to_a.send("here too").await.unwrap();
        assert_eq!(a_to_b.recv().await.unwrap(), b"here too");
        // Newcomers that are lost already, or will be.
        while let Some(newcomer) = runtime.within(std::time::Duration::ZERO, self.pair.b.accept()).await {
            drop(newcomer.unwrap());
        }
    }
}

/// Polls and drops a future.
async fn drop_at(runtime: &Runtime, point: Point, ends: bool, mut future: Dropped, count: &Arc<Count>) {
    let waker = Waker::from(Arc::clone(count));
    let poll = |future: &mut Dropped| future.as_mut().poll(&mut Context::from_waker(&waker));
    match point {
        Point::BeforeThePoll => {}
        Point::AfterOnePoll => _ = poll(&mut future),
        Point::AfterPolls(polls) => {
            for _ in 0..polls {
                if poll(&mut future).is_ready() {
                    return;
                }
                runtime.yields().await;
            }
        }
        Point::WhenItIsDone => {
            let woken = count.woken();
            if poll(&mut future) == Poll::Pending && ends {
                runtime.until("its end", || count.woken() > woken).await;
            }
        }
        Point::ByAnotherThread => {
            _ = poll(&mut future);
            thread::spawn(move || drop(future)).join().unwrap();
        }
    }
}

/// What a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Usage {
    descriptors: usize,
    /// Of memory that can be granted.
    mappings: usize,
    leaked_bytes: u64,
    wakers: usize,
}

impl Usage {
    fn now(count: &Arc<Count>) -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: maps.lines().filter(|line| line.contains("/memfd:")).count(),
            leaked_bytes: farreach_memory::leaked_bytes() as u64,
            wakers: Arc::strong_count(count),
        }
    }

    /// Returns how much more there is than before.
    fn beyond(self, before: Self) -> u64 {
        let more = |now: usize, before: usize| now.saturating_sub(before) as u64;
        more(self.descriptors, before.descriptors)
            + more(self.mappings, before.mappings)
            + more(self.wakers, before.wakers)
            + self.leaked_bytes.saturating_sub(before.leaked_bytes)
    }
}

/// What both engines hold for each other.
fn held(pair: &Pair) -> (usize, usize) {
    let peers = [&pair.a, &pair.b].map(|engine: &Engine| engine.peer_count().unwrap());
    let bytes = [&pair.a_to_b, &pair.b_to_a].map(|peer| peer.memory().unwrap());
    (peers.iter().sum(), bytes.iter().sum())
}

async fn futures_that_are_dropped(runtime: Runtime) {
    let count = Arc::new(Count::default());
    // What a first engine initializes stays.
    drop(pair().await);
    runtime.until("the end of the engines", || Usage::now(&count).mappings == 0).await;
    let at_first = Usage::now(&count);
    let world = World::new().await;
    // The first transfer maps the memory of the peer.
    world.settle(&runtime).await;
    let usage = Usage::now(&count);
    let (mut tables, mut dropped) = (None, 0);
    for round in 0..3 {
        for point in POINTS {
            for kind in 0.. {
                let Some((_, ends, future)) = world.start(kind).await else { break };
                drop_at(&runtime, point, ends, future, &count).await;
                dropped += 1;
            }
        }
        world.settle(&runtime).await;
        let leaked = || {
            let (peers, bytes) = held(&world.pair);
            // The first round fills tables and windows, which stay, and grow in steps.
            let bytes = bytes.saturating_sub(tables.map_or(usize::MAX, |tables: usize| tables + 4096));
            Usage::now(&count).beyond(usage) + (peers.saturating_sub(2) + bytes) as u64
        };
        let what = format!("a leak count of 0 in round {round}, after {usage:?}");
        runtime.until(&what, || leaked() == 0).await;
        eprintln!("{dropped} futures were dropped, leak count {}", leaked());
        tables.get_or_insert_with(|| held(&world.pair).1);
    }
    assert!(world.pair.a_to_b.lost().is_none() && world.pair.b_to_a.lost().is_none());
    // What the operations have counted is there: each has 16 pages or one.
    let reached = world.counter.reached();
    assert!(reached > 0, "{reached}");
    drop(world);
    runtime.until("as little as at first", || Usage::now(&count).beyond(at_first) == 0).await;
    assert_eq!(farreach_memory::leaked_bytes(), 0);
}

#[test]
fn futures_dropped_at_every_point_leak_nothing_with_one_thread_of_tokio() {
    in_own_process(&[], || tokio_current_thread(futures_that_are_dropped));
}

#[test]
fn futures_dropped_at_every_point_leak_nothing_with_two_threads_of_tokio() {
    in_own_process(&[], || tokio_multi_thread(futures_that_are_dropped));
}

#[test]
fn futures_dropped_at_every_point_leak_nothing_with_a_thread_pool() {
    in_own_process(&[], || thread_pool(futures_that_are_dropped));
}

/// Engines that end while futures of all kinds are pending, dropped and polled.
async fn futures_while_engines_end(runtime: Runtime) {
    let count = Arc::new(Count::default());
    drop(pair().await);
    runtime.until("the end of the engines", || Usage::now(&count).mappings == 0).await;
    let before = Usage::now(&count);
    for round in 0..6 {
        let world = World::new().await;
        let mut futures = Vec::new();
        for kind in 0.. {
            let Some((name, _, mut future)) = world.start(kind).await else { break };
            let waker = Waker::from(Arc::clone(&count));
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                futures.push((name, future));
            }
        }
        let is_closed = round % 2 == 0;
        let awaited: Vec<_> = match is_closed {
            // All of them end.
            true => futures.into_iter().map(|(_, future)| runtime.spawn(future)).collect(),
            false => {
                let dropping = thread::spawn(move || drop(futures));
                runtime.until("the drop", || dropping.is_finished()).await;
                Vec::new()
            }
        };
        let engine = world.pair.a.clone();
        let closing = thread::spawn(move || is_closed.then(|| engine.close(SOON)));
        let other = world.pair.b.clone();
        let closing_other = thread::spawn(move || is_closed.then(|| other.close(SOON)));
        for task in awaited {
            task.await.expect("it was not cancelled");
        }
        runtime.until("the end", || closing.is_finished() && closing_other.is_finished()).await;
        drop(world);
        runtime.until("a leak count of 0", || Usage::now(&count).beyond(before) == 0).await;
    }
    eprintln!("6 pairs of engines have ended, leak count {}", Usage::now(&count).beyond(before));
}

#[test]
fn futures_leak_nothing_while_engines_end() {
    in_own_process(&[], || tokio_multi_thread(futures_while_engines_end));
}
