//! The client's side of a blast.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::lane::{Sink, Source};
use super::report::{BlastReport, Totals};
use super::{BlastArgs, End, Ends, Order, State, Task};
use crate::interrupt;
use crate::measure::{self, Stopwatch};
use crate::report::{Head, Processors};
use crate::session::{Channel, Rules, Session};
use crate::show::progress::BlastProgress;

pub(super) fn run(args: &BlastArgs) -> Result<BlastReport> {
    let task = Task {
        direction: super::direction(args),
        message_bytes: args.size,
        depth: args.depth,
        count: args.count,
        seed: measure::any_seed(),
        alter_byte: args.alter_byte,
    };
    let rules = Rules { depth: args.depth.max(16), ..Rules::default() };
    let session = Session::open(&args.client, rules, "Blast", &task)?;
    blast(args, &task, &session).map_err(|error| session.explained(error))
}

fn blast(args: &BlastArgs, task: &Task, session: &Session) -> Result<BlastReport> {
    let channel = session.channel();
    let theirs: Ends = channel.recv_within(task.word_patience())?;
    let sink =
        task.direction.server_writes().then(|| Sink::open(&session.engine, channel, task)).transpose()?;
    channel.send(Ends { memory: sink.as_ref().map(Sink::token) })?;
    let mut source = match task.direction.client_writes() {
        true => {
            let memory = theirs.memory.context("the server grants no memory")?;
            Some(Source::open(&session.engine, channel, task, memory, false)?)
        }
        false => None,
    };
    let head = Head::new("blast", session, args.client.wait);
    channel.send(Order::Go)?;
    let stopwatch = Stopwatch::start();
    let progress = BlastProgress::new(args.client.json);
    let mut watch = Watch { args, task, channel, from_server: 0, progress, own_part_took: None };
    let is_interrupted = watch.run(source.as_mut(), &stopwatch)?;
    channel.send(Order::Enough)?;
    if let Some(source) = &mut source {
        source.end()?;
    }
    let messages = source.as_ref().map_or(0, |source| source.messages);
    let own_part_took = watch.own_part_took.unwrap_or_else(|| stopwatch.elapsed());
    let (last, end) = watch.last_word()?;
    let processors = Processors { client: stopwatch.usage(), server: end.usage };
    let course = watch.progress.finish();
    let totals = |messages, elapsed| Totals::new(messages, task.message_bytes, elapsed);
    let to_server = task.direction.client_writes().then(|| totals(messages, own_part_took));
    let server_took = Duration::from_nanos(end.writing_ns);
    let from_server = task.direction.server_writes().then(|| totals(last.messages, server_took));
    let elapsed_ns = [to_server, from_server].iter().flatten().map(|way| way.elapsed_ns).max().unwrap_or(0);
    let report = BlastReport {
        head: Head { is_interrupted, ..head },
        direction: task.direction,
        message_bytes: task.message_bytes,
        depth: task.depth,
        elapsed_ns,
        to_server,
        from_server,
        processors,
        course,
    };
    if source.is_some() {
        channel.send(messages)?;
        let () = channel.recv_within(task.word_patience())?;
    }
    if let Some(sink) = sink {
        sink.check(task, last.messages)?;
    }
    Ok(report)
}

struct Watch<'a> {
    args: &'a BlastArgs,
    task: &'a Task,
    channel: &'a Channel,
    /// Messages that the server has told of.
    from_server: u64,
    progress: BlastProgress,
    /// Until all of this side's messages were at the server, where their number was given.
    own_part_took: Option<Duration>,
}

impl Watch<'_> {
    /// Until it is enough; whether it was the person who said so.
    fn run(&mut self, mut source: Option<&mut Source>, stopwatch: &Stopwatch) -> Result<bool> {
        let mut looked = Instant::now();
        loop {
            if interrupt::is_asked() {
                return Ok(true);
            }
            let own_part_is_done = source.as_ref().is_none_or(|source| source.is_done());
            if own_part_is_done {
                self.own_part_took.get_or_insert_with(|| stopwatch.elapsed());
            }
            let all_is_here = self.task.count.is_some_and(|count| {
                own_part_is_done && (!self.task.direction.server_writes() || self.from_server >= count)
            });
            if all_is_here || self.task.count.is_none() && stopwatch.elapsed() >= self.args.seconds {
                return Ok(false);
            }
            match source.as_deref_mut().filter(|_| !own_part_is_done) {
                Some(source) => {
                    source.go_on()?;
                    if looked.elapsed() < LOOK_EVERY {
                        continue;
                    }
                    looked = Instant::now();
                    self.recv(Duration::ZERO)?;
                }
                None => self.recv(Duration::from_millis(50))?,
            }
            let messages = self.from_server + source.as_ref().map_or(0, |source| source.messages);
            self.progress.tick(messages * self.task.message_bytes);
        }
    }

    fn recv(&mut self, patience: Duration) -> Result<()> {
        if let Some(State { messages, .. }) = self.channel.recv_for(patience)? {
            self.from_server = messages;
        }
        Ok(())
    }

    /// The server's last word, behind all that it said before.
    fn last_word(&mut self) -> Result<(State, End)> {
        loop {
            let state: State = self.channel.recv_within(self.task.word_patience())?;
            if let Some(end) = state.end {
                return Ok((state, end));
            }
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(10);
