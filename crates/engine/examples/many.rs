//! Measures an engine with many peers, which live in few or many processes: `cargo xtask bench many`
//! runs it. Prints a line of JSON.
//!
//! `many idle RAIL PEERS PROCESSES SECONDS`: the processor time of the engine while nothing happens.
//! `many write RAIL PEERS PROCESSES ROUNDS`: eight bytes to each peer, all in flight at once; the time
//! of one write, and what it consists of.
//!
//! `many hold RAIL PEERS PROCESSES SECONDS` writes to each peer for so long, and prints its process id
//! first, for a profiler.
#![allow(clippy::print_stdout, reason = "a program that talks to its user")]

use std::error::Error;
use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use farreach::{Budgets, Engine, PageMap, Peer, RemoteSlice, Rights, Settings, Shared};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Time limit of each wait: thousands of connections take a while.
const SOON: Duration = Duration::from_secs(120);

/// The bytes of a write.
const BYTES: usize = 8;

/// Processes that are started at the same time.
const BATCH: usize = 40;

/// Rounds that only warm up.
const WARM_UP: usize = 2;

/// The time until what the connections leave behind is done.
const SETTLED: Duration = Duration::from_secs(2);

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, rail, first, second, third] = &words[..] else {
        return Err("usage: many idle|write|hold RAIL PEERS PROCESSES SECONDS|ROUNDS".into());
    };
    if what == "member" {
        return member(rail, first.parse()?, second.parse()?);
    }
    let (peers, processes, amount) = (first.parse()?, second.parse()?, third.parse()?);
    if processes == 0 || processes > peers || amount == 0 {
        return Err("at least one process, one peer in each, and one second or round are needed".into());
    }
    let engine = Engine::with(settings(rail))?;
    let members = Members::start(&engine, rail, peers, processes)?;
    std::thread::sleep(SETTLED);
    match what.as_str() {
        "idle" => idle(&members, Duration::from_secs(amount as u64))?,
        "write" => write(&engine, &members, amount)?,
        "hold" => {
            println!("{}", std::process::id());
            let (source, begun) = (source(&engine)?, Instant::now());
            while begun.elapsed() < Duration::from_secs(amount as u64) {
                members.write_to_each(&source)?;
            }
        }
        other => return Err(format!("there is no test `{other}`").into()),
    }
    if let Some(reason) = members.peers.iter().find_map(|(peer, _)| peer.lost()) {
        return Err(format!("a peer was lost: {reason}").into());
    }
    members.end(engine)
}

/// Settings with a long time limit, because all engines share the processors of this machine.
fn settings(rail: &str) -> Settings {
    Settings::new()
        .rails([rail])
        // With libfabric 2.x, a domain for each of a thousand peers takes 17 GB.
        .isolate_peers(false)
        // All are on this host.
        .budgets(Budgets::new().peers_per_address(8192))
        .peer_timeout(Duration::from_secs(30))
}

fn source(engine: &Engine) -> Result<Shared> {
    Ok(engine.allocate(BYTES).wait(SOON)?.share())
}

/// Runs a process with one engine, which connects so many times. It ends when its input does.
fn member(rail: &str, hub: SocketAddr, connections: usize) -> Result<()> {
    let engine = Engine::with(settings(rail))?;
    let mut kept = Vec::new();
    for _ in 0..connections {
        let peer = engine.connect(hub)?.wait(SOON)?;
        let grant = peer.grant(engine.allocate(BYTES).wait(SOON)?, Rights::WRITE).wait(SOON)?;
        peer.send(grant.token().to_string()).wait(SOON)?;
        kept.push((peer, grant));
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The processes of the peers, and the peers with their memory.
struct Members {
    processes: Vec<(Child, ChildStdin)>,
    peers: Vec<(Peer, RemoteSlice)>,
}

impl Members {
    fn start(engine: &Engine, rail: &str, peers: usize, processes: usize) -> Result<Self> {
        let address = engine.listen("127.0.0.1:0")?.to_string();
        let mut members = Self { processes: Vec::new(), peers: Vec::new() };
        let numbers: Vec<usize> = (0..processes).collect();
        // Not all at once, so that none waits longer than it may.
        for batch in numbers.chunks(BATCH) {
            let mut connections = 0;
            for number in batch {
                let share = peers / processes + usize::from(*number < peers % processes);
                let mut process = Command::new(std::env::current_exe()?)
                    .args(["member", rail, &address, &share.to_string(), "-"])
                    .stdin(Stdio::piped())
                    .spawn()?;
                let input = process.stdin.take().ok_or("it was piped")?;
                members.processes.push((process, input));
                connections += share;
            }
            for _ in 0..connections {
                let peer = engine.accept().wait(SOON)?;
                let token = String::from_utf8(peer.recv().wait(SOON)?)?;
                let memory = peer.remote(token.parse()?).wait(SOON)?;
                members.peers.push((peer, memory));
            }
        }
        Ok(members)
    }

    /// Writes to each peer, and waits for all writes.
    fn write_to_each(&self, source: &Shared) -> Result<()> {
        let map = PageMap::of(BYTES as u64).first(1);
        let begin = |(peer, to): &(Peer, RemoteSlice)| peer.write_pages(source.clone(), &map, to, None);
        let mut transfers: Vec<_> = self.peers.iter().map(begin).collect();
        for transfer in &mut transfers {
            transfer.wait(SOON)?;
        }
        Ok(())
    }

    /// Returns what all processes of the peers have used.
    fn usage(&self) -> Result<Usage> {
        let mut sum = Usage::default();
        for (process, _) in &self.processes {
            let of_one = Usage::of(process.id())?;
            sum.time += of_one.time;
            sum.switches += of_one.switches;
        }
        Ok(sum)
    }

    fn end(self, engine: Engine) -> Result<()> {
        for (mut process, input) in self.processes {
            drop(input);
            process.wait()?;
        }
        drop(self.peers);
        drop(engine);
        Ok(())
    }
}

fn idle(members: &Members, time: Duration) -> Result<()> {
    let (before, begun) = (Usage::of(std::process::id())?, Instant::now());
    std::thread::sleep(time);
    let used = Usage::of(std::process::id())?.since(before);
    println!(
        "{{\"test\":\"idle\",\"peers\":{},\"processes\":{},\"percent_of_a_core\":{:.4}}}",
        members.peers.len(),
        members.processes.len(),
        used.time.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0
    );
    Ok(())
}

fn write(engine: &Engine, members: &Members, rounds: usize) -> Result<()> {
    let source = source(engine)?;
    for _ in 0..WARM_UP {
        members.write_to_each(&source)?;
    }
    let (own, theirs) = (Usage::of(std::process::id())?, members.usage()?);
    let begun = Instant::now();
    for _ in 0..rounds {
        members.write_to_each(&source)?;
    }
    let took = begun.elapsed();
    let (own, theirs) = (Usage::of(std::process::id())?.since(own), members.usage()?.since(theirs));
    let writes = (rounds * members.peers.len()) as f64;
    let us = |time: Duration| time.as_secs_f64() * 1e6 / writes;
    println!(
        "{{\"test\":\"write\",\"peers\":{},\"processes\":{},\"rounds\":{rounds},\"us_per_write\":{:.2},\
         \"own_cpu_us\":{:.2},\"peers_cpu_us\":{:.2},\"own_switches\":{:.2},\"peers_switches\":{:.2}}}",
        members.peers.len(),
        members.processes.len(),
        us(took),
        us(own.time),
        us(theirs.time),
        own.switches as f64 / writes,
        theirs.switches as f64 / writes
    );
    Ok(())
}

/// What the threads of a process have used.
#[derive(Debug, Clone, Copy, Default)]
struct Usage {
    time: Duration,
    /// Context switches.
    switches: u64,
}

impl Usage {
    /// Reads `schedstat` and `status` of each thread: see `proc_pid_status(5)`. The first number of
    /// `schedstat` is the time that it has run, in nanoseconds.
    fn of(process: u32) -> Result<Self> {
        let mut sum = Self::default();
        for task in fs::read_dir(format!("/proc/{process}/task"))? {
            let folder = task?.path();
            let times = fs::read_to_string(folder.join("schedstat"))?;
            let ns = times.split(' ').next().unwrap_or_default().parse()?;
            sum.time += Duration::from_nanos(ns);
            for line in fs::read_to_string(folder.join("status"))?.lines() {
                // `voluntary_ctxt_switches:` and `nonvoluntary_ctxt_switches:`
                if let Some((_, count)) = line.split_once("voluntary_ctxt_switches:") {
                    sum.switches += count.trim().parse::<u64>()?;
                }
            }
        }
        Ok(sum)
    }

    /// Returns what was used since then. Threads that have ended since then do not count.
    fn since(self, before: Self) -> Self {
        Self {
            time: self.time.saturating_sub(before.time),
            switches: self.switches.saturating_sub(before.switches),
        }
    }
}
