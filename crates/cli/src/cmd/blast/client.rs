//! The client's side of a blast.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::lane::{Initiator, Target};
use super::report::BlastReport;
use super::{BlastArgs, End, Ends, Order, RECEIVE_EVERY, RECEIVED_MAX, State, Task};
use crate::exit::{self, Exit, Failure, NotHeard, Told};
use crate::interrupt;
use crate::measure::{self, Stopwatch};
use crate::report::{Head, Processors};
use crate::session::{Channel, Received, Session};
use crate::show::progress::BlastProgress;

/// Returns the figures, and the failure that ended the test early, if any. Returns an error if
/// nothing was measured before it.
pub(super) fn run(args: &BlastArgs) -> Result<(BlastReport, Option<Failure>)> {
    let task = Task {
        operation: args.op,
        direction: super::direction(args),
        message_bytes: args.size,
        depth: args.depth,
        count: args.count,
        seed: measure::any_seed(),
        alter_byte: args.alter_byte,
    };
    let session = Session::open(&args.client, super::rules(args), "Blast", &task)?;
    let blasted = blast(args, &task, &session).map_err(|error| session.explained(error));
    let (mut report, error) = blasted?;
    let failure = error.map(|error| Failure::of(&session.explained(error)));
    if let Some(failure) = failure.as_ref().filter(|failure| failure.exit == Exit::Mismatch) {
        // Figures of wrong bytes are of no use.
        return Err(failure.clone().into());
    }
    report.error = failure.as_ref().map(Told::from);
    Ok((report, failure))
}

fn blast(args: &BlastArgs, task: &Task, session: &Session) -> Result<(BlastReport, Option<anyhow::Error>)> {
    let channel = session.channel();
    let theirs: Ends = channel.recv_within(task.reply_patience())?;
    let engine = &session.engine;
    let target = task.server_initiates().then(|| Target::open(engine, channel, task, false)).transpose()?;
    channel.send(Ends { memory: target.as_ref().and_then(Target::token) })?;
    let mut initiator = task
        .client_initiates()
        .then(|| Initiator::open(engine, channel, task, theirs.memory, false))
        .transpose()?;
    let mut report = BlastReport::new(Head::new("blast", session, args.client.wait), task);
    channel.send(Order::Start)?;
    let stopwatch = Stopwatch::start();
    let mut watch = Watch {
        args,
        task,
        channel,
        target,
        from_server: 0,
        from_server_at: Duration::ZERO,
        progress: BlastProgress::new(args.client.json, args.interval),
        own_part_took: None,
        end: None,
    };
    let measured = watch.measure(initiator.as_mut(), &stopwatch, &mut report);
    let messages = initiator.as_ref().map_or(0, |initiator| initiator.messages);
    if let Err(error) = measured {
        if messages + watch.from_server == 0 {
            return Err(error);
        }
        // Figures up to the last message of each direction, because the detection of a lost peer
        // takes seconds.
        let last_message =
            initiator.as_ref().map_or(Duration::ZERO, |initiator| initiator.last_at(&stopwatch));
        let (own, theirs) = (watch.own_part_took.unwrap_or(last_message), watch.from_server_at);
        report.sum_up(task, (messages, own), (watch.from_server, theirs));
        report.course = watch.progress.finish();
        return Ok((report, Some(error)));
    }
    report.course = watch.progress.finish();
    let verified = verify(task, channel, initiator.as_ref(), watch.target, watch.from_server);
    match verified {
        Ok(()) => report.is_verified = true,
        Err(error) => return Ok((report, Some(error))),
    }
    Ok((report, None))
}

/// Compares the bytes on both sides.
fn verify(
    task: &Task,
    channel: &Channel,
    initiator: Option<&Initiator>,
    target: Option<Target>,
    from_server: u64,
) -> Result<()> {
    if let Some(initiator) = initiator {
        initiator.check()?;
        channel.send(initiator.messages)?;
        let () = channel.recv_within(task.reply_patience())?;
    }
    if let Some(target) = target {
        target.check(task, from_server)?;
    }
    Ok(())
}

struct Watch<'a> {
    args: &'a BlastArgs,
    task: &'a Task,
    channel: &'a Channel,
    target: Option<Target>,
    /// Operations that the server has reported.
    from_server: u64,
    /// The time of the last report with more messages.
    from_server_at: Duration,
    progress: BlastProgress,
    /// The time until all of this side's messages had arrived, if their number was given.
    own_part_took: Option<Duration>,
    /// The server's figures, once it has sent its last message.
    end: Option<End>,
}

impl Watch<'_> {
    /// Runs the test to its end, and records the figures of both sides.
    fn measure(
        &mut self,
        mut initiator: Option<&mut Initiator>,
        stopwatch: &Stopwatch,
        report: &mut BlastReport,
    ) -> Result<()> {
        report.head.is_interrupted = self.run(initiator.as_deref_mut(), stopwatch)?;
        self.channel.send(Order::Stop)?;
        if let Some(initiator) = initiator.as_deref_mut() {
            while initiator.finish_one()? {
                self.drain(stopwatch)?;
            }
        }
        let own_part_took = self.own_part_took.unwrap_or_else(|| stopwatch.elapsed());
        self.own_part_took = Some(own_part_took);
        let end = self.recv_end(stopwatch)?;
        report.processors = Some(Processors { client: stopwatch.usage(), server: end.usage });
        let messages = initiator.map_or(0, |initiator| initiator.messages);
        let server_took = Duration::from_nanos(end.active_ns);
        report.sum_up(self.task, (messages, own_part_took), (self.from_server, server_took));
        Ok(())
    }

    /// Runs until the test is done. Returns whether the user interrupted it.
    fn run(&mut self, mut initiator: Option<&mut Initiator>, stopwatch: &Stopwatch) -> Result<bool> {
        let mut received_at = Instant::now();
        loop {
            if interrupt::is_asked() {
                return Ok(true);
            }
            let own_part_is_done = initiator.as_ref().is_none_or(|initiator| initiator.is_done());
            if own_part_is_done {
                self.own_part_took.get_or_insert_with(|| stopwatch.elapsed());
            }
            let all_is_here = self.task.count.is_some_and(|count| {
                own_part_is_done && (!self.task.server_initiates() || self.from_server >= count)
            });
            if all_is_here || self.task.count.is_none() && stopwatch.elapsed() >= self.args.seconds {
                return Ok(false);
            }
            match initiator.as_deref_mut().filter(|_| !own_part_is_done) {
                Some(initiator) => {
                    initiator.go_on()?;
                    if !self.task.is_received() && received_at.elapsed() < RECEIVE_EVERY {
                        continue;
                    }
                    received_at = Instant::now();
                    self.drain(stopwatch)?;
                }
                None => drop(self.recv(Duration::from_millis(50), stopwatch)?),
            }
            let messages = self.from_server + initiator.as_ref().map_or(0, |initiator| initiator.messages);
            self.progress.tick(messages * self.task.message_bytes);
        }
    }

    /// Receives what has arrived.
    fn drain(&mut self, stopwatch: &Stopwatch) -> Result<()> {
        for _ in 0..RECEIVED_MAX {
            if !self.recv(Duration::ZERO, stopwatch)? {
                break;
            }
        }
        Ok(())
    }

    /// Receives one message of the test or of the server. Returns `false` if there is none.
    fn recv(&mut self, patience: Duration, stopwatch: &Stopwatch) -> Result<bool> {
        match self.recv_state(patience) {
            Ok(Some(State { messages, end })) => {
                (self.from_server, self.from_server_at) = (messages, stopwatch.elapsed());
                self.end = end;
            }
            Ok(None) => {}
            Err(error) if exit::is_timeout(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Returns a message of the server, or takes one of the test.
    fn recv_state(&mut self, patience: Duration) -> Result<Option<State>> {
        match (self.channel.recv_either(patience)?, &mut self.target) {
            (Received::Message(state), _) => return Ok(Some(state)),
            (Received::Bytes(bytes), Some(target)) => target.take(&bytes)?,
            (Received::Bytes(_), None) => bail!("unexpected data from the server during the test"),
        }
        Ok(None)
    }

    /// Waits for the server's last message.
    fn recv_end(&mut self, stopwatch: &Stopwatch) -> Result<End> {
        let patience = self.task.reply_patience();
        loop {
            if let Some(end) = self.end {
                return Ok(end);
            }
            if !self.recv(patience, stopwatch)? {
                return Err(NotHeard(patience).into());
            }
        }
    }
}
