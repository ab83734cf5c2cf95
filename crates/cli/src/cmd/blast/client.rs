//! The client's side of a blast.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::lane::{Sink, Source};
use super::report::{BlastReport, Totals};
use super::{BlastArgs, End, Ends, Order, State, Task};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::measure::{self, Stopwatch};
use crate::report::{Head, Processors, Told};
use crate::session::{Channel, Rules, Session};
use crate::show::progress::BlastProgress;

/// Returns the figures, and the failure that ended the test early, if any. Returns an error if
/// nothing was measured before it.
pub(super) fn run(args: &BlastArgs) -> Result<(BlastReport, Option<Failure>)> {
    let task = Task {
        direction: super::direction(args),
        message_bytes: args.size,
        depth: args.depth,
        count: args.count,
        seed: measure::any_seed(),
        alter_byte: args.alter_byte,
    };
    let rules = Rules { depth: args.depth.max(16), tuning: args.tuning, ..Rules::default() };
    let session = Session::open(&args.client, rules, "Blast", &task)?;
    let blasted = blast(args, &task, &session).map_err(|error| session.explained(error));
    let (mut report, error) = blasted?;
    let failure = error.map(|error| Failure::of(&session.explained(error)));
    report.error = failure.as_ref().map(Told::from);
    Ok((report, failure))
}

fn blast(args: &BlastArgs, task: &Task, session: &Session) -> Result<(BlastReport, Option<anyhow::Error>)> {
    let channel = session.channel();
    let theirs: Ends = channel.recv_within(task.word_patience())?;
    let sink =
        task.direction.server_writes().then(|| Sink::open(&session.engine, channel, task)).transpose()?;
    channel.send(Ends { memory: sink.as_ref().map(Sink::token) })?;
    let mut source = match task.direction.client_writes() {
        true => {
            let memory = theirs.memory.context("the server sent no grant")?;
            Some(Source::open(&session.engine, channel, task, memory, false)?)
        }
        false => None,
    };
    let mut report = BlastReport::new(Head::new("blast", session, args.client.wait), task);
    channel.send(Order::Go)?;
    let stopwatch = Stopwatch::start();
    let mut watch = Watch {
        args,
        task,
        channel,
        from_server: 0,
        from_server_at: Duration::ZERO,
        progress: BlastProgress::new(args.client.json, args.interval),
        own_part_took: None,
    };
    let measured = watch.measure(source.as_mut(), &stopwatch, &mut report);
    let messages = source.as_ref().map_or(0, |source| source.messages);
    if let Err(error) = measured {
        if messages + watch.from_server == 0 {
            return Err(error);
        }
        // Figures up to the last message of each direction, because the detection of a lost peer
        // takes seconds.
        let last_message = source.as_ref().map_or(Duration::ZERO, |source| source.last_at(&stopwatch));
        let (own, theirs) = (watch.own_part_took.unwrap_or(last_message), watch.from_server_at);
        report.sum_up(task, (messages, own), (watch.from_server, theirs));
        report.course = watch.progress.finish();
        return Ok((report, Some(error)));
    }
    report.course = watch.progress.finish();
    let verified = verify(task, channel, &report, source.is_some(), sink);
    match verified {
        Ok(()) => report.is_verified = true,
        // Figures of wrong bytes are of no use.
        Err(error) if Failure::of(&error).exit == Exit::Mismatch => return Err(error),
        Err(error) => return Ok((report, Some(error))),
    }
    Ok((report, None))
}

/// Compares the bytes on both sides.
fn verify(
    task: &Task,
    channel: &Channel,
    report: &BlastReport,
    has_source: bool,
    sink: Option<Sink>,
) -> Result<()> {
    let messages = |totals: Option<Totals>| totals.map_or(0, |totals| totals.messages);
    if has_source {
        channel.send(messages(report.to_server))?;
        let () = channel.recv_within(task.word_patience())?;
    }
    if let Some(sink) = sink {
        sink.check(task, messages(report.from_server))?;
    }
    Ok(())
}

struct Watch<'a> {
    args: &'a BlastArgs,
    task: &'a Task,
    channel: &'a Channel,
    /// Messages that the server has reported.
    from_server: u64,
    /// The time of the last report with more messages.
    from_server_at: Duration,
    progress: BlastProgress,
    /// The time until all of this side's messages had arrived, if their number was given.
    own_part_took: Option<Duration>,
}

impl Watch<'_> {
    /// Runs the test to its end, and records the figures of both sides.
    fn measure(
        &mut self,
        mut source: Option<&mut Source>,
        stopwatch: &Stopwatch,
        report: &mut BlastReport,
    ) -> Result<()> {
        report.head.is_interrupted = self.run(source.as_deref_mut(), stopwatch)?;
        self.channel.send(Order::Enough)?;
        if let Some(source) = source.as_deref_mut() {
            source.end()?;
        }
        let own_part_took = self.own_part_took.unwrap_or_else(|| stopwatch.elapsed());
        self.own_part_took = Some(own_part_took);
        let (last, end) = self.last_word()?;
        report.processors = Some(Processors { client: stopwatch.usage(), server: end.usage });
        let messages = source.map_or(0, |source| source.messages);
        let server_took = Duration::from_nanos(end.writing_ns);
        report.sum_up(self.task, (messages, own_part_took), (last.messages, server_took));
        Ok(())
    }

    /// Runs until the test is done. Returns whether the user interrupted it.
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
                    self.recv(Duration::ZERO, stopwatch)?;
                }
                None => self.recv(Duration::from_millis(50), stopwatch)?,
            }
            let messages = self.from_server + source.as_ref().map_or(0, |source| source.messages);
            self.progress.tick(messages * self.task.message_bytes);
        }
    }

    fn recv(&mut self, patience: Duration, stopwatch: &Stopwatch) -> Result<()> {
        if let Some(State { messages, .. }) = self.channel.recv_for(patience)? {
            (self.from_server, self.from_server_at) = (messages, stopwatch.elapsed());
        }
        Ok(())
    }

    /// Receives the server's last message, and discards those before it.
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
