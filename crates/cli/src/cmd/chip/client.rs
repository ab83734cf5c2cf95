//! The client's side: one step after the other, then all clients at once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::GrantToken;

use super::lock::{self, Contest};
use super::reach::{EngineReach, NativeReach, Reach};
use super::report::{ChipReport, LockReport, MemoryKind, MemoryReport, Step, StepReport};
use super::{Answered, Ask, ChipArgs, End, MESSAGE_BYTES, PATIENCE, Task, Way, link_rules};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::measure::{self, Pattern, Stopwatch, compare};
use crate::native::{self, Called, Cards};
use crate::registered;
use crate::report::{Head, Processors};
use crate::session::{Channel, Session};

/// The local memory of a client that accesses only the lock and the counter.
const SCRATCH_BYTES: usize = 64;

/// Runs all steps. Failures are in the report.
pub(super) fn run(args: &ChipArgs) -> Result<ChipReport> {
    let task = Task {
        host_memory: args.host_memory,
        size_bytes: args.size as usize,
        clients: args.clients,
        wait: args.client.wait,
        seed: measure::any_seed(),
    };
    let session = Session::open(&args.client, super::rules(args), "Chip", &task)?;
    let mut server = Server::open(&session, args, &task)?;
    let head = Head::new("chip", &session, args.client.wait);
    let mut report = ChipReport::new(head, server.memory.clone());
    let walked = server.walk(session.channel(), args, &task, &mut report);
    report.end(walked.err().map(|error| Failure::of(&error)), interrupt::is_asked());
    Ok(report)
}

/// The server's memory, as all clients access it.
struct Server {
    clients: Vec<Box<dyn Reach>>,
    memory: MemoryReport,
    /// The reason why there can be no lock.
    no_atomics: Option<Failure>,
}

impl Server {
    fn open(session: &Session, args: &ChipArgs, task: &Task) -> Result<Self> {
        let cards = Cards::of(&session.engine, args.client.rails.gid_index).tuned(args.tuning);
        let channel = session.channel();
        if cards.reach(&channel.peer) {
            channel.send(Way::Cards)?;
            return Self::by_cards(&cards, channel, task);
        }
        if task.host_memory {
            channel.send(Way::Engine)?;
            return Self::by_engine(session, task);
        }
        channel.send(Way::None)?;
        Err(Failure::new(Exit::Unavailable, "these rails have no on-chip memory")
            .cause(format!("{} is a libfabric rail, and libfabric has no on-chip memory", session.rails().join(", ")))
            .fix("use host memory with --host-memory, or an RDMA card with on-chip memory; to list the cards:\nfarreach devices -v")
            .into())
    }

    fn by_cards(cards: &Cards, channel: &Channel, task: &Task) -> Result<Self> {
        let called = native::call(cards, channel, |card| Ok(link_rules(card, task)))?;
        let Called { links, memory, card, other_card, has_atomics } = called;
        let size_bytes = memory.len() as usize;
        let mut clients: Vec<Box<dyn Reach>> = Vec::new();
        for (number, link) in links.into_iter().enumerate() {
            let scratch = card.allocate(if number == 0 { size_bytes } else { SCRATCH_BYTES })?;
            let mut reach = NativeReach::new(link, memory, scratch, card.allocate(8)?);
            if number == 0 {
                reach = reach.hearing(card.allocate(MESSAGE_BYTES.min(size_bytes))?);
            }
            clients.push(Box::new(reach));
        }
        let no_atomics = (!has_atomics).then(|| {
            Failure::new(Exit::Unavailable, "the lock was not tested")
                .cause(format!("{} or the server's {other_card} has no atomic operations", card.name))
                .fix("use cards with atomic operations; to list them:\nfarreach devices -v")
        });
        let kind = if task.host_memory { MemoryKind::Host } else { MemoryKind::OnChip };
        let queue_pairs = Some(clients.len());
        let memory = MemoryReport { kind, size_bytes, card: Some(other_card), queue_pairs };
        Ok(Self { clients, memory, no_atomics })
    }

    fn by_engine(session: &Session, task: &Task) -> Result<Self> {
        let channel = session.channel();
        let token: GrantToken = channel.recv()?;
        let remote = channel.peer.remote(token).wait(PATIENCE)?;
        let mut clients: Vec<Box<dyn Reach>> = Vec::new();
        for number in 0..task.clients {
            let scratch = registered::allocate(
                &session.engine,
                if number == 0 { task.size_bytes } else { SCRATCH_BYTES },
            )?;
            clients.push(Box::new(EngineReach::new(channel.clone(), remote.clone(), scratch)));
        }
        let ready = session.rails();
        let mut rails = session.engine.rail_properties().iter().filter(|rail| ready.contains(&rail.name));
        let no_atomics = (!rails.any(|rail| rail.has_atomics)).then(|| {
            Failure::new(Exit::Unavailable, "the lock was not tested")
                .cause(format!("{} has no atomic operations", ready.join(", ")))
                .fix("use a rail with atomic operations: an RDMA card, or Soft-RoCE")
        });
        let memory = MemoryReport {
            kind: MemoryKind::Host,
            size_bytes: task.size_bytes,
            card: None,
            queue_pairs: None,
        };
        Ok(Self { clients, memory, no_atomics })
    }

    /// Runs every step. Completed steps are in the report even if a later one fails.
    fn walk(
        &mut self,
        channel: &Channel,
        args: &ChipArgs,
        task: &Task,
        report: &mut ChipReport,
    ) -> Result<()> {
        let stopwatch = Stopwatch::start();
        self.steps(channel, task, report)?;
        let contest = match &self.no_atomics {
            None if !interrupt::is_asked() => Some(self.contend(channel, args.rounds)?),
            _ => None,
        };
        channel.send(Ask::End)?;
        let end: End = channel.recv()?;
        report.processors = Some(Processors { client: stopwatch.usage(), server: end.usage });
        match (contest, &self.no_atomics) {
            (Some((contest, counter)), _) => {
                report.lock = Some(LockReport::new(&contest, args.rounds, counter, end.counter));
                contest.verdict(counter, end.counter).map_or(Ok(()), |failure| Err(failure.into()))
            }
            (None, Some(reason)) if !interrupt::is_asked() => Err(reason.clone().into()),
            (None, _) => Ok(()),
        }
    }

    /// Receives the message, and writes and reads the bytes.
    fn steps(&mut self, channel: &Channel, task: &Task, report: &mut ChipReport) -> Result<()> {
        let len = self.memory.size_bytes;
        let reach = self.clients.first_mut().context("there is no client")?;
        let mut pattern = Pattern::new(task.seed, len);
        let mut note = |step: Step, bytes: usize, took: Duration| {
            report.steps.push(StepReport { step, bytes, elapsed_ns: took.as_nanos() as u64 });
            interrupt::is_asked()
        };

        let expected = &pattern.stamped(0)[..MESSAGE_BYTES.min(len)];
        reach.expect_message(expected.len())?;
        let began = Instant::now();
        channel.send(Ask::Message)?;
        let message = reach.recv_message()?;
        let took = began.elapsed();
        compare(expected, &message, || "the message differs from the memory of the server".to_owned())?;
        if note(Step::Message, message.len(), took) {
            return Ok(());
        }

        let took = timed(|| reach.read(0, len))?;
        compare(pattern.stamped(0), reach.scratch(), || {
            "the bytes read differ from the memory of the server".to_owned()
        })?;
        if note(Step::Read, len, took) {
            return Ok(());
        }

        reach.scratch().copy_from_slice(pattern.stamped(1));
        let took = timed(|| reach.write(0, len))?;
        ask(channel, Ask::Look)?;
        if note(Step::Write, len, took) {
            return Ok(());
        }

        reach.scratch().fill(0);
        let took = timed(|| reach.read(0, len))?;
        compare(pattern.stamped(1), reach.scratch(), || {
            "the bytes read back differ from the bytes written".to_owned()
        })?;
        note(Step::ReadBack, len, took);
        Ok(())
    }

    /// Contends for the lock. Returns the results, and the counter as a client reads it.
    fn contend(&mut self, channel: &Channel, rounds: u64) -> Result<(Contest, u64)> {
        ask(channel, Ask::Clear)?;
        let contest = lock::contend(&mut self.clients, rounds, &interrupt::is_asked)?;
        let reach = self.clients.first_mut().context("there is no client")?;
        let counter = lock::counter(reach.as_mut())?;
        Ok((contest, counter))
    }
}

fn ask(channel: &Channel, what: Ask) -> Result<()> {
    channel.send(what)?;
    let Answered = channel.recv()?;
    Ok(())
}

fn timed(step: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let began = Instant::now();
    step()?;
    Ok(began.elapsed())
}
