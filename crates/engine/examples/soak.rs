//! Kills and stops processes at random instants, next to an engine that serves steady peers.
//!
//! ```console
//! $ soak rails=shm faults=1000 [seed=NUMBER]
//! ```
//!
//! It makes `faults` SIGKILLs and as many SIGSTOPs, which end with SIGCONT or SIGKILL. Victims and
//! steady peers are processes of the example `node`, in the same folder. Blocks of faults alternate
//! with blocks of as many normal exits (control, faults, faults, control), and the rates of the steady
//! peers in both are compared.
//!
//! It fails if a wait does not end, a byte is wrong, a steady peer is not served, a steady peer has
//! less than 90 % of its rate in the control blocks, or if descriptors, mappings or files in
//! `/dev/shm` are left. The same seed makes the same faults; what they meet depends on the scheduler.

#![allow(clippy::print_stdout, reason = "a program that talks to its user")]

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use farreach::{Counter, Engine, ErrorKind, Exposed, Grant, PageMap, Peer, Rights, Settings};
use rand_mt::Mt64;
use rustix::process::{Pid, Signal, kill_process};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The same as in the node.
const LEN: usize = 4 << 20;
const PAGE: usize = 64 << 10;
const PAGES: u64 = (LEN / PAGE) as u64;
const ECHO_LEN: usize = 256 << 10;
const ECHO_PAGE: usize = 4 << 10;
const ECHO_PAGES: u64 = (ECHO_LEN / ECHO_PAGE) as u64;

/// The byte that returned memory is filled with. A sender first sends it in round 238.
const MARK: u8 = 0xEE;
/// Returned memory that is watched for late writes, until as many others have followed it.
const WATCHED: usize = 8;

/// Time limit of operations that succeed, and of waits that a fault has to end.
const SOON: Duration = Duration::from_secs(30);
/// Time limit of a revoke while the peer is stopped, and the time after which the pages are exchanged.
const REVOKE: Duration = Duration::from_secs(3);
const EXCHANGED: Duration = Duration::from_secs(1);
const SLOT: Duration = Duration::from_millis(120);
/// A fault happens this long after the first page at most.
const LATEST: Duration = Duration::from_millis(20);

const STEADY: usize = 2;
/// The least rate of the steady peers, compared with that of the control blocks.
const RATE_MIN: f64 = 0.9;
/// With fewer faults, the rate is printed and not judged: other processes decide about it.
const FAULTS_MIN: u32 = 100;
/// Kills of a block, and stops.
const BLOCK: u32 = 20;
/// Victims that may be about to end while the next one is started.
const LEAVING: usize = 4;

fn main() -> Result<()> {
    let options: HashMap<String, String> = std::env::args()
        .skip(1)
        .map(|word| match word.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(format!("`{word}` is no NAME=VALUE")),
        })
        .collect::<Result<_, _>>()?;
    let rails = options.get("rails").ok_or("rails=NAME is missing")?;
    let faults: u32 = options.get("faults").ok_or("faults=COUNT is missing")?.parse()?;
    let seed = match options.get("seed") {
        Some(seed) => seed.parse()?,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64,
    };
    println!("seed {seed}: {faults} kills and {faults} stops over {rails}");
    Soak::start(rails, seed)?.run(faults)
}

/// What happens to a victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    /// It is stopped, continues after this time, and goes on.
    Stop(Duration),
    /// It is stopped, and killed after this time.
    StopAndKill(Duration),
    /// It is stopped, and its grant is revoked meanwhile.
    StopAndRevoke,
}

impl Fault {
    /// Returns the time from the start of a victim to that of the next one: longer than each takes.
    fn slot(self, role: Role) -> Duration {
        match (self, role) {
            (Self::StopAndRevoke, Role::Send) => EXCHANGED + SLOT,
            _ => SLOT,
        }
    }
}

/// What a victim does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It writes to this process.
    Send,
    /// This process writes to it.
    Receive,
}

/// A survivor with its steady peers.
struct Soak {
    rails: String,
    engine: Engine,
    address: SocketAddr,
    random: Mt64,
    steady: Vec<Steady>,
    /// Marked memory of senders that are gone.
    watched: VecDeque<Exposed>,
    /// Victims that are about to end, well or by a signal.
    leaving: VecDeque<(Node, bool)>,
}

impl Soak {
    fn start(rails: &str, seed: u64) -> Result<Self> {
        // No stop of these tests lasts as long as the silence after which a peer is lost.
        let settings = Settings::new().name("survivor").rails([rails]).peer_timeout(SOON);
        let engine = Engine::with(settings)?;
        let address = engine.listen("127.0.0.1:0")?;
        let mut steady = Vec::new();
        for _ in 0..STEADY {
            steady.push(Steady::start(rails, &engine, address)?);
        }
        let (random, watched, leaving) = (Mt64::new(seed), VecDeque::new(), VecDeque::new());
        Ok(Self { rails: rails.to_owned(), engine, address, random, steady, watched, leaving })
    }

    fn run(mut self, faults: u32) -> Result<()> {
        // The first victims make what is kept: threads, pools, tables.
        for fault in [Fault::Kill, Fault::StopAndRevoke, Fault::Kill] {
            self.victim(Role::Send, Some(fault), 0)?;
            self.victim(Role::Receive, Some(fault), 0)?;
        }
        self.forget_watched()?;
        let before = Left::now()?;
        let begun = Instant::now();
        let (mut ratios, mut done) = (Vec::new(), 0);
        while done < faults {
            let (count, seed) = (BLOCK.min((faults - done).div_ceil(2)), self.random.next_u64());
            let first = self.block(count, seed, false)?;
            let faulty = [self.block(count, seed, true)?, self.block(count, !seed, true)?];
            let control = [first, self.block(count, !seed, false)?];
            done += 2 * count;
            ratios.push((faulty[0] * faulty[1] / (control[0] * control[1])).sqrt());
            println!("{done} of {faults}: steady peers at {:.2} of the control", ratios[ratios.len() - 1]);
        }
        self.forget_watched()?;
        ratios.sort_by(f64::total_cmp);
        let ratio = ratios[ratios.len() / 2];
        let rounds: u64 = self.steady.iter().map(Steady::rounds).sum();
        let left = before.compare()?;
        let lasted = begun.elapsed().as_secs();
        println!(
            "{done} kills and {done} stops in {lasted} s: {rounds} rounds of {STEADY} steady peers, at \
             {ratio:.2} of the control; {left}"
        );
        for steady in &mut self.steady {
            steady.finish()?;
        }
        if done >= FAULTS_MIN && ratio < RATE_MIN {
            return Err(format!("the steady peers had {ratio:.2} of their rate, at least {RATE_MIN}").into());
        }
        Ok(())
    }

    /// Makes so many kills and stops, or twice as many normal exits. Returns the rounds of the steady
    /// peers a second.
    fn block(&mut self, count: u32, seed: u64, is_faulty: bool) -> Result<f64> {
        let mut random = Mt64::new(seed);
        let rounds = |steady: &[Steady]| steady.iter().map(Steady::rounds).sum::<u64>();
        let (begun, before) = (Instant::now(), rounds(&self.steady));
        for number in 0..2 * count {
            let mut within = |time: Duration| random.next_u64() % time.as_nanos() as u64;
            let (instant, hold) = (within(LATEST), Duration::from_nanos(within(LATEST)));
            let role = if random.next_u64().is_multiple_of(2) { Role::Send } else { Role::Receive };
            let fault = match (number % 2, random.next_u64() % 4) {
                (0, _) => Fault::Kill,
                (_, 0) => Fault::StopAndRevoke,
                (_, 1) => Fault::StopAndKill(hold),
                _ => Fault::Stop(hold),
            };
            let (what, slot) = (is_faulty.then_some(fault), Instant::now() + fault.slot(role));
            self.victim(role, what, instant).map_err(|error| format!("{role:?}, {what:?}: {error}"))?;
            // Victims follow each other at the same pace in all blocks, whatever their end is. This
            // thread waits in the engine meanwhile. Nobody connects.
            let _ = self.engine.accept().wait(slot.saturating_duration_since(Instant::now()));
            for steady in &self.steady {
                steady.check()?;
            }
        }
        self.all_have_ended(0)?;
        Ok((rounds(&self.steady) - before) as f64 / begun.elapsed().as_secs_f64())
    }

    /// Waits until all victims have ended, except for the last ones.
    fn all_have_ended(&mut self, except: usize) -> Result<()> {
        while self.leaving.len() > except
            && let Some((mut node, is_well)) = self.leaving.pop_front()
        {
            node.wait_end(is_well)?;
        }
        Ok(())
    }

    /// Notes that a victim is about to end, well or by a signal.
    fn leaves(&mut self, node: Node, is_well: bool) -> Result<()> {
        self.leaving.push_back((node, is_well));
        self.all_have_ended(LEAVING)
    }

    fn victim(&mut self, role: Role, fault: Option<Fault>, instant_ns: u64) -> Result<()> {
        let instant = Duration::from_nanos(instant_ns);
        match role {
            Role::Send => self.sender(fault, instant),
            Role::Receive => self.receiver(fault, instant),
        }
    }

    /// A victim that writes. Its memory comes back, and has only what it has sent.
    fn sender(&mut self, fault: Option<Fault>, instant: Duration) -> Result<()> {
        let node = Node::start("send", &self.rails, Some(self.address))?;
        let peer = self.engine.accept().wait(SOON)?;
        let (grant, arrived) = offer(&self.engine, &peer, LEN)?;
        arrived.reach(1).wait(SOON)?;
        std::thread::sleep(instant);
        match fault {
            None => {}
            Some(Fault::Kill) => node.kill(),
            Some(Fault::Stop(hold)) => {
                node.stop()?;
                std::thread::sleep(hold);
                node.signal(Signal::CONT);
                let reached = arrived.reached();
                arrived.reach(reached + 2 * PAGES).wait(SOON)?;
            }
            Some(Fault::StopAndKill(hold)) => {
                node.stop()?;
                std::thread::sleep(hold);
                node.kill();
            }
            Some(Fault::StopAndRevoke) => {
                node.stop()?;
                let memory = grant.revoke(REVOKE).map_err(|error| format!("a stopped peer: {error}"))?;
                self.came_back(memory, arrived.reached(), false)?;
                node.signal(Signal::CONT);
                // It finds its grant revoked, and ends by itself.
                return self.leaves(node, true);
            }
        }
        if matches!(fault, Some(Fault::Kill | Fault::StopAndKill(_))) {
            let lost = arrived.reach(u64::MAX).wait(SOON).err().map(|error| error.kind());
            if lost != Some(ErrorKind::PeerLost) {
                return Err(format!("the wait for a killed peer ended with {lost:?}").into());
            }
            let memory = grant.revoke(REVOKE).map_err(|error| format!("a killed peer: {error}"))?;
            self.came_back(memory, arrived.reached(), true)?;
            return self.leaves(node, false);
        }
        let memory = grant.revoke(SOON)?;
        self.came_back(memory, arrived.reached(), true)?;
        self.leaves(node, true)
    }

    /// A victim that is written to.
    fn receiver(&mut self, fault: Option<Fault>, instant: Duration) -> Result<()> {
        let mut node = Node::start("receive", &self.rails, None)?;
        let address: SocketAddr = node.line("listening at ")?.parse()?;
        let peer = self.engine.connect(address)?.wait(SOON)?;
        let (remote, raises) = taken(&peer)?;
        let source = self.engine.allocate(LEN).wait(SOON)?.share();
        let map = PageMap::of(PAGE as u64).first(PAGES as u32);
        let write = || peer.write_pages(source.clone(), &map, &remote, Some(&raises));
        let begun = Instant::now();
        while begun.elapsed() < instant {
            write().wait(SOON).map_err(|error| format!("before the fault: {error}"))?;
        }
        let mut in_flight: Vec<_> = (0..4).map(|_| write()).collect();
        let is_killed = matches!(fault, Some(Fault::Kill | Fault::StopAndKill(_)));
        match fault {
            None => {}
            Some(Fault::Kill) => node.kill(),
            Some(Fault::Stop(hold) | Fault::StopAndKill(hold)) => {
                node.stop()?;
                std::thread::sleep(hold);
                node.signal(if is_killed { Signal::KILL } else { Signal::CONT });
            }
            Some(Fault::StopAndRevoke) => {
                node.stop()?;
                // This side leaves while the victim is stopped. The victim revokes its grant then.
                drop(in_flight);
                let _ = peer.close(LATEST);
                node.signal(Signal::CONT);
                return self.leaves(node, true);
            }
        }
        for transfer in &mut in_flight {
            match transfer.wait(SOON) {
                Ok(_) => {}
                Err(error) if is_killed && error.error.kind() == ErrorKind::PeerLost => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !is_killed {
            write().wait(SOON).map_err(|error| format!("after a stop: {error}"))?;
            peer.close(SOON)?;
            return self.leaves(node, true);
        }
        let begun = Instant::now();
        // The last ones may have succeeded before the loss was noticed.
        while write().wait(SOON).is_ok() {
            if begun.elapsed() > SOON {
                return Err("writes to a killed peer succeed".into());
            }
        }
        self.leaves(node, false)
    }

    /// Checks memory that a sender has written to, and marks and watches it.
    ///
    /// A round begins when the one before is there, so the bytes are of two rounds at most. Whatever
    /// was counted is there. The sender may have been ahead: what it had counted last is lost with it
    /// if the control connection ends first.
    fn came_back(&mut self, memory: Exposed, counted: u64, is_lost: bool) -> Result<()> {
        if memory.keys() != 0 {
            return Err(format!("memory came back with {} keys", memory.keys()).into());
        }
        let bytes = memory.to_vec();
        let (whole, part) = (counted / PAGES, counted % PAGES);
        // Rounds ahead of what was counted, by the byte of a round.
        let ahead = |byte: u8| byte.wrapping_sub(whole as u8);
        let [least, most] =
            [bytes.iter().map(|byte| ahead(*byte)).min(), bytes.iter().map(|byte| ahead(*byte)).max()]
                .map(Option::unwrap_or_default);
        let ahead_max = if is_lost { 128 } else { 1 };
        if most > ahead_max || most - least > 1 {
            return Err(format!(
                "{counted} pages were counted, and the bytes are of {least} to {most} rounds later"
            )
            .into());
        }
        let is_new = |page: &[u8]| page.iter().all(|byte| ahead(*byte) >= 1);
        let of_last = bytes.chunks(PAGE).filter(|page| is_new(page)).count() as u64;
        if of_last < part {
            return Err(format!("{part} pages of a round were counted, and {of_last} are there").into());
        }
        memory.write_at(0, &vec![MARK; memory.len()]);
        self.watched.push_back(memory);
        if self.watched.len() > WATCHED
            && let Some(oldest) = self.watched.pop_front()
        {
            stayed_marked(&oldest)?;
        }
        Ok(())
    }

    fn forget_watched(&mut self) -> Result<()> {
        self.all_have_ended(0)?;
        while let Some(memory) = self.watched.pop_front() {
            stayed_marked(&memory)?;
        }
        Ok(())
    }
}

fn stayed_marked(memory: &Exposed) -> Result<()> {
    match memory.to_vec().iter().filter(|byte| **byte != MARK).count() {
        0 => Ok(()),
        late => Err(format!("{late} bytes landed in memory that had come back").into()),
    }
}

/// Grants the peer memory and a counter, and sends it both tokens.
fn offer(engine: &Engine, peer: &Peer, len: usize) -> Result<(Grant, Counter)> {
    let grant = peer.grant(engine.allocate(len).wait(SOON)?, Rights::WRITE).wait(SOON)?;
    let counter = peer.open_counter().wait(SOON)?;
    peer.send(format!("{} {}", grant.token(), counter.token())).wait(SOON)?;
    Ok((grant, counter))
}

/// Receives the tokens of the peer's memory and counter.
fn taken(peer: &Peer) -> Result<(farreach::RemoteSlice, farreach::RemoteCounter)> {
    let message = String::from_utf8(peer.recv().wait(SOON)?)?;
    let (grant, counter) = message.split_once(' ').ok_or("two tokens are expected")?;
    Ok((peer.remote(grant.parse()?).wait(SOON)?, peer.remote_counter(counter.parse()?).wait(SOON)?))
}

/// A process of the example `node`. It is killed when this is dropped.
struct Node {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Node {
    fn start(role: &str, rails: &str, peer: Option<SocketAddr>) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?.with_file_name("node"));
        command.arg(role).arg(format!("rails={rails}")).arg(format!("silence={}", SOON.as_millis()));
        command.args(peer.map(|peer| format!("peer={peer}")));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("it was piped")?;
        Ok(Self { child, lines: BufReader::new(stdout).lines() })
    }

    /// Returns the rest of the next line that begins so.
    fn line(&mut self, begin: &str) -> Result<String> {
        for line in self.lines.by_ref() {
            if let Some(rest) = line?.strip_prefix(begin) {
                return Ok(rest.to_owned());
            }
        }
        Err(format!("the node has not said `{begin}`").into())
    }

    fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Stops it, and waits until each of its threads has stopped.
    fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP);
        let (tasks, begun) = (format!("/proc/{}/task", self.child.id()), Instant::now());
        let is_stopped = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
        while !std::fs::read_dir(&tasks)?
            .flatten()
            .all(|task| std::fs::read_to_string(task.path().join("stat")).is_ok_and(is_stopped))
        {
            if begun.elapsed() > SOON {
                return Err("a victim does not stop".into());
            }
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        // It fails for a process that has ended; its end is checked.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for its end: a successful one, or that by the signal.
    fn wait_end(&mut self, is_well: bool) -> Result<()> {
        let begun = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() == is_well => return Ok(()),
                Some(status) => return Err(format!("a victim has ended with {status}").into()),
                None if begun.elapsed() > SOON => return Err("a victim does not end".into()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A peer that writes back what is written to it, and the thread that verifies it.
struct Steady {
    node: Node,
    rounds: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Steady {
    fn start(rails: &str, engine: &Engine, address: SocketAddr) -> Result<Self> {
        let node = Node::start("echo", rails, Some(address))?;
        let peer = engine.accept().wait(SOON)?;
        let (rounds, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (engine, counted, over) = (engine.clone(), Arc::clone(&rounds), Arc::clone(&is_over));
        let run = move || serve(&engine, &peer, &counted, &over).map_err(|error| error.to_string());
        Ok(Self { node, rounds, is_over, thread: Some(std::thread::spawn(run)) })
    }

    fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::SeqCst)
    }

    /// Returns an error if it is not served any more.
    fn check(&self) -> Result<()> {
        match &self.thread {
            Some(thread) if !thread.is_finished() => Ok(()),
            _ => Err(format!("a steady peer is not served after {} rounds", self.rounds()).into()),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.is_over.store(true, Ordering::SeqCst);
        let thread = self.thread.take().ok_or("it is finished once")?;
        thread.join().map_err(|_| "the thread of a steady peer has panicked")??;
        self.node.kill();
        Ok(())
    }
}

/// Exchanges round after round, and verifies each byte and each count.
fn serve(engine: &Engine, peer: &Peer, rounds: &AtomicU64, is_over: &AtomicBool) -> Result<()> {
    let (there, raises) = taken(peer)?;
    let (here, arrived) = offer(engine, peer, ECHO_LEN)?;
    let map = PageMap::of(ECHO_PAGE as u64).first(ECHO_PAGES as u32);
    let (mut source, mut back) = (engine.allocate(ECHO_LEN).wait(SOON)?, vec![0; ECHO_LEN]);
    let mut round = 0;
    while !is_over.load(Ordering::SeqCst) {
        round += 1;
        for (place, word) in source.chunks_exact_mut(8).enumerate() {
            let mixed = (place as u64 ^ u64::rotate_left(round, 17)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            word.copy_from_slice(&mixed.to_le_bytes());
        }
        let done = peer.write_pages(source, &map, &there, Some(&raises)).wait(SOON)?;
        source = done.buffer.into_slice().map_err(|_| "a slice was given")?;
        arrived.reach(round * ECHO_PAGES).wait(SOON)?;
        here.read_at(0, &mut back);
        if back != *source || arrived.reached() != round * ECHO_PAGES {
            return Err(format!("round {round} of a steady peer came back changed").into());
        }
        rounds.store(round, Ordering::SeqCst);
    }
    Ok(())
}

/// What a process has, and what may be left of others.
struct Left {
    descriptors: usize,
    mappings: usize,
    threads: usize,
    /// Names in `/dev/shm`. Other programs of the machine may use it.
    files: BTreeSet<String>,
}

impl Left {
    fn now() -> Result<Self> {
        let names = |folder: &str| -> Result<BTreeSet<String>> {
            let names =
                std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into()));
            names.collect()
        };
        // Of memory that can be shared; the allocator of C maps as it likes.
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        Ok(Self {
            descriptors: names("/proc/self/fd")?.len(),
            mappings: maps.lines().filter(|line| line.contains("memfd:")).count(),
            threads: names("/proc/self/task")?.len(),
            files: names("/dev/shm")?,
        })
    }

    /// Waits until there is as much as before: links of victims end a little later.
    fn compare(&self) -> Result<String> {
        let begun = Instant::now();
        loop {
            let now = Self::now()?;
            let new: Vec<_> =
                now.files.difference(&self.files).filter(|name| name.contains("farreach")).collect();
            let (old, left) = (
                (self.descriptors, self.mappings, self.threads),
                (now.descriptors, now.mappings, now.threads),
            );
            if left == old && new.is_empty() {
                let (descriptors, mappings, threads) = left;
                return Ok(format!(
                    "{descriptors} descriptors, {mappings} mappings, {threads} threads as before"
                ));
            }
            if begun.elapsed() > Duration::from_secs(10) {
                return Err(format!(
                    "descriptors, mappings and threads were {old:?} and are {left:?}; new in /dev/shm: {new:?}"
                )
                .into());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
