//! Measures urgent reads of 4 KiB from another process, while nothing else moves and while large writes
//! go to it. Prints a line of JSON: `cargo xtask bench urgent` runs it.
//!
//! Usage: `urgent RAIL urgent|normal normal|bulk ROUNDS MIB_PER_ROUND PAUSE_US`. The first priority is that
//! of the reads, the second one that of the large writes. There is a pause before each read.

#![allow(clippy::print_stdout, reason = "it is a program")]

use std::collections::VecDeque;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use farreach::{Engine, Peer, Priority, RemoteSlice, Rights, Settings, Shared, Transfer};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SOON: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(600);

/// The bytes of a read, and of one large write.
const READ: usize = 4096;
const LARGE: usize = 64 << 20;
/// Large writes at a time: one is queued whenever one ends.
const AT_ONCE: usize = 4;
/// Reads of an idle phase, and the minimum in a busy one.
const READS: usize = 2000;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["target", rail] => target(rail),
        [rail, reads, large, rounds, mib, pause] => {
            let (reads, large) = (priority(reads)?, priority(large)?);
            let pause = Duration::from_micros(pause.parse()?);
            measure(rail, (reads, large), rounds.parse()?, mib.parse::<u64>()? << 20, pause)
        }
        _ => Err("usage: urgent RAIL urgent|normal normal|bulk ROUNDS MIB PAUSE_US".into()),
    }
}

fn priority(name: &str) -> Result<Priority> {
    match name {
        "urgent" => Ok(Priority::Urgent),
        "normal" => Ok(Priority::Normal),
        "bulk" => Ok(Priority::Bulk),
        other => Err(format!("{other} is not a priority").into()),
    }
}

fn target(rail: &str) -> Result<()> {
    let engine = Engine::with(Settings::new().name("target").rails([rail]))?;
    println!("{}", engine.listen("127.0.0.1:0")?);
    std::io::stdout().flush()?;
    let peer = engine.accept().wait(SOON)?;
    let memory = engine.allocate(LARGE + READ).wait(SOON)?;
    let grant = peer.grant(memory, Rights::READ | Rights::WRITE).wait(SOON)?;
    peer.send(grant.token().to_string()).wait(SOON)?;
    // Until the other side leaves.
    let _ = peer.recv().wait(LONG);
    Ok(())
}

/// What a phase has measured.
struct Phase {
    p50: f64,
    p99: f64,
    gb_per_s: f64,
}

struct Side {
    urgent: Peer,
    large: Peer,
    remote: RemoteSlice,
    source: Shared,
    pause: Duration,
    into: Option<Vec<u8>>,
}

impl Side {
    /// Reads once, and returns the time that it has taken in microseconds.
    fn read(&mut self) -> Result<f64> {
        if !self.pause.is_zero() {
            std::thread::sleep(self.pause);
        }
        let into = self.into.take().unwrap_or_else(|| vec![0; READ]);
        let begin = Instant::now();
        let done = self.urgent.read(&self.remote.at(LARGE as u64), into).wait(LONG)?;
        let took = begin.elapsed();
        self.into = Some(done.buffer);
        Ok(took.as_secs_f64() * 1e6)
    }

    fn idle(&mut self) -> Result<Phase> {
        let begin = Instant::now();
        let times = (0..READS).map(|_| self.read()).collect::<Result<Vec<f64>>>()?;
        Ok(phase(times, 0, begin.elapsed()))
    }

    fn busy(&mut self, bytes: u64) -> Result<Phase> {
        let (begin, mut times, mut moved) = (Instant::now(), Vec::new(), 0);
        let mut large: VecDeque<Transfer<Shared>> = VecDeque::new();
        while moved < bytes || times.len() < READS / 4 {
            while large.len() < AT_ONCE {
                large.push_back(self.large.write(self.source.clone(), &self.remote));
            }
            times.push(self.read()?);
            while let Some(first) = large.front_mut()
                && let Some(done) = first.try_take()
            {
                done?;
                large.pop_front();
                moved += LARGE as u64;
            }
        }
        let took = begin.elapsed();
        for transfer in &mut large {
            transfer.wait(LONG)?;
        }
        Ok(phase(times, moved, took))
    }

    /// Writes without reads, and returns the rate in GB/s.
    fn alone(&mut self, bytes: u64) -> Result<f64> {
        let (begin, mut moved) = (Instant::now(), 0);
        let mut large: VecDeque<Transfer<Shared>> = VecDeque::new();
        while moved < bytes {
            while large.len() < AT_ONCE {
                large.push_back(self.large.write(self.source.clone(), &self.remote));
            }
            large.pop_front().ok_or("some are in flight")?.wait(LONG)?;
            moved += LARGE as u64;
        }
        let took = begin.elapsed();
        for transfer in &mut large {
            transfer.wait(LONG)?;
        }
        Ok(moved as f64 / took.as_secs_f64() / 1e9)
    }
}

fn phase(mut times: Vec<f64>, moved: u64, took: Duration) -> Phase {
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    Phase { p50: at(0.5), p99: at(0.99), gb_per_s: moved as f64 / took.as_secs_f64() / 1e9 }
}

fn measure(
    rail: &str,
    (reads, large): (Priority, Priority),
    rounds: usize,
    bytes: u64,
    pause: Duration,
) -> Result<()> {
    let mut other =
        Command::new(std::env::current_exe()?).args(["target", rail]).stdout(Stdio::piped()).spawn()?;
    let mut address = String::new();
    BufReader::new(other.stdout.take().ok_or("it was piped")?).read_line(&mut address)?;
    let engine = Engine::with(Settings::new().name("initiator").rails([rail]))?;
    let peer = engine.connect(address.trim())?.wait(SOON)?;
    let token = String::from_utf8(peer.recv().wait(SOON)?)?;
    let remote = peer.remote(token.parse()?).wait(SOON)?;
    let mut source = engine.allocate(LARGE).wait(SOON)?;
    source.fill(7);
    let (urgent, large) = (peer.with_priority(reads), peer.with_priority(large));
    let mut side = Side { urgent, large, remote, source: source.share(), pause, into: None };
    side.idle()?;
    side.alone(bytes / 4)?;
    let (mut idle, mut busy, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        idle.push(side.idle()?);
        busy.push(side.busy(bytes)?);
        rates.push(side.alone(bytes / 2)?);
    }
    let ratios = |of: fn(&Phase) -> f64| -> Vec<f64> {
        busy.iter().zip(&idle).map(|(busy, idle)| of(busy) / of(idle)).collect()
    };
    let all = |phases: &[Phase], of: fn(&Phase) -> f64| phases.iter().map(of).collect::<Vec<f64>>();
    println!(
        "{{\"idle_p50\":{:?},\"idle_p99\":{:?},\"busy_p50\":{:?},\"busy_p99\":{:?},\"p50_ratios\":{:?},\
         \"p99_ratios\":{:?},\"gb_per_s\":{:?},\"gb_per_s_alone\":{:?}}}",
        all(&idle, |it| it.p50),
        all(&idle, |it| it.p99),
        all(&busy, |it| it.p50),
        all(&busy, |it| it.p99),
        ratios(|it| it.p50),
        ratios(|it| it.p99),
        all(&busy, |it| it.gb_per_s),
        rates
    );
    let Side { urgent, large, .. } = side;
    drop((urgent, large, peer));
    engine.close(SOON)?;
    other.wait()?;
    Ok(())
}
