//! Lines that attack `farreach serve`.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::DriveArgs;
use super::lines::{Kind, Line, Size};
use super::process::Process;
use super::stage::{Phase, Undisturbed, phase_min};
use crate::host;
use crate::judge::{Measured, SHARE_MIN, Usage};
use crate::load::{End, as_fast_as_possible, at_fixed_times};
use crate::protocol::SECRET;
use crate::roles::Attacked;
use crate::service::Service;

/// How long a process may take to start, and to answer. It only detects a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long an attacker may take.
const ATTACK_LIMIT: Duration = Duration::from_secs(150);

/// How long the server may take until the agents of attackers have ended.
const SETTLE: Duration = Duration::from_secs(40);

/// How long one client may take.
const CLIENT_LIMIT: Duration = Duration::from_secs(60);

/// How long all of a crowd may take.
const CROWD_LIMIT: Duration = Duration::from_secs(120);

/// The undisturbed 99th percentile is taken to be at least this: starting a process takes as long on
/// a busy machine.
const P99_FLOOR: Duration = Duration::from_millis(300);

/// The largest undisturbed 99th percentile with which a line can be judged.
const P99_MAX: Duration = Duration::from_millis(1500);

/// The clients of a phase, with the full and with the short sizes. One of a hundred may be late, and
/// none of fewer.
const OPERATIONS_MIN: [u64; 2] = [100, 8];

/// Memory that the server and its agents may have together, in MiB.
const BUDGET_MIB: u64 = 512;

/// Clients that run at the same time.
const CLIENTS: usize = 2;

/// The bytes before the order in the stream of a client: a head, and the order's length.
const ORDER_AT: usize = crate::attacks::HEAD_LEN + 4;

/// A server.
#[derive(Debug)]
pub(super) struct ServeStage {
    farreach: PathBuf,
    rail: String,
    is_tls: bool,
    server: Process,
    address: SocketAddr,
    /// Clients per second: a quarter of the capacity.
    rate: f64,
    undisturbed: Undisturbed,
    calm: Option<Service>,
    calm_time: Duration,
    operations_min: u64,
    /// The order of an honest client.
    order: String,
    /// The order of a diagnosis.
    diagnosis: String,
    /// Where the server is reached from elsewhere.
    outside: Option<SocketAddr>,
}

impl ServeStage {
    pub(super) fn open(args: &DriveArgs, is_tls: bool) -> Result<Self> {
        let farreach = args.farreach.clone().context("the command was not given (--farreach)")?;
        let mut command = command(&farreach, &["serve", "-p", "0", "-d", &args.rail, "-l"], is_tls);
        // Clients from elsewhere are served, too, unless their order is one that needs TLS.
        match args.outside.filter(|_| !is_tls) {
            Some(_) => command.args(["0.0.0.0", "--insecure"]),
            None => command.arg("127.0.0.1"),
        };
        if args.weak {
            command.args(["--handshake-time", "3600", "--handshakes-max", "1000000"]);
        }
        let mut server = Process::start("farreach serve", &mut command)?;
        let first = server.line(PATIENCE)?;
        let port = port_of(&first).with_context(|| format!("the server does not say its port: {first:?}"))?;
        let mut stage = Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            outside: args.outside.filter(|_| !is_tls).map(|outside| (outside, port).into()),
            farreach,
            rail: args.rail.clone(),
            is_tls,
            server,
            rate: 0.0,
            undisturbed: Undisturbed::new(P99_FLOOR),
            calm: None,
            calm_time: args.calm_time() * 2,
            operations_min: OPERATIONS_MIN[usize::from(args.short)],
            order: String::new(),
            diagnosis: String::new(),
        };
        // Over TLS an order cannot be recorded, and the attackers there need none.
        if !is_tls {
            stage.order = stage.record_order(&["ping", "-d", &args.rail, "-n", "20"])?;
            stage.diagnosis = stage.record_order(&["doctor"])?;
        }
        stage.calibrate(args.calibration_time() * 2);
        ensure!(stage.rate > 0.0, "no client is served");
        Ok(stage)
    }

    fn client(&self) -> Client {
        Client {
            farreach: self.farreach.clone(),
            address: self.address.to_string(),
            rail: self.rail.clone(),
            is_tls: self.is_tls,
        }
    }

    /// Records what a command orders.
    fn record_order(&self, words: &[&str]) -> Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (address, server) = (listener.local_addr()?.to_string(), self.address);
        let (sender, streams) = channel();
        // It ends with this process at the latest: a client may connect once more.
        std::thread::spawn(move || {
            while let Ok(sent) = record(&listener, server) {
                if sender.send(sent).is_err() {
                    return;
                }
            }
        });
        let client = Process::start("farreach", command(&self.farreach, words, self.is_tls).arg(address))?;
        let deadline = Instant::now() + CLIENT_LIMIT;
        loop {
            // A client looks first what the server offers, over a connection without an order.
            let left = deadline.saturating_duration_since(Instant::now());
            match streams.recv_timeout(left) {
                Ok(sent) => {
                    if let Some(order) = order_in(&sent) {
                        return Ok(order);
                    }
                }
                Err(_) => bail!("farreach {} has sent no order: {}", words[0], client.said()),
            }
        }
    }

    fn calibrate(&mut self, time: Duration) {
        let client = self.client();
        let served: u64 = std::thread::scope(|scope| {
            let run = || as_fast_as_possible(time, |_| client.run());
            let threads: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).sum()
        });
        let capacity = served as f64 / time.as_secs_f64();
        self.rate = capacity / 4.0;
        println!(
            "farreach serve over {}: {capacity:.1} clients per second, and a quarter of it as load",
            self.rail
        );
    }

    /// Runs the honest load while `work` runs.
    fn under_load<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<(Service, T)> {
        // More threads than clients are expected at a time, so that a slow one does not delay others.
        const THREADS: u32 = 4;
        let (end, client) = (End::default(), self.client());
        let interval = Duration::from_secs_f64(1.0 / self.rate.max(0.1));
        let start = Instant::now();
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (end, client) = (end.clone(), client.clone());
                let first = start + interval * number;
                std::thread::spawn(move || at_fixed_times(first, interval * THREADS, &end, |_| client.run()))
            })
            .collect();
        let done = work(self);
        end.now();
        let mut service = Service::default();
        for thread in threads {
            service.add(thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?);
        }
        Ok((service, done?))
    }

    /// Returns the time of a phase with enough clients to be judged.
    fn phase_time(&self, wanted: Duration) -> Duration {
        wanted.max(phase_min(self.operations_min + 1, self.rate))
    }

    fn calm_phase(&mut self) -> Result<Service> {
        let time = self.phase_time(self.calm_time);
        let work = |_: &mut Self| {
            std::thread::sleep(time);
            Ok(())
        };
        Ok(self.under_load(work)?.0)
    }

    /// Runs one line.
    pub(super) fn run(&mut self, line: &Line, size: Size, seed: u64) -> Result<Measured> {
        let mut measured = Measured {
            name: line.name.to_owned(),
            attack: line.attack.to_owned(),
            share_min: SHARE_MIN,
            p99_max_us: P99_MAX.as_micros() as u64,
            operations_min: self.operations_min,
            ..Measured::default()
        };
        let size = Size { lasts: self.phase_time(size.lasts), ..size };
        let pid = self.server.pid();
        let (files, descriptors) = (host::shared_files(), host::descriptors(pid)?);
        let sampler = Sampler::start(pid);
        let before_mib = sampler.now_mib();
        if line.kind == Kind::Crowd {
            let crowd = self.crowd(size.count);
            measured.did = format!("{} honest clients at once", size.count);
            measured.limit_us = CROWD_LIMIT.as_micros() as u64;
            (measured.share_min, measured.operations_min) = (1.0, size.count);
            measured.during = Some(crowd.summary(Some(CROWD_LIMIT)));
        } else {
            let calm = match self.calm.take() {
                Some(calm) => calm,
                None => self.calm_phase()?,
            };
            let limit = self.undisturbed.limit(&calm);
            measured.limit_us = limit.as_micros() as u64;
            measured.before = Some(calm.summary(Some(limit)));
            let (service, phase) = self.under_load(|stage| stage.attack(line, size, seed))?;
            measured.during = Some(service.summary(Some(limit)));
            measured.breaches = phase.attacked.breaches();
            (measured.hits, measured.attempts) = (phase.attacked.hits(), phase.attacked.attempts);
            measured.attempts_min = if line.counts_attempts { size.count } else { 0 };
            measured.did = phase.attacked.did;
        }
        self.settle(&mut measured);
        let peak = sampler.end();
        // The server of a crowd has an agent for each client.
        let budget = BUDGET_MIB + if line.kind == Kind::Crowd { 8 * size.count } else { 0 };
        let after = if measured.failures.is_empty() { anonymous_mib(pid) } else { before_mib };
        measured.memory_mib = Usage { before: before_mib, peak, after, budget };
        let after = host::descriptors(pid).unwrap_or_default() as u64;
        measured.descriptors = Usage { before: descriptors as u64, peak: 0, after, budget: 0 };
        let left: Vec<String> = host::shared_files().difference(&files).cloned().collect();
        if !left.is_empty() {
            measured.left.push(format!("{} files in /dev/shm: {}", left.len(), left.join(", ")));
        }
        if measured.failures.is_empty() && line.kind != Kind::Crowd {
            let after = self.calm_phase()?;
            let limit = Duration::from_micros(measured.limit_us);
            measured.after = Some(after.summary(Some(limit)));
            self.calm = Some(after);
        }
        Ok(measured)
    }

    /// Waits until the agents of attackers have ended, and looks for crashes.
    fn settle(&mut self, measured: &mut Measured) {
        let deadline = Instant::now() + SETTLE;
        while !host::children(self.server.pid()).is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        let agents = host::children(self.server.pid()).len();
        if agents > 0 {
            measured.left.push(format!("{agents} agents that have not ended"));
        }
        if let Some(how) = self.server.ended() {
            measured.failures.push(format!("the server has ended {how}"));
        }
        let said = self.server.said();
        for words in ["panicked at", "killed by signal"] {
            if let Some(line) = said.lines().find(|line| line.contains(words)) {
                measured.failures.push(format!("the server's log has: {line}"));
            }
        }
    }

    fn attack(&mut self, line: &Line, size: Size, seed: u64) -> Result<Phase> {
        let started = Instant::now();
        let attacked = match line.kind {
            Kind::Kill => self.kill_clients(size.count)?,
            Kind::Attack => {
                let (count, lasts) = (size.count.to_string(), size.lasts.as_millis().to_string());
                let (seed, pid) = (seed.to_string(), self.server.pid().to_string());
                let address =
                    if line.needs_outside { self.outside.context("no address")? } else { self.address };
                let order = if line.needs_outside { &self.diagnosis } else { &self.order };
                let address = address.to_string();
                let words = [
                    line.name,
                    "--count",
                    &count,
                    "--lasts",
                    &lasts,
                    "--seed",
                    &seed,
                    "--pid",
                    &pid,
                    "--address",
                    &address,
                    "--rail",
                    &self.rail,
                    "--order",
                    order,
                ];
                let mut attacker = Process::role("attack", &words)?;
                let attacked: Attacked =
                    attacker.hear(ATTACK_LIMIT).with_context(|| format!("the attacker {}", line.name))?;
                ensure!(attacked.has_done_something(), "the attacker {} did nothing", line.name);
                attacked
            }
            other => bail!("{other:?} is not an attack on a server"),
        };
        std::thread::sleep(size.lasts.saturating_sub(started.elapsed()));
        Ok(Phase { attacked, ..Phase::default() })
    }

    /// Kills clients that measure, some at a time.
    fn kill_clients(&mut self, count: u64) -> Result<Attacked> {
        const AT_ONCE: u64 = 2;
        let mut killed = 0;
        while killed < count {
            let some = AT_ONCE.min(count - killed);
            let start = |_| Client { ..self.client() }.start_blast();
            let mut clients = (0..some).map(start).collect::<Result<Vec<_>>>()?;
            // By then it is connected, or connecting: each moment is one to be killed at.
            std::thread::sleep(Duration::from_millis(150 + 40 * (killed % 10)));
            for client in &mut clients {
                client.kill();
                killed += 1;
            }
        }
        Ok(Attacked::did(format!("{killed} clients killed")))
    }

    /// Starts many clients at once.
    fn crowd(&self, count: u64) -> Service {
        let (start, client) = (Instant::now(), self.client());
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let run = || {
                let outcome = client.run_within(CROWD_LIMIT);
                (outcome, start.elapsed())
            };
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(run)).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let mut service = Service::default();
        outcomes.into_iter().for_each(|(outcome, took)| service.note(outcome, took));
        service
    }
}

/// An honest client: a short `farreach ping`.
#[derive(Debug, Clone)]
struct Client {
    farreach: PathBuf,
    address: String,
    rail: String,
    is_tls: bool,
}

impl Client {
    fn run(&self) -> Result<(), String> {
        self.run_within(CLIENT_LIMIT)
    }

    fn run_within(&self, limit: Duration) -> Result<(), String> {
        let words = ["ping", &self.address, "-d", &self.rail, "-n", "20"];
        let mut command = command(&self.farreach, &words, self.is_tls);
        let mut process =
            Process::start("farreach ping", &mut command).map_err(|error| format!("{error:#}"))?;
        match process.end(limit) {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{status}: {}", last_words(&process.said()))),
            Err(error) => Err(format!("{error:#}")),
        }
    }

    fn start_blast(&self) -> Result<Process> {
        let words = ["blast", &self.address, "-d", &self.rail, "-D", "60"];
        Process::start("farreach blast", &mut command(&self.farreach, &words, self.is_tls))
    }
}

/// Returns the port in the first line of a server: `listening on 127.0.0.1:18520`, or `listening on
/// port 18520, every IPv4 address`.
fn port_of(line: &str) -> Option<u16> {
    let place = line.strip_prefix("listening on ")?;
    match place.strip_prefix("port ") {
        Some(port) => port.split(',').next()?.parse().ok(),
        None => place.parse().ok().map(|address: SocketAddr| address.port()),
    }
}

fn command(program: &Path, words: &[&str], is_tls: bool) -> Command {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    if is_tls {
        command.env("FARREACH_SECRET", SECRET);
    }
    command
}

/// Returns the error and its cause in one line.
fn last_words(said: &str) -> String {
    let lines = said.lines().map(str::trim);
    lines
        .filter(|line| line.starts_with("error:") || line.starts_with("cause:"))
        .collect::<Vec<_>>()
        .join("; ")
}

/// Measures the memory of a server and its agents.
#[derive(Debug)]
struct Sampler {
    pid: u32,
    peak: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Sampler {
    fn start(pid: u32) -> Self {
        const INTERVAL: Duration = Duration::from_millis(100);
        let (peak, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, end) = (Arc::clone(&peak), Arc::clone(&is_over));
        std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                seen.fetch_max(anonymous_mib(pid), Ordering::Relaxed);
                std::thread::sleep(INTERVAL);
            }
        });
        Self { pid, peak, is_over }
    }

    fn now_mib(&self) -> u64 {
        anonymous_mib(self.pid)
    }

    /// Returns the peak in MiB.
    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.peak.load(Ordering::Relaxed)
    }
}

/// Returns the memory of a process and its children that no file backs, in MiB.
fn anonymous_mib(pid: u32) -> u64 {
    let of = |pid: u32| host::memory(pid).map_or(0, |memory| memory.anonymous);
    (of(pid) + host::children(pid).into_iter().map(of).sum::<u64>()) >> 10
}

/// Returns the order in what a client has sent, if it is whole.
fn order_in(sent: &[u8]) -> Option<String> {
    let len = u32::from_be_bytes(*sent.get(ORDER_AT - 4..)?.first_chunk()?) as usize;
    String::from_utf8(sent.get(ORDER_AT..ORDER_AT + len)?.to_vec()).ok()
}

/// Forwards one connection. Returns what the client sent.
fn record(listener: &TcpListener, to: SocketAddr) -> Result<Vec<u8>> {
    let (client, _) = listener.accept()?;
    let server = TcpStream::connect(to)?;
    let (mut from_server, mut to_client) = (server.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_server, &mut to_client);
        let _ = to_client.shutdown(std::net::Shutdown::Both);
    });
    let (mut client, mut server, mut sent, mut chunk) = (client, server, Vec::new(), [0; 4096]);
    loop {
        match client.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(len) => {
                sent.extend_from_slice(&chunk[..len]);
                if server.write_all(&chunk[..len]).is_err() {
                    break;
                }
            }
        }
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_tells_its_port() {
        assert_eq!(port_of("listening on 127.0.0.1:18520"), Some(18520));
        assert_eq!(port_of("listening on port 18521, every IPv4 address"), Some(18521));
        assert_eq!(port_of("listening"), None);
    }

    #[test]
    fn an_order_is_found_behind_the_head() {
        let sent = [&[7; ORDER_AT - 4][..], &2_u32.to_be_bytes(), b"{}rest"].concat();
        assert_eq!(order_in(&sent).as_deref(), Some("{}"));
        assert_eq!(order_in(&sent[..ORDER_AT + 1]), None);
        assert_eq!(order_in(&sent[..3]), None);
    }
}
