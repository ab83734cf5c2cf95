//! The program that measures the engine, beside the same work on bare libfabric: `benches/bare`. It
//! takes the same options, and its result has the same form: one line of JSON.
//!
//! `paged write` moves scattered pages, with `--singly` as one transfer each. `paged ping` sends eight
//! bytes there and back, `paged echo` does so after pauses, and `paged cost` runs operations to be
//! counted.
#![allow(clippy::print_stdout, reason = "a program that talks to its user")]

use std::collections::VecDeque;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farreach::{
    Counter, Engine, Grant, PageMap, Peer, RemoteCounter, RemoteSlice, Rights, Settings, Shared, Transfer,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Time limits: longer than any of it takes.
const LONG: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_secs(30);

/// Rounds that only warm up, and those with pauses.
const WARM_UP: u64 = 1000;
const WARM_UP_OF_ECHO: u64 = 3;
/// Operations of one batch of `cost`.
const BATCH: u64 = 16;
/// Transfers in flight at a time, so that the next one begins while the last pages of one are in
/// flight.
const AT_ONCE: usize = 4;

#[derive(Debug, Clone)]
struct Options {
    test: String,
    provider: String,
    page: usize,
    region: usize,
    pages: usize,
    window: usize,
    rounds: u64,
    count: u64,
    pause: Duration,
    by_message: bool,
    is_singly: bool,
    is_target: bool,
}

fn main() -> Result<()> {
    let options = Options::parse()?;
    if options.is_target {
        return target(&options);
    }
    let engine = options.engine("initiator")?;
    let mut other = Other::start()?;
    let address = other.line()?;
    let peer = engine.connect(address.trim())?.wait(SOON)?;
    match options.test.as_str() {
        "write" if options.is_singly => write_singly(&options, &engine, &peer)?,
        "write" => write(&options, &engine, &peer)?,
        "echo" => echo(&options, &engine, &peer)?,
        "ping" => ping(&options, &engine, &peer)?,
        "cost" => cost(&options, &engine, &peer)?,
        other => return Err(format!("there is no test `{other}`").into()),
    }
    peer.send("end").wait(SOON)?;
    drop(peer);
    other.end()
}

impl Options {
    fn parse() -> Result<Self> {
        let mut words = std::env::args().skip(1);
        let mut options = Self {
            test: words.next().ok_or("usage: paged write|ping|echo|cost --provider NAME [OPTION]...")?,
            provider: String::new(),
            page: 4096,
            region: 16 << 20,
            pages: 0,
            window: 64,
            rounds: 16,
            count: 20_000,
            pause: Duration::ZERO,
            by_message: false,
            is_singly: false,
            is_target: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--provider" => options.provider = value()?,
                "--page" => options.page = value()?.parse()?,
                "--region" => options.region = value()?.parse()?,
                "--pages" => options.pages = value()?.parse()?,
                "--window" => options.window = value()?.parse()?,
                "--rounds" => options.rounds = value()?.parse()?,
                "--count" => options.count = value()?.parse()?,
                "--by" => options.by_message = value()? == "message",
                // The engine chooses packing and waiting itself.
                "--each" | "--wait" => drop(value()?),
                "--completed" | "--plain" => {}
                "--pause" => options.pause = Duration::from_millis(value()?.parse()?),
                "--singly" => options.is_singly = true,
                "--target" => options.is_target = true,
                other => return Err(format!("there is no option `{other}`").into()),
            }
        }
        if options.pages == 0 {
            options.pages = options.region / options.page;
        }
        Ok(options)
    }

    fn engine(&self, name: &str) -> Result<Engine> {
        Ok(Engine::with(Settings::new().name(name).rails([self.provider.as_str()]).depth(self.window))?)
    }

    fn warm_up(&self) -> u64 {
        if self.test == "echo" { WARM_UP_OF_ECHO } else { WARM_UP }
    }

    /// Returns the places of the pages, which are the same on both sides.
    fn map(&self) -> PageMap {
        let places = self.region / self.page;
        let chosen = |seed| draw(places, seed).into_iter().take(self.pages);
        PageMap::of(self.page as u64).from(chosen(1)).to(chosen(2))
    }
}

/// Returns the numbers below `count` in an order that is the same on both sides.
fn draw(count: usize, mut seed: u64) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count as u32).collect();
    for place in (1..count).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(place, (seed >> 33) as usize % (place + 1));
    }
    numbers
}

/// Returns a word of a page's content: it differs by place, and is never 0.
fn content(page: usize, word: usize) -> u64 {
    ((page as u64) << 32 | word as u64) + 1
}

/// Runs the side that is written to.
fn target(options: &Options) -> Result<()> {
    let engine = options.engine("target")?;
    println!("{}", engine.listen("127.0.0.1:0")?);
    std::io::stdout().flush()?;
    let peer = engine.accept().wait(SOON)?;
    let (grant, counter) = offer(&engine, &peer, options.region)?;
    match options.test.as_str() {
        "write" if options.is_singly => {
            // All is written when the message comes.
            peer.recv().wait(LONG)?;
            peer.send("there").wait(SOON)?;
            verify(options, &grant)?;
        }
        "write" => {
            let pages = options.rounds * options.pages as u64;
            counter.reach(pages).wait(LONG)?;
            peer.send("there").wait(SOON)?;
            verify(options, &grant)?;
        }
        "ping" | "echo" => answer(options, &engine, &peer, &counter)?,
        _ if options.by_message => {
            for _ in 0..options.count {
                peer.recv().wait(LONG)?;
            }
        }
        _ => {}
    }
    // The other side may still need this one until it sends its last message, or is lost: the loss
    // may be noticed first.
    let _ = peer.recv().wait(LONG);
    Ok(())
}

/// Grants memory and a counter, and sends the peer both tokens.
fn offer(engine: &Engine, peer: &Peer, len: usize) -> Result<(Grant, Counter)> {
    let grant = peer.grant(engine.allocate(len).wait(SOON)?, Rights::WRITE).wait(SOON)?;
    let counter = peer.open_counter().wait(SOON)?;
    peer.send(format!("{} {}", grant.token(), counter.token())).wait(SOON)?;
    Ok((grant, counter))
}

/// Receives the tokens of the peer's memory and counter.
fn taken(peer: &Peer) -> Result<(RemoteSlice, RemoteCounter)> {
    let message = String::from_utf8(peer.recv().wait(SOON)?)?;
    let (grant, counter) = message.split_once(' ').ok_or("two names are expected")?;
    Ok((peer.remote(grant.parse()?).wait(SOON)?, peer.remote_counter(counter.parse()?).wait(SOON)?))
}

fn verify(options: &Options, grant: &Grant) -> Result<()> {
    let map = options.map();
    let mut bytes = vec![0; options.region];
    grant.read_at(0, &mut bytes);
    for (from, to) in map.source.indices.iter_from(0).zip(map.destination.indices.iter_from(0)) {
        let page = &bytes[to as usize * options.page..][..options.page];
        for (word, value) in page.chunks_exact(8).enumerate() {
            if *value != content(from as usize, word).to_ne_bytes() {
                return Err(format!("page {from} is wrong at word {word}").into());
            }
        }
    }
    Ok(())
}

/// Returns memory with the content of each page.
fn source(options: &Options, engine: &Engine) -> Result<Shared> {
    let mut source = engine.allocate(options.region).wait(SOON)?;
    for (page, bytes) in source.chunks_exact_mut(options.page).enumerate() {
        for (word, value) in bytes.chunks_exact_mut(8).enumerate() {
            value.copy_from_slice(&content(page, word).to_ne_bytes());
        }
    }
    Ok(source.share())
}

fn write(options: &Options, engine: &Engine, peer: &Peer) -> Result<()> {
    let (remote, counter) = taken(peer)?;
    let (source, map) = (source(options, engine)?, options.map());
    let start = Instant::now();
    let mut under_way = VecDeque::new();
    for _ in 0..options.rounds {
        if under_way.len() == AT_ONCE {
            let mut first: Transfer = under_way.pop_front().ok_or("there are some")?;
            first.wait(LONG)?;
        }
        under_way.push_back(peer.write_pages(source.clone(), &map, &remote, Some(&counter)));
    }
    for mut transfer in under_way {
        transfer.wait(LONG)?;
    }
    // The receiver confirms the last byte.
    peer.recv().wait(LONG)?;
    report_write(options, start.elapsed());
    Ok(())
}

/// Writes each page as a transfer of its own, with a window of them in flight, as
/// `farreach bench --op write` does.
fn write_singly(options: &Options, engine: &Engine, peer: &Peer) -> Result<()> {
    let (remote, _counter) = taken(peer)?;
    let (source, map) = (source(options, engine)?, options.map());
    let range = |page: u32| page as usize * options.page..(page as usize + 1) * options.page;
    let mut pages = Vec::with_capacity(options.pages);
    for (from, to) in map.source.indices.iter_from(0).zip(map.destination.indices.iter_from(0)) {
        let to = range(to);
        let to = remote.get(to.start as u64..to.end as u64).ok_or("a page beyond the grant")?;
        pages.push((source.get(range(from)).ok_or("a page beyond the memory")?, to));
    }
    let one = PageMap::of(options.page as u64).first(1);
    let start = Instant::now();
    let mut in_flight = VecDeque::with_capacity(options.window);
    for _ in 0..options.rounds {
        for (from, to) in &pages {
            if in_flight.len() == options.window {
                let mut first: Transfer = in_flight.pop_front().ok_or("there are some")?;
                first.wait(LONG)?;
            }
            in_flight.push_back(peer.write_pages(from.clone(), &one, to, None));
        }
    }
    for mut transfer in in_flight {
        transfer.wait(LONG)?;
    }
    peer.send("written").wait(SOON)?;
    peer.recv().wait(LONG)?;
    report_write(options, start.elapsed());
    Ok(())
}

fn report_write(options: &Options, took: Duration) {
    let ns = took.as_nanos() as f64;
    let Options { provider, page, pages, window, rounds, .. } = options;
    let bytes = *rounds * (*pages * *page) as u64;
    println!(
        "{{\"program\":\"engine\",\"test\":\"write\",\"provider\":\"{provider}\",\"page\":{page},\"pages\":{pages},\
         \"window\":{window},\"rounds\":{rounds},\"bytes\":{bytes},\"ns\":{ns},\"gb_per_s\":{:.4}}}",
        bytes as f64 / ns
    );
}

/// Sends eight bytes there and back: by a write that raises the other side's counter, or by a
/// message.
fn ping(options: &Options, engine: &Engine, peer: &Peer) -> Result<()> {
    let (remote, raises) = taken(peer)?;
    let (_grant, counter) = offer(engine, peer, options.region)?;
    let source = engine.allocate(8).wait(SOON)?.share();
    let mut pinger = Pinger { peer, remote, raises, counter: &counter, source, sent: None };
    let mut start = Instant::now();
    for round in 0..options.warm_up() + options.count {
        if round == options.warm_up() {
            start = Instant::now();
        }
        if options.by_message {
            peer.send([0; 8]).wait(SOON)?;
            peer.recv().wait(SOON)?;
        } else {
            pinger.send()?;
            pinger.await_one(round + 1)?;
        }
    }
    let ns = start.elapsed().as_nanos() as f64;
    let (provider, count) = (&options.provider, options.count);
    let by = if options.by_message { "message" } else { "write" };
    println!(
        "{{\"program\":\"engine\",\"test\":\"ping\",\"provider\":\"{provider}\",\"by\":\"{by}\",\"count\":{count},\
         \"ns\":{ns},\"half_rtt_us\":{:.4}}}",
        ns / count as f64 / 2000.0
    );
    Ok(())
}

/// Sends eight bytes there and back after pauses, in which this thread is elsewhere and both engines
/// fall asleep.
fn echo(options: &Options, engine: &Engine, peer: &Peer) -> Result<()> {
    let (remote, raises) = taken(peer)?;
    let (_grant, counter) = offer(engine, peer, options.region)?;
    let source = engine.allocate(8).wait(SOON)?.share();
    let mut pinger = Pinger { peer, remote, raises, counter: &counter, source, sent: None };
    let mut trips_ns = Vec::new();
    for round in 0..options.warm_up() + options.count {
        std::thread::sleep(options.pause);
        let start = Instant::now();
        if options.by_message {
            let mut sent = peer.send([0; 8]);
            peer.recv().wait(SOON)?;
            trips_ns.push(start.elapsed().as_nanos() as u64);
            sent.wait(SOON)?;
        } else {
            pinger.send()?;
            pinger.await_one(round + 1)?;
            trips_ns.push(start.elapsed().as_nanos() as u64);
        }
    }
    trips_ns.drain(..options.warm_up() as usize);
    trips_ns.sort_unstable();
    let (provider, pause_ms, count) = (&options.provider, options.pause.as_millis(), options.count);
    let by = if options.by_message { "message" } else { "write" };
    println!(
        "{{\"program\":\"engine\",\"test\":\"echo\",\"provider\":\"{provider}\",\"by\":\"{by}\",\
         \"pause_ms\":{pause_ms},\"count\":{count},\"rtt_us\":{:.2}}}",
        trips_ns[trips_ns.len() / 2] as f64 / 1e3
    );
    Ok(())
}

fn answer(options: &Options, engine: &Engine, peer: &Peer, counter: &Counter) -> Result<()> {
    let (remote, raises) = taken(peer)?;
    let source = engine.allocate(8).wait(SOON)?.share();
    let mut pinger = Pinger { peer, remote, raises, counter, source, sent: None };
    for round in 0..options.warm_up() + options.count {
        if options.by_message {
            let message = peer.recv().wait(SOON)?;
            peer.send(message).wait(SOON)?;
        } else {
            pinger.await_one(round + 1)?;
            pinger.send()?;
        }
    }
    Ok(())
}

struct Pinger<'a> {
    peer: &'a Peer,
    remote: RemoteSlice,
    raises: RemoteCounter,
    counter: &'a Counter,
    source: Shared,
    /// The last transfer. Its completion is known soon after the answer.
    sent: Option<Transfer>,
}

impl Pinger<'_> {
    fn send(&mut self) -> Result<()> {
        if let Some(mut sent) = self.sent.take() {
            sent.wait(SOON)?;
        }
        let map = PageMap::of(8).first(1);
        let sent = self.peer.write_pages(self.source.clone(), &map, &self.remote, Some(&self.raises));
        self.sent = Some(sent);
        Ok(())
    }

    fn await_one(&self, count: u64) -> Result<()> {
        Ok(self.counter.reach(count).wait(SOON)?)
    }
}

/// Writes of one page each, or messages of eight bytes, in batches. The difference of two runs with
/// different counts is the cost of the operations between them.
fn cost(options: &Options, engine: &Engine, peer: &Peer) -> Result<()> {
    let (remote, _counter) = taken(peer)?;
    if options.by_message {
        for _ in 0..options.count / BATCH {
            let sent: Vec<_> = (0..BATCH).map(|_| peer.send([0; 8])).collect();
            for mut message in sent {
                message.wait(SOON)?;
            }
        }
        println!(
            "{{\"program\":\"engine\",\"test\":\"cost\",\"by\":\"message\",\"count\":{}}}",
            options.count
        );
        return Ok(());
    }
    let source = engine.allocate(options.region).wait(SOON)?.share();
    // Pages that do not touch, so that each is one operation.
    let places: Vec<u32> = (0..BATCH as u32).map(|place| place * 2).collect();
    let map = PageMap::of(options.page as u64).from(places.clone()).to(places);
    for _ in 0..options.count / BATCH {
        peer.write_pages(source.clone(), &map, &remote, None).wait(SOON)?;
    }
    println!("{{\"program\":\"engine\",\"test\":\"cost\",\"count\":{}}}", options.count);
    Ok(())
}

/// The other side: another process of this program.
struct Other {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start() -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(std::env::args().skip(1))
            .arg("--target")
            .stdout(Stdio::piped())
            .spawn()?;
        let lines = BufReader::new(process.stdout.take().ok_or("it was piped")?);
        Ok(Self { process, lines })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line)
    }

    fn end(mut self) -> Result<()> {
        let status = self.process.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the other side failed: {status}").into()) }
    }
}
