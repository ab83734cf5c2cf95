//! Lines that attack an engine.

use std::collections::BTreeSet;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::Signal;

use super::DriveArgs;
use super::lines::{Kind, Line, Size, Victim};
use super::process::Process;
use super::stage::{Baseline, Phase, Undisturbed, phase_min};
use crate::host;
use crate::insider::Secrets;
use crate::judge::{Measured, SHARE_MIN, Usage};
use crate::roles::{
    Attacked, Capacity, Changed, Done, Listening, Newcomer, Revoked, Served, Session, Status, Told, Watched,
};
use crate::service::{Service, Summary};
use crate::victim::PEER_TIMEOUT;

/// The honest clients under load.
const CLIENTS: usize = 2;

/// How long a process may take to start, and to answer. It only detects a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the victim may take to answer while it is attacked, before it counts as hanging.
const HANG: Duration = Duration::from_secs(15);

/// How long an attacker may take at least, and for each attempt to reach what is another's. It only
/// detects a hang: each attempt may cost a connection, on an emulated machine.
const ATTACK_LIMIT: Duration = Duration::from_secs(300);
const ATTEMPT_LIMIT: Duration = Duration::from_millis(500);

/// How long the victim may take to forget its attackers.
const SETTLE: Duration = Duration::from_secs(15);

/// The undisturbed 99th percentile is taken to be at least this. Below it, the scheduler of a
/// machine with two cores decides and not the victim.
const P99_FLOOR: Duration = Duration::from_millis(4);

/// The largest undisturbed 99th percentile with which a line can be judged. It is below a
/// millisecond on two cores that nobody else uses, and attacks that work cost hundreds of them.
const P99_MAX: Duration = Duration::from_millis(50);

/// The operations of a phase, with the full and with the short sizes. With fewer, a percent of them is
/// decided by chance.
const OPERATIONS_MIN: [u64; 2] = [2000, 300];

/// Memory that an attack may cost: once, and for each peer that is admitted.
const BUDGET_MIB: u64 = 32;
const BUDGET_KIB_PER_PEER: u64 = 1024;

/// Memory that a link may cost beside that: libfabric 2.x has pools of 17 MB in each domain, and over
/// tcp each link has its own domain (`Settings::isolate_peers`).
const BUDGET_KIB_PER_LINK: u64 = 18 << 10;

/// How long all of a crowd may take.
const CROWD_LIMIT: Duration = Duration::from_secs(120);

/// A victim with its honest clients.
#[derive(Debug)]
pub(super) struct EngineStage {
    rail: String,
    is_tls: bool,
    victim: Process,
    address: String,
    /// The token of what the victim has published.
    publication: String,
    clients: Vec<Process>,
    /// Operations per second of each client: together a quarter of the capacity.
    rate: f64,
    undisturbed: Undisturbed,
    /// The service of the last phase without attacker, if it is that before the next line.
    calm: Option<Service>,
    calm_time: Duration,
    operations_min: u64,
}

impl EngineStage {
    pub(super) fn open(args: &DriveArgs, descriptors: Option<u64>, is_tls: bool) -> Result<Self> {
        let limit = descriptors.map(|limit| limit.to_string());
        let mut words = vec!["--rail", args.rail.as_str()];
        words.extend(limit.iter().flat_map(|limit| ["--descriptors", limit.as_str()]));
        words.extend(args.weak.then_some("--weak"));
        words.extend(is_tls.then_some("--tls"));
        let mut victim = Process::role("victim", &words)?;
        let Listening { address, publication } = victim.hear(PATIENCE)?;
        let mut stage = Self {
            rail: args.rail.clone(),
            is_tls,
            victim,
            address,
            publication,
            clients: Vec::new(),
            rate: 0.0,
            undisturbed: Undisturbed::new(P99_FLOOR),
            calm: None,
            calm_time: args.calm_time(),
            operations_min: if args.no_load { 0 } else { OPERATIONS_MIN[usize::from(args.short)] },
        };
        for number in 0..if args.no_load { 0 } else { CLIENTS } {
            let name = format!("honest-{number}");
            let mut client = Process::role("honest", &[&stage.words()[..], &["--name", &name]].concat())?;
            client.hear::<Done>(PATIENCE)?;
            stage.clients.push(client);
        }
        if !args.no_load {
            stage.calibrate(args.calibration_time())?;
        }
        Ok(stage)
    }

    /// Returns the arguments of every process that connects to the victim.
    fn words(&self) -> Vec<&str> {
        let mut words = vec!["--address", &self.address, "--rail", &self.rail];
        words.extend(self.is_tls.then_some("--tls"));
        words
    }

    /// Measures the capacity: all clients as fast as they can.
    fn calibrate(&mut self, time: Duration) -> Result<()> {
        let command = format!("calibrate {}", time.as_millis());
        self.clients.iter_mut().try_for_each(|client| client.tell(&command))?;
        let mut capacity = 0.0;
        for client in &mut self.clients {
            capacity += client.hear::<Capacity>(PATIENCE)?.per_second;
        }
        self.rate = capacity / 4.0 / CLIENTS as f64;
        println!(
            "engine over {}: {capacity:.0} operations per second, and a quarter of it as load",
            self.rail
        );
        Ok(())
    }

    /// Runs the honest load while `work` runs.
    fn under_load<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<(Service, Vec<Session>, T)> {
        let command = format!("start {}", self.rate);
        self.clients.iter_mut().try_for_each(|client| client.ask::<Done>(&command, PATIENCE).map(drop))?;
        let done = work(self);
        let (mut service, mut sessions) = (Service::default(), Vec::new());
        self.clients.iter_mut().try_for_each(|client| client.tell("stop"))?;
        for client in &mut self.clients {
            let served: Served = client.hear(PATIENCE).context("an honest client")?;
            service.add(served.service);
            sessions.extend(served.sessions);
        }
        Ok((service, sessions, done?))
    }

    fn calm_phase(&mut self) -> Result<(Service, Vec<Session>)> {
        let time = if self.clients.is_empty() { Duration::ZERO } else { self.phase_time(self.calm_time) };
        let (service, sessions, ()) = self.under_load(|_| {
            std::thread::sleep(time);
            Ok(())
        })?;
        Ok((service, sessions))
    }

    /// Returns the time of a phase with enough operations to be judged.
    fn phase_time(&self, wanted: Duration) -> Duration {
        // The first operations of a phase are late by a part of their interval.
        let rate = self.rate * CLIENTS as f64;
        if self.operations_min == 0 { wanted } else { wanted.max(phase_min(self.operations_min + 20, rate)) }
    }

    fn status(&mut self, limit: Duration) -> Result<Status> {
        self.victim.ask("status", limit)
    }

    /// Runs one line.
    pub(super) fn run(&mut self, line: &Line, size: Size, seed: u64) -> Result<Measured> {
        let mut measured = Measured {
            name: line.name.to_owned(),
            attack: line.attack.to_owned(),
            may_refuse: line.may_refuse,
            share_min: SHARE_MIN,
            p99_max_us: P99_MAX.as_micros() as u64,
            operations_min: self.operations_min,
            ..Measured::default()
        };
        let size = Size { lasts: self.phase_time(size.lasts), ..size };
        let before = self.status(PATIENCE)?;
        let baseline = Baseline::take(self.victim.pid())?;
        if line.kind == Kind::Crowd {
            let (served, newcomers) = self.crowd(size.count)?;
            measured.did = format!("{} honest peers at once", newcomers.len());
            measured.limit_us = CROWD_LIMIT.as_micros() as u64;
            (measured.share_min, measured.operations_min) = (1.0, size.count);
            measured.during = Some(served.summary(Some(CROWD_LIMIT)));
            self.settle(&mut measured, &before)?;
            self.weigh(&mut measured, &baseline, budget_kib(line, size, size.count))?;
            return Ok(measured);
        }
        let calm = match self.calm.take() {
            Some(calm) => calm,
            None => self.calm_phase()?.0,
        };
        let limit = self.undisturbed.limit(&calm);
        measured.limit_us = limit.as_micros() as u64;
        measured.before = self.summary(&calm, limit);
        let (service, _, phase) = self.under_load(|stage| stage.attack(line, size, seed))?;
        measured.during = self.summary(&service, limit);
        measured.breaches = phase.attacked.breaches();
        measured.hits = phase.attacked.hits() + phase.hits;
        measured.attempts = phase.attacked.attempts;
        measured.attempts_min = if line.counts_attempts { size.count } else { 0 };
        measured.did = phase.attacked.did;
        measured.breaches.extend(phase.breaches);
        measured.newcomers = phase.newcomers;
        self.settle(&mut measured, &before)?;
        if measured.failures.is_empty() {
            let (after, sessions) = self.calm_phase()?;
            measured.after = self.summary(&after, limit);
            self.compare(&mut measured, &sessions)?;
            self.calm = Some(after);
            self.weigh(&mut measured, &baseline, budget_kib(line, size, phase.peers_max))?;
        }
        Ok(measured)
    }

    /// Summarizes a phase, if there is a load.
    fn summary(&self, service: &Service, limit: Duration) -> Option<Summary> {
        (!self.clients.is_empty()).then(|| service.summary(Some(limit)))
    }

    /// Notes the memory, the descriptors and the files of the victim.
    fn weigh(&self, measured: &mut Measured, baseline: &Baseline, budget_kib: u64) -> Result<()> {
        baseline.compare(measured, self.victim.pid(), budget_kib)
    }

    /// Waits until the victim has forgotten its attackers, and notes what is left of them.
    fn settle(&mut self, measured: &mut Measured, before: &Status) -> Result<()> {
        let deadline = Instant::now() + SETTLE;
        loop {
            if let Some(how) = self.victim.ended() {
                measured.failures.push(format!("the victim has ended {how}"));
                return Ok(());
            }
            match self.status(HANG) {
                Err(error) => {
                    measured.failures.push(format!("the victim hangs: {error:#}"));
                    return Ok(());
                }
                Ok(status) if status.peers > before.peers && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Ok(status) => {
                    if status.peers > before.peers {
                        let more = status.peers - before.peers;
                        measured.left.push(format!("{more} peers that the victim has not forgotten"));
                    }
                    if status.uses != before.uses {
                        let uses: Vec<_> =
                            status.uses.iter().map(|(how, count)| format!("{count} {how}")).collect();
                        measured.did += &format!(" ({})", uses.join(", "));
                    }
                    if status.uses_open > 0 {
                        let open = status.uses_open;
                        measured.failures.push(format!("{open} operations on granted memory have not ended"));
                    }
                    break;
                }
            }
        }
        let panics = self.victim.panics();
        if !panics.is_empty() {
            measured.failures.push(format!("the victim {} ({} panics)", panics[0], panics.len()));
        }
        for client in &mut self.clients {
            if let Some(how) = client.ended() {
                measured.failures.push(format!("an honest client has ended {how}"));
            }
        }
        Ok(())
    }

    /// Compares what honest clients have done with what has arrived.
    fn compare(&mut self, measured: &mut Measured, sessions: &[Session]) -> Result<()> {
        // The program receives messages after its engine has them.
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let status = self.status(HANG)?;
            let breaches = differences(&status.peers_watched, sessions);
            if breaches.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                measured.breaches.extend(breaches);
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Attacks, and lets a newcomer connect meanwhile.
    fn attack(&mut self, line: &Line, size: Size, seed: u64) -> Result<Phase> {
        let started = Instant::now();
        let mut phase = Phase::default();
        let newcomer = self.newcomer_after(size.lasts / 2);
        phase.attacked = match line.kind {
            Kind::Attack => self.by_attacker(line, size, seed, None, &mut phase)?,
            Kind::WithWitness => {
                let (mut witness, secrets) = self.witness()?;
                let before = self.status(HANG)?.attackers;
                let attacked = self.by_attacker(line, size, seed, Some(&secrets), &mut phase)?;
                let after = self.status(HANG)?.attackers;
                // A stranger at the rail's port has no names of its own.
                ensure!(
                    line.needs_tcp || after != before,
                    "the attacker's own names did not work, so the forged ones show nothing: {}",
                    attacked.did
                );
                (phase.breaches, phase.hits) = self.harm(&mut witness)?;
                attacked
            }
            Kind::Revoke => self.while_revoking(line, size, seed, &mut phase)?,
            Kind::Stop => self.stop_peers(size)?,
            Kind::Kill => self.kill_peers(size.count)?,
            Kind::Crowd => Attacked::default(),
        };
        std::thread::sleep(size.lasts.saturating_sub(started.elapsed()));
        let newcomer = newcomer.join().map_err(|_| anyhow!("the thread of a newcomer panicked"))?;
        phase.newcomers.push(newcomer);
        Ok(phase)
    }

    /// Starts a client after a while: in the middle of an attack.
    fn newcomer_after(&self, time: Duration) -> JoinHandle<Newcomer> {
        let words: Vec<String> = self.words().into_iter().map(str::to_owned).collect();
        std::thread::spawn(move || {
            std::thread::sleep(time);
            let newcomer = Process::role("newcomer", &words.iter().map(String::as_str).collect::<Vec<_>>());
            let told = newcomer.and_then(|mut newcomer| newcomer.hear(PATIENCE));
            told.unwrap_or_else(|error| Newcomer::Unanswered { reason: format!("{error:#}") })
        })
    }

    /// Runs attackers to their ends, one after the other.
    fn by_attacker(
        &mut self,
        line: &Line,
        size: Size,
        seed: u64,
        secrets: Option<&Secrets>,
        phase: &mut Phase,
    ) -> Result<Attacked> {
        let (mut all, mut crashed) = (Attacked::default(), Vec::new());
        let rounds = line.rounds(size);
        for (round, size) in rounds.iter().enumerate() {
            match self.by_one_attacker(line, *size, seed.wrapping_add(round as u64), secrets, phase) {
                Ok(attacked) => all.add(attacked),
                // The victim is what is judged, not the attacker's own library.
                Err(error) if line.may_crash_itself() && self.victim.ended().is_none() => {
                    crashed.push(format!("{error:#}"));
                }
                Err(error) => return Err(error),
            }
            if let Some(how) = self.victim.ended() {
                return Ok(Attacked::did(format!("the victim ended {how}")));
            }
        }
        ensure!(
            all.has_done_something(),
            "the attacker {} did nothing: {}{}",
            line.name,
            all.did,
            crashed.join("; ")
        );
        if rounds.len() > 1 {
            all.did = format!("{} attackers: {}", rounds.len(), all.counted());
        }
        if let Some(first) = crashed.first() {
            all.did += &format!("; {} attackers crashed, the first: {first}", crashed.len());
        }
        Ok(all)
    }

    fn by_one_attacker(
        &mut self,
        line: &Line,
        size: Size,
        seed: u64,
        secrets: Option<&Secrets>,
        phase: &mut Phase,
    ) -> Result<Attacked> {
        let mut attacker = self.start_attacker(line, size, seed, secrets)?;
        let attempts = if line.counts_attempts { u32::try_from(size.count)? } else { 0 };
        let deadline = Instant::now() + ATTACK_LIMIT.max(attempts * ATTEMPT_LIMIT);
        while attacker.ended().is_none() && self.victim.ended().is_none() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            // Each look is a step of the victim. A victim that hangs is noticed later.
            let Ok(status) = self.victim.ask::<Status>("status", HANG) else { break };
            phase.peers_max = phase.peers_max.max(status.peers as u64);
        }
        if self.victim.ended().is_some() {
            return Ok(Attacked::default());
        }
        attacker.hear(PATIENCE).with_context(|| format!("the attacker {}", line.name))
    }

    fn start_attacker(
        &self,
        line: &Line,
        size: Size,
        seed: u64,
        secrets: Option<&Secrets>,
    ) -> Result<Process> {
        let name = match line.victim {
            Victim::EngineWithFewDescriptors => "strangers",
            _ => line.name,
        };
        let (count, lasts) = (size.count.to_string(), size.lasts.as_millis().to_string());
        let (seed, pid) = (seed.to_string(), self.victim.pid().to_string());
        let secrets = secrets.map(serde_json::to_string).transpose()?;
        let mut words = vec![name, "--count", &count, "--lasts", &lasts, "--seed", &seed, "--pid", &pid];
        words.extend(self.words());
        words.extend(["--publication", &self.publication]);
        words.extend(secrets.iter().flat_map(|secrets| ["--secrets", secrets.as_str()]));
        Process::role("attack", &words)
    }

    /// Starts a witness.
    fn witness(&self) -> Result<(Process, Secrets)> {
        let mut witness = Process::role("witness", &[&self.words()[..], &["--name", "witness"]].concat())?;
        let Told { secrets } = witness.hear(PATIENCE)?;
        Ok((witness, secrets))
    }

    /// Returns what has happened to the witness, and how often.
    fn harm(&mut self, witness: &mut Process) -> Result<(Vec<String>, u64)> {
        let (mut breaches, mut hits) = (Vec::new(), 0);
        let status = self.status(HANG)?;
        let of_witness = |watched: &&Watched| watched.name == "witness";
        // Witnesses of earlier lines are gone, and were judged then.
        match status.peers_watched.iter().rfind(of_witness) {
            None => breaches.push("the victim does not know the witness".to_owned()),
            Some(watched) => {
                breaches.extend(harm_of(watched));
                hits = hits_of(watched);
            }
        }
        if let Some(how) = witness.ended() {
            breaches.push(format!("the witness has ended {how}"));
        }
        Ok((breaches, hits))
    }

    /// Has the victim revoke the grant of a witness that does not confirm it, while the attacker
    /// does.
    fn while_revoking(&mut self, line: &Line, size: Size, seed: u64, phase: &mut Phase) -> Result<Attacked> {
        let (mut witness, secrets) = self.witness()?;
        let mut attacker = self.start_attacker(line, size, seed, Some(&secrets))?;
        std::thread::sleep(size.lasts / 4);
        let timeout = size.lasts / 2;
        let command = format!("revoke witness {}", timeout.as_millis());
        let revoked: Revoked = self.victim.ask(&command, HANG)?;
        let mut attacked: Attacked = attacker.hear(ATTACK_LIMIT)?;
        if u128::from(revoked.after_ms) < timeout.as_millis() * 9 / 10 {
            phase.breaches.push(format!(
                "a revocation that the peer has not confirmed ended after {} ms of {timeout:?}",
                revoked.after_ms
            ));
        }
        phase.breaches.extend(revoked.error.map(|error| format!("the revocation failed: {error}")));
        witness.ask::<Done>("write", PATIENCE)?;
        let changed: Changed = self.victim.ask("watch", HANG)?;
        if changed.bytes > 0 {
            phase.breaches.push(format!("{} bytes of a slice were changed by a peer", changed.bytes));
        }
        let came_back = if revoked.is_proven { "as a slice" } else { "as exposed memory" };
        attacked.did += &format!("; the memory came back {came_back} after {} ms", revoked.after_ms);
        phase.peers_max = 8;
        Ok(attacked)
    }

    /// Starts a peer that writes until it is ended.
    fn start_writer(&self) -> Result<Process> {
        Process::role("honest", &[&self.words()[..], &["--name", "writer", "--writes"]].concat())
    }

    /// Stops peers that write, one after the other, for longer than the victim waits for them.
    fn stop_peers(&mut self, size: Size) -> Result<Attacked> {
        let mut attacked = Attacked::default();
        for _ in 0..size.count {
            let mut writer = self.start_writer()?;
            writer.hear::<Done>(PATIENCE)?;
            std::thread::sleep(Duration::from_millis(100));
            writer.signal(Signal::STOP);
            std::thread::sleep(PEER_TIMEOUT + Duration::from_millis(300));
            self.status(HANG)?;
            writer.signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(50));
        }
        attacked.did = format!("{} peers stopped in the middle of writes", size.count);
        Ok(attacked)
    }

    /// Kills peers that write, some at a time.
    fn kill_peers(&mut self, count: u64) -> Result<Attacked> {
        const AT_ONCE: u64 = 4;
        let mut killed = 0;
        while killed < count {
            let some = AT_ONCE.min(count - killed);
            let mut writers = (0..some).map(|_| self.start_writer()).collect::<Result<Vec<_>>>()?;
            for writer in &mut writers {
                writer.hear::<Done>(PATIENCE)?;
            }
            for writer in &mut writers {
                // Each at another moment of its writes.
                std::thread::sleep(Duration::from_micros(700 * (1 + killed % 7)));
                writer.kill();
                killed += 1;
            }
        }
        Ok(Attacked::did(format!("{killed} peers killed in the middle of writes")))
    }

    /// Starts many peers at once.
    fn crowd(&mut self, count: u64) -> Result<(Service, Vec<Newcomer>)> {
        let start = Instant::now();
        let words = self.words();
        let mut crowd = (0..count).map(|_| Process::role("newcomer", &words)).collect::<Result<Vec<_>>>()?;
        let (mut service, mut newcomers) = (Service::default(), Vec::new());
        for process in &mut crowd {
            let left = CROWD_LIMIT.saturating_sub(start.elapsed()).max(Duration::from_millis(1));
            let newcomer = process
                .hear(left)
                .unwrap_or_else(|error| Newcomer::Unanswered { reason: format!("{error:#}") });
            service.note(
                match &newcomer {
                    Newcomer::Served { .. } => Ok(()),
                    Newcomer::Refused { reason, .. } | Newcomer::Unanswered { reason } => Err(reason.clone()),
                },
                start.elapsed(),
            );
            newcomers.push(newcomer);
        }
        Ok((service, newcomers))
    }
}

/// Returns the memory that an attack may cost, if the victim had so many peers.
fn budget_kib(line: &Line, size: Size, peers: u64) -> u64 {
    // What is queued for peers that do not read is a part of what they cost.
    let of_peers = (BUDGET_KIB_PER_PEER * peers).max(line.queued_mib_max() << 10);
    of_peers + BUDGET_KIB_PER_LINK * line.links_max(size) + (BUDGET_MIB << 10)
}

/// Returns what has happened to a witness, which has done nothing.
fn harm_of(watched: &Watched) -> Vec<String> {
    let mut harm = Vec::new();
    let mut note = |is_harm: bool, text: String| {
        if is_harm {
            harm.push(text);
        }
    };
    let Watched { pages, adds, messages, foreign_bytes, foreign_messages, ended, lost, .. } = watched;
    note(*foreign_bytes > 0, format!("{foreign_bytes} bytes of another peer's memory were changed"));
    note(*adds > 0, format!("another peer's memory was added to {adds} times"));
    let messages = messages + foreign_messages;
    note(messages > 0, format!("{messages} messages were delivered as another peer's"));
    note(*pages > 0, format!("another peer's counter was raised by {pages} pages"));
    note(
        ended.is_some(),
        format!("another peer's counter was ended: {}", ended.as_deref().unwrap_or_default()),
    );
    note(lost.is_some(), format!("another peer was lost: {}", lost.as_deref().unwrap_or_default()));
    harm
}

/// Returns how often something was done to a witness. A write has eight bytes.
fn hits_of(watched: &Watched) -> u64 {
    let Watched { pages, adds, messages, foreign_bytes, foreign_messages, ended, lost, .. } = watched;
    let ends = u64::from(ended.is_some()) + u64::from(lost.is_some());
    foreign_bytes.div_ceil(8) + adds + messages + foreign_messages + ends.saturating_add(*pages)
}

/// Returns how the victim's figures of honest clients differ from their own.
fn differences(watched: &[Watched], sessions: &[Session]) -> Vec<String> {
    let mut differences = BTreeSet::new();
    for watched in watched.iter().filter(|watched| watched.name.starts_with("honest")) {
        let name = &watched.name;
        if watched.foreign_bytes > 0 {
            differences.insert(format!("{} bytes of {name} are not its own", watched.foreign_bytes));
        }
        if watched.foreign_messages > 0 {
            differences.insert(format!("{} messages of {name} are not its own", watched.foreign_messages));
        }
        if let Some(ended) = &watched.ended {
            differences.insert(format!("the counter of {name} was ended: {ended}"));
        }
        let session = sessions.iter().find(|session| session.counter == watched.counter);
        let Some(session) = session.filter(|session| !session.has_failed) else { continue };
        let pairs = [
            ("pages", session.pages, watched.pages),
            ("additions", session.adds, watched.adds),
            ("messages", session.messages, watched.messages),
        ];
        for (what, sent, counted) in pairs.iter().filter(|(_, sent, counted)| sent != counted) {
            differences.insert(format!("{name} has made {sent} {what}, and the victim has {counted}"));
        }
    }
    differences.into_iter().collect()
}

impl Baseline {
    fn take(pid: u32) -> Result<Self> {
        host::reset_peak(pid)?;
        let files = host::shared_files();
        Ok(Self { memory: host::memory(pid)?, descriptors: host::descriptors(pid)?, files })
    }

    fn compare(&self, measured: &mut Measured, pid: u32, budget_kib: u64) -> Result<()> {
        let (memory, descriptors) = (host::memory(pid)?, host::descriptors(pid)?);
        measured.memory_mib = Usage {
            before: self.memory.resident >> 10,
            peak: memory.peak >> 10,
            after: memory.resident >> 10,
            budget: (self.memory.resident + budget_kib) >> 10,
        };
        measured.descriptors =
            Usage { before: self.descriptors as u64, peak: 0, after: descriptors as u64, budget: 0 };
        let files: Vec<String> = host::shared_files().difference(&self.files).cloned().collect();
        if !files.is_empty() {
            measured.left.push(format!("{} files in /dev/shm: {}", files.len(), files.join(", ")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::LINES;
    use super::*;

    fn watched(name: &str) -> Watched {
        Watched { name: name.into(), counter: "c-1".into(), pages: 8, ..Watched::default() }
    }

    fn session(pages: u64) -> Session {
        Session { counter: "c-1".into(), pages, ..Session::default() }
    }

    #[test]
    fn only_answers_that_nobody_reads_may_take_the_memory_of_the_queues() {
        let mib = |name: &str, peers: u64| {
            let line = LINES.iter().find(|line| line.name == name).unwrap();
            budget_kib(line, line.full, peers) >> 10
        };
        let (once, link) = (BUDGET_MIB, BUDGET_KIB_PER_LINK >> 10);
        assert_eq!(mib("unread", 30), once + 64 + link);
        assert_eq!(mib("unread", 100), once + 100 + link);
        assert_eq!(mib("churn", 30), once + 30 + link);
    }

    #[test]
    fn what_was_done_to_a_witness_is_told() {
        assert_eq!(harm_of(&Watched { name: "witness".into(), ..Watched::default() }), [""; 0]);
        let harmed = Watched {
            pages: 1,
            adds: 2,
            messages: 3,
            foreign_bytes: 4,
            foreign_messages: 5,
            ended: Some("aborted".into()),
            lost: Some("silent".into()),
            ..watched("witness")
        };
        assert_eq!(harm_of(&harmed).len(), 6, "{:?}", harm_of(&harmed));
        assert_eq!(hits_of(&harmed), 1 + 2 + 3 + 1 + 5 + 2);
        assert_eq!(hits_of(&Watched::default()), 0);
    }

    #[test]
    fn what_an_honest_client_did_is_what_the_victim_has() {
        assert_eq!(differences(&[watched("honest-0")], &[session(8)]), [""; 0]);
        let told = differences(&[watched("honest-0")], &[session(7)]);
        assert_eq!(told, ["honest-0 has made 7 pages, and the victim has 8"]);
        let failed = Session { has_failed: true, ..session(7) };
        assert_eq!(differences(&[watched("honest-0")], &[failed]), [""; 0], "it does not know itself");
        let foreign = Watched { foreign_bytes: 1, foreign_messages: 1, ..watched("honest-0") };
        assert_eq!(differences(&[foreign], &[session(8)]).len(), 2);
        assert_eq!(differences(&[watched("attacker")], &[session(7)]), [""; 0]);
    }
}
