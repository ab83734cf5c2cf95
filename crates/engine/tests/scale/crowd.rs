//! Many engines in a few processes. Each process runs this program with the same test, as the crowd
//! and not as the hub.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use farreach::{Budgets, Counter, Engine, Grant, Peer, RemoteCounter, RemoteSlice, Rights, Settings};
use rand_mt::Mt;

use super::usage::{available, resident};
use super::{SOON, filled};

/// The bytes that each member of a crowd grants the hub, by default.
pub(super) const PAGE: usize = 4096;

/// Lets one test run at a time.
static TURN: Mutex<()> = Mutex::new(());

const HUB: &str = "FARREACH_SCALE_HUB";
const RAIL: &str = "FARREACH_SCALE_RAIL";
const MEMBERS: &str = "FARREACH_SCALE_MEMBERS";
const LEN: &str = "FARREACH_SCALE_LEN";

/// Begins the line that a crowd prints when all of its members are connected.
const READY: &str = "the crowd is there";

/// Runs a test with an engine and a crowd around it.
pub(crate) fn hub(rail: &'static str, test: fn(&'static str)) {
    match std::env::var(HUB) {
        Ok(hub) => be_a_crowd(hub.parse().unwrap()),
        Err(_) => alone(|| test(rail)),
    }
}

/// Runs a test that needs no crowd.
pub(crate) fn alone(test: impl FnOnce()) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    test();
}

/// Settings with long timeouts, because a thousand engines share two processors here.
pub(super) fn settings(rail: &str) -> Settings {
    Settings::new()
        .rails([rail])
        // With libfabric 2.x, a domain for each of a thousand peers takes 17 GB.
        .isolate_peers(false)
        .budgets(Budgets::new().grants(1 << 20))
        .heartbeat(Duration::from_millis(500))
        .peer_timeout(Duration::from_secs(10))
}

/// Some engines in another process.
pub(super) struct Crowd {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Crowd {
    /// Starts `count` members, beginning with number `first`, which connect to the hub and grant it
    /// `len` bytes each.
    pub(super) fn start(hub: SocketAddr, rail: &str, (first, count): (usize, usize), len: usize) -> Self {
        let test = thread::current().name().expect("the harness names threads by tests").to_owned();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", &test, "--nocapture"])
            .env(HUB, hub.to_string())
            .env(RAIL, rail)
            .env(MEMBERS, format!("{first} {count}"))
            .env(LEN, len.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// Waits until all members are connected and have sent their tokens to the hub.
    pub(super) fn wait_until_ready(&mut self) -> String {
        let mut line = String::new();
        while !line.starts_with(READY) {
            line.clear();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "a crowd has ended early");
        }
        line.trim_end().to_owned()
    }

    /// Lets the members check their memory, and waits for their end.
    pub(super) fn leave(mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "a crowd has failed: {status}");
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // After a failed test. A process that was waited for does not exist any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Receives a member's message: its number, its memory, and its counter.
pub(super) fn told_by(peer: &Peer) -> (u64, RemoteSlice, RemoteCounter) {
    let told = String::from_utf8(peer.recv().wait(SOON).unwrap()).unwrap();
    let words: Vec<&str> = told.split(' ').collect();
    let [number, grant, counter] = words[..] else { panic!("{told}") };
    let to = peer.remote(grant.parse().unwrap()).wait(SOON).unwrap();
    let raises = peer.remote_counter(counter.parse().unwrap()).wait(SOON).unwrap();
    (number.parse().unwrap(), to, raises)
}

/// Engines of one process. Each has a thread, and starting more takes longer than a test may.
const ENGINES_MAX: usize = 60;

/// The fraction of the available memory that the engines of one process may use: the libraries take
/// tens of MiB for each.
const MEMORY_PART: u64 = 12;

/// One member of a crowd: a connection to the hub.
struct Member {
    number: usize,
    page: Grant,
    arrived: Counter,
    peer: Peer,
}

fn be_a_crowd(hub: SocketAddr) {
    let members = std::env::var(MEMBERS).unwrap();
    let mut numbers = members.split(' ').map(|number| number.parse::<usize>().unwrap());
    let (first, count) = (numbers.next().unwrap(), numbers.next().unwrap());
    let rail = std::env::var(RAIL).unwrap();
    let room = available() / MEMORY_PART;
    let before = resident();
    let mut engines: Vec<Engine> = Vec::new();
    let mut members = Vec::new();
    for number in first..first + count {
        if engines.len() < ENGINES_MAX && resident() - before < room {
            engines.push(Engine::with(settings(&rail)).unwrap());
        }
        // If there is not enough memory for one engine each, some engines connect several times.
        members.push(Member::new(number, &engines[number % engines.len()], hub));
    }
    let each = (resident() - before) / engines.len() as u64 / 1024;
    println!("\n{READY}: {count} members, {} engines of {each} KiB", engines.len());
    // The hub closes it when it is done.
    let _ = std::io::stdin().read(&mut [0]);
    members.iter().for_each(Member::check);
}

impl Member {
    fn new(number: usize, engine: &Engine, hub: SocketAddr) -> Self {
        let peer = engine.connect(hub).unwrap().wait(SOON).unwrap();
        let len = std::env::var(LEN).unwrap().parse().unwrap();
        let page = peer.grant(engine.allocate(len).wait(SOON).unwrap(), Rights::WRITE).wait(SOON).unwrap();
        let arrived = peer.open_counter().wait(SOON).unwrap();
        peer.send(format!("{number} {} {}", page.token(), arrived.token())).wait(SOON).unwrap();
        Self { number, page, arrived, peer }
    }

    /// Checks that the memory holds what the hub says it has written.
    fn check(&self) {
        let said = String::from_utf8(self.peer.recv().wait(SOON).unwrap()).unwrap();
        let len = self.page.len();
        let (pages, expected) = match said.as_str() {
            "nothing" => (0, vec![0; len]),
            "a page" => (1, filled(PAGE, self.number as u64)),
            "scattered pages" => (len / SMALL_PAGE, scattered(&filled(len, 1))),
            other => panic!("{other}"),
        };
        self.arrived.reach(pages as u64).wait(SOON).unwrap();
        assert_eq!(self.arrived.reached(), pages as u64);
        let mut bytes = vec![0; len];
        self.page.read_at(0, &mut bytes);
        assert!(bytes == expected, "member {} has other bytes", self.number);
    }
}

/// The length of a page in tests with very many pages.
pub(super) const SMALL_PAGE: usize = 64;

/// Returns the destinations of very many pages, in an order that is random and the same in each
/// process.
pub(super) fn places(count: u32) -> Vec<u32> {
    let mut places: Vec<u32> = (0..count).collect();
    let mut random = Mt::new(1);
    for place in (1..places.len()).rev() {
        places.swap(place, random.next_u32() as usize % (place + 1));
    }
    places
}

fn scattered(source: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; source.len()];
    for (page, place) in source.chunks(SMALL_PAGE).zip(places((source.len() / SMALL_PAGE) as u32)) {
        bytes[place as usize * SMALL_PAGE..][..SMALL_PAGE].copy_from_slice(page);
    }
    bytes
}
