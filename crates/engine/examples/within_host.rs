//! Measures two engines of one host over the rail `shm`, against the bare machine in the same run.
//! Prints a line of JSON for each measurement: `cargo xtask bench shm` runs it.
//!
//! Usage: `within_host ROUNDS [pages|ping|writes|threads|wake|idle]…`.
//!
//! `within_host count WRITES PAGES DEPTH` makes so many writes, and measures nothing: the tests of the
//! costs count its instructions. A write has one page of eight bytes, or several scattered ones of
//! 4 KiB, and so many are in flight. `within_host lists WRITES SEGMENTS KIND` writes so many segments
//! of 64 bytes in each transfer: `pages` of one range, a `list` of ranges, or a `prepared` list.

#![allow(clippy::print_stdout, reason = "it is a program")]

#[path = "../../shm/examples/measure/bare.rs"]
mod bare;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farreach::{
    Counter, Engine, Grant, Memory, PageMap, Peer, RemoteCounter, RemoteSlice, Rights, Settings, Shared,
    Transfer, TransferList,
};

use bare::{
    AREA, Bounce, Child, PAGES, PAUSES_US, PINGS, Sleeper, WARM_UP, contest, copy_pages, nanoseconds,
    processor_time, report, scattered, shared_words, woken_after,
};

/// Time limits: longer than any of it takes.
const LONG: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_secs(30);

/// Transfers of pages in flight at a time, so that the next one begins while the last pages of one
/// are in flight.
const AT_ONCE: usize = 4;

/// Writes of one measurement.
const WRITES: usize = 20_000;
/// Threads that write at the same time, each on a core of its own.
const THREADS: usize = 2;
/// The depths at which short writes are measured.
const DEPTHS: [usize; 2] = [1, 16];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("count", numbers)) = words.split_first().map(|(what, rest)| (what.as_str(), rest)) {
        let numbers: Vec<usize> = numbers.iter().map(|word| word.parse().unwrap()).collect();
        return count(numbers[0], numbers[1], numbers[2]);
    }
    if let [what, writes, segments, kind] = &words[..]
        && what == "lists"
    {
        return lists(writes.parse().unwrap(), segments.parse().unwrap(), kind);
    }
    let rounds: usize = words.first().and_then(|word| word.parse().ok()).unwrap_or(25);
    let wants = |what: &str| words.len() < 2 || words[1..].iter().any(|word| word == what);
    bare::pin(0);
    // Each in a process of its own, because both ends are forked before there is an engine.
    let run = |work: &dyn Fn()| {
        drop(Child::fork(|| {
            bare::pin(0);
            work();
        }))
    };
    if wants("pages") {
        for (page, repeats) in PAGES {
            run(&|| pages(rounds, page, repeats));
        }
    }
    if wants("ping") {
        run(&|| ping(rounds));
    }
    if wants("writes") {
        for depth in DEPTHS {
            run(&|| writes(rounds, depth));
        }
    }
    if wants("threads") {
        for engines in [1, THREADS] {
            run(&|| threads(rounds, engines));
        }
    }
    if wants("wake") {
        for pause_us in PAUSES_US {
            run(&|| wake(rounds, pause_us));
        }
    }
    if wants("idle") {
        run(&idle);
    }
}

/// One side of a pair.
struct End {
    engine: Engine,
    peer: Peer,
}

impl End {
    fn open(name: &str) -> Engine {
        Engine::with(Settings::new().name(name).rails(["shm"])).unwrap()
    }

    /// Grants the peer memory and a counter, and sends it both tokens.
    fn offer(&self, len: usize) -> (Grant, Counter) {
        let memory = self.engine.allocate(len).wait(SOON).unwrap();
        let grant = self.peer.grant(memory, Rights::WRITE).wait(SOON).unwrap();
        let counter = self.peer.open_counter().wait(SOON).unwrap();
        self.peer.send(format!("{} {}", grant.token(), counter.token())).wait(SOON).unwrap();
        (grant, counter)
    }

    /// Receives the tokens of the peer's memory and counter.
    fn taken(&self) -> (RemoteSlice, RemoteCounter) {
        let message = String::from_utf8(self.peer.recv().wait(SOON).unwrap()).unwrap();
        let (grant, counter) = message.split_once(' ').unwrap();
        let memory = self.peer.remote(grant.parse().unwrap()).wait(SOON).unwrap();
        (memory, self.peer.remote_counter(counter.parse().unwrap()).wait(SOON).unwrap())
    }

    fn source(&self, len: usize) -> Shared {
        let mut source = self.engine.allocate(len).wait(SOON).unwrap();
        source.fill(7);
        source.share()
    }
}

/// Starts the other side, and connects with it.
fn with_child(work: impl Fn(End)) -> (End, Child) {
    with_children(1, 1, work).pop().unwrap()
}

/// Opens so many engines, and connects each with so many processes, which are started before there is
/// an engine.
fn with_children(engines: usize, each: usize, work: impl Fn(End)) -> Vec<(End, Child)> {
    let ports = shared_words();
    let fork = |port: &'static AtomicU64| {
        Child::fork(|| {
            while port.load(Ordering::Acquire) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            let engine = End::open("target");
            let address = format!("127.0.0.1:{}", port.load(Ordering::Acquire));
            let peer = engine.connect(address.as_str()).unwrap().wait(SOON).unwrap();
            work(End { engine, peer });
        })
    };
    let children: Vec<(usize, Child)> =
        (0..engines * each).map(|number| (number / each, fork(ports[number / each]))).collect();
    let open = |port: &AtomicU64| {
        let engine = End::open("initiator");
        let address = engine.listen("127.0.0.1:0").unwrap();
        port.store(address.port().into(), Ordering::Release);
        engine
    };
    let engines: Vec<Engine> = ports[..engines].iter().copied().map(open).collect();
    let accept = |(engine, child): (usize, Child)| {
        let peer = engines[engine].accept().wait(SOON).unwrap();
        assert_eq!(peer.rails(), ["shm"]);
        (End { engine: engines[engine].clone(), peer }, child)
    };
    children.into_iter().map(accept).collect()
}

/// Lets the peer write until it is lost.
fn serve(end: End, len: usize) {
    let (_grant, counter) = end.offer(len);
    let _ = counter.reach(u64::MAX).wait(LONG);
}

/// Ends a measurement: the engine first, which ends the other side's wait.
fn finish(end: End, child: Child) {
    let _ = end.engine.close(SOON);
    drop(child);
}

/// Pages written to another process and counted there, against memcpy within one.
fn pages(rounds: usize, page: usize, repeats: usize) {
    let (end, child) = with_child(|end| serve(end, AREA));
    let (remote, counter) = end.taken();
    let places = scattered(page);
    let map = PageMap::of(page as u64)
        .from(0..places.len() as u32)
        .to(places.iter().map(|place| (place / page) as u32));
    let source = end.source(AREA);
    let mut target = Memory::allocate(AREA).unwrap();
    let rate = |start: Instant| (AREA * repeats) as f64 / start.elapsed().as_secs_f64() / 1e9;
    let bare = || {
        let start = Instant::now();
        for _ in 0..repeats {
            copy_pages(&mut target, &source, &places, page);
        }
        rate(start)
    };
    let engine = || {
        let start = Instant::now();
        let mut in_flight: VecDeque<Transfer> = VecDeque::new();
        for _ in 0..repeats {
            if in_flight.len() == AT_ONCE {
                in_flight.pop_front().unwrap().wait(LONG).unwrap();
            }
            in_flight.push_back(end.peer.write_pages(source.clone(), &map, &remote, Some(&counter)));
        }
        for mut transfer in in_flight {
            transfer.wait(LONG).unwrap();
        }
        rate(start)
    };
    let results = contest(rounds, bare, engine);
    report(&format!("write engine {} KiB", page >> 10), "gb_per_s", &results);
    finish(end, child);
}

/// Eight bytes that are written and counted.
struct Pinger<'a> {
    end: &'a End,
    map: PageMap,
    source: Shared,
    remote: RemoteSlice,
    raises: RemoteCounter,
    counter: &'a Counter,
    count: u64,
    /// The last transfer. Its completion is known soon after the answer.
    sent: Option<Transfer>,
}

impl<'a> Pinger<'a> {
    fn new(end: &'a End, (remote, raises): (RemoteSlice, RemoteCounter), counter: &'a Counter) -> Self {
        let (map, source) = (PageMap::of(8).first(1), end.source(8));
        Self { end, map, source, remote, raises, counter, count: 0, sent: None }
    }

    fn send(&mut self) {
        if let Some(mut sent) = self.sent.take() {
            sent.wait(SOON).unwrap();
        }
        let source = self.source.clone();
        self.sent = Some(self.end.peer.write_pages(source, &self.map, &self.remote, Some(&self.raises)));
    }

    /// Waits for the next one. Returns `false` if the peer is lost.
    fn await_one(&mut self, time: Duration) -> bool {
        self.count += 1;
        self.counter.reach(self.count).wait(time).is_ok()
    }
}

/// Eight bytes written and counted, there and back, against a cache line that two processes bounce.
fn ping(rounds: usize) {
    let mut bounce = Bounce::start();
    let (end, child) = with_child(|end| {
        let (_grant, counter) = end.offer(4096);
        let mut pinger = Pinger::new(&end, end.taken(), &counter);
        while pinger.await_one(LONG) {
            pinger.send();
        }
    });
    let taken = end.taken();
    let (_grant, counter) = end.offer(4096);
    let mut pinger = Pinger::new(&end, taken, &counter);
    let mut exchange = |times: u64| {
        let start = Instant::now();
        for _ in 0..times {
            pinger.send();
            assert!(pinger.await_one(SOON));
        }
        start.elapsed().as_secs_f64() * 1e6 / times as f64
    };
    let engine = || {
        exchange(WARM_UP);
        exchange(PINGS)
    };
    let results = contest(rounds, || bounce.measure(), engine);
    report("ping engine 8 B", "rtt_us", &results);
    drop(pinger);
    finish(end, child);
}

/// Writes of eight bytes, this many in flight: as `farreach bench --op write -s 8` does it. The
/// ratios are to the round trip of a cache line in the same run.
fn writes(rounds: usize, depth: usize) {
    let mut bounce = Bounce::start();
    let (end, child) = with_child(|end| serve(end, 4096));
    let (remote, _counter) = end.taken();
    let places: Vec<RemoteSlice> =
        (0..depth as u64).map(|place| remote.get(place * 64..place * 64 + 8).unwrap()).collect();
    let (map, source) = (PageMap::of(8).first(1), end.source(8));
    let mut latencies_ns: Vec<u64> = Vec::with_capacity(WRITES);
    let mut measure = |is_rate: bool| {
        let mut in_flight: VecDeque<(Instant, Transfer)> = VecDeque::with_capacity(depth);
        latencies_ns.clear();
        let start = Instant::now();
        for (index, place) in places.iter().cycle().take(WRITES).enumerate() {
            if index >= depth {
                complete(&mut in_flight, &mut latencies_ns);
            }
            let posted = Instant::now();
            in_flight.push_back((posted, end.peer.write_pages(source.clone(), &map, place, None)));
        }
        while !in_flight.is_empty() {
            complete(&mut in_flight, &mut latencies_ns);
        }
        let elapsed = start.elapsed();
        latencies_ns.sort_unstable();
        if is_rate { WRITES as f64 / elapsed.as_secs_f64() } else { latencies_ns[WRITES / 2] as f64 / 1e3 }
    };
    let results = contest(rounds, || 1e6 / bounce.measure(), || measure(true));
    report(&format!("write engine 8 B depth {depth}"), "per_s", &results);
    let results = contest(rounds, || bounce.measure(), || measure(false));
    report(&format!("p50 engine 8 B depth {depth}"), "p50_us", &results);
    finish(end, child);
}

/// Two threads that write to a peer each, over one engine or over one each, against one thread that
/// does so: operations a second of all threads.
fn threads(rounds: usize, engines: usize) {
    let pairs = with_children(engines, THREADS / engines, |end| serve(end, 4096));
    let parts = |(end, _): &(End, Child)| {
        (end.peer.clone(), end.source(8), end.taken().0.get(0..8).unwrap(), PageMap::of(8).first(1))
    };
    let taken: Vec<(Peer, Shared, RemoteSlice, PageMap)> = pairs.iter().map(parts).collect();
    let write = |(peer, source, remote, map): &(Peer, Shared, RemoteSlice, PageMap)| {
        let mut in_flight: VecDeque<Transfer> = VecDeque::with_capacity(DEPTHS[1]);
        for _ in 0..WRITES {
            if in_flight.len() == DEPTHS[1] {
                in_flight.pop_front().unwrap().wait(SOON).unwrap();
            }
            in_flight.push_back(peer.write_pages(source.clone(), map, remote, None));
        }
        in_flight.into_iter().for_each(|mut transfer| drop(transfer.wait(SOON).unwrap()));
    };
    let all = |count: usize| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for (core, pair) in taken[..count].iter().enumerate() {
                scope.spawn(move || {
                    bare::pin(core);
                    write(pair);
                });
            }
        });
        (count * WRITES) as f64 / start.elapsed().as_secs_f64()
    };
    let results = contest(rounds, || all(1), || all(THREADS));
    report(&format!("{THREADS} threads, engines: {engines}"), "per_s", &results);
    drop(taken);
    let (ends, children): (Vec<End>, Vec<Child>) = pairs.into_iter().unzip();
    for end in ends {
        let _ = end.engine.close(SOON);
    }
    drop(children);
}

/// Makes writes of so many pages, this many in flight.
fn count(writes: usize, pages: usize, depth: usize) {
    const LEN: usize = 4096;
    let (end, child) = with_child(move |end| serve(end, pages * LEN));
    let (remote, _counter) = end.taken();
    let map = match pages {
        1 => PageMap::of(8).first(1),
        // No two of them are adjacent, if there are enough of them.
        _ => PageMap::of(LEN as u64)
            .from(0..pages as u32)
            .to((0..pages).map(|page| (page * 29 % pages) as u32)),
    };
    let source = end.source(pages * LEN);
    let mut in_flight: VecDeque<Transfer> = VecDeque::with_capacity(depth);
    for _ in 0..writes {
        if in_flight.len() == depth {
            in_flight.pop_front().unwrap().wait(SOON).unwrap();
        }
        in_flight.push_back(end.peer.write_pages(source.clone(), &map, &remote, None));
    }
    for mut transfer in in_flight {
        transfer.wait(SOON).unwrap();
    }
    finish(end, child);
}

/// Makes transfers of so many segments, one at a time.
fn lists(writes: usize, segments: usize, kind: &str) {
    const LEN: usize = 64;
    /// The distance of two segments, so that none are neighbours.
    const STRIDE: usize = 128;
    let (end, child) = with_child(move |end| serve(end, segments * STRIDE));
    let (remote, _counter) = end.taken();
    let source = end.source(segments * STRIDE);
    let places = || (0..segments).map(|place| place * STRIDE);
    let list = || {
        let mut list = TransferList::with_capacity(segments);
        places().for_each(|at| list.push(source.get(at..at + LEN).unwrap(), &remote.at(at as u64)));
        list
    };
    match kind {
        "pages" => {
            let indices = || places().map(|at| (at / LEN) as u32);
            let map = PageMap::of(LEN as u64).from(indices()).to(indices());
            for _ in 0..writes {
                end.peer.write_pages(source.clone(), &map, &remote, None).wait(SOON).unwrap();
            }
        }
        "list" => {
            for _ in 0..writes {
                end.peer.write_list(list(), None).wait(SOON).unwrap();
            }
        }
        "prepared" => {
            let prepared = end.peer.prepare_write(list(), None).wait(SOON).unwrap();
            let all = prepared.all().unwrap();
            for _ in 0..writes {
                prepared.start(&all).wait(SOON).unwrap();
            }
            prepared.finish().wait(SOON).unwrap();
        }
        other => panic!("there is no kind {other}"),
    }
    finish(end, child);
}

fn complete(in_flight: &mut VecDeque<(Instant, Transfer)>, latencies_ns: &mut Vec<u64>) {
    let (posted, mut transfer) = in_flight.pop_front().unwrap();
    transfer.wait(SOON).unwrap();
    latencies_ns.push(posted.elapsed().as_nanos() as u64);
}

/// The time until a thread that waits for a counter runs, against a bare eventfd.
fn wake(rounds: usize, pause_us: u64) {
    let (sleeper, [word, ..]) = (Sleeper::start(), shared_words());
    let (end, child) = with_child(|end| {
        let (_grant, counter) = end.offer(4096);
        let mut count = 0;
        while wait_and_note(&counter, &mut count, word) {}
    });
    let (remote, raises) = end.taken();
    let (map, source) = (PageMap::of(8).first(1), end.source(8));
    let pause = Duration::from_micros(pause_us);
    let write = || end.peer.write_pages(source.clone(), &map, &remote, Some(&raises)).wait(SOON).unwrap();
    let ms = pause_us as f64 / 1e3;
    // The waker waits in its engine, so that its own thread posts the write.
    let leading = || drop(end.peer.recv().wait(pause));
    let engine = || woken_after(leading, word, || drop(write()));
    let results = contest(rounds, || sleeper.measure(pause), engine);
    report(&format!("wake engine after {ms} ms"), "wake_us", &results);
    // The waker is elsewhere, so that its engine sleeps, too, and has to be woken first.
    let engine = || woken_after(|| std::thread::sleep(pause), word, || drop(write()));
    let results = contest(rounds, || sleeper.measure(pause), engine);
    report(&format!("wake both after {ms} ms"), "wake_us", &results);
    finish(end, child);
}

/// Waits for the next count, and stores the time. Returns `false` if the peer is lost.
fn wait_and_note(counter: &Counter, count: &mut u64, word: &AtomicU64) -> bool {
    *count += 1;
    let is_there = counter.reach(*count).wait(LONG).is_ok();
    if is_there {
        word.store(nanoseconds(), Ordering::Release);
    }
    is_there
}

/// The processor time of two processes with an idle link, in 10 s. One waits for a message, and the
/// other leaves its engine to the engine's own thread.
fn idle() {
    let words = shared_words();
    let during = |wait: &dyn Fn(Duration)| {
        // What the connection leaves behind.
        wait(Duration::from_secs(1));
        let before = processor_time();
        wait(Duration::from_secs(10));
        (processor_time() - before).as_nanos() as u64
    };
    let (end, child) = with_child(|end| {
        let ns = during(&|time| drop(end.peer.recv().wait(time)));
        words[0].store(ns, Ordering::Release);
        // The loss of a peer must not fall into the measurement of the other.
        std::thread::sleep(Duration::from_secs(1));
    });
    let own = during(&|time| std::thread::sleep(time));
    std::thread::sleep(Duration::from_secs(1));
    finish(end, child);
    let ms = (own + words[0].load(Ordering::Acquire)) as f64 / 1e6;
    println!("{{\"label\":\"idle engines\",\"field\":\"cpu_ms_in_10_s\",\"value\":{ms}}}");
}
