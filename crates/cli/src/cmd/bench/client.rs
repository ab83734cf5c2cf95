//! The client's side of a bench: measures every row several times.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::figures::{Measured, Repetition};
use super::operation::Operation;
use super::row::{Key, Row};
use super::streams::{self, Ends};
use super::{Answer, Begun, BenchArgs, Order, Step};
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::measure::Stopwatch;
use crate::native::{self, Cards};
use crate::report::LatencyOf;
use crate::session::{Session, TheirFailure, of_the_other_side};
use crate::stream::{Flow, Stream};
use crate::units;

/// One row to be measured.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) operation: Operation,
    pub(super) size_bytes: u64,
    pub(super) depth: u32,
}

impl Wanted {
    /// Describes the row, for progress.
    pub(super) fn told(&self) -> String {
        format!("{} {}, depth {}", self.operation.name(), units::size(self.size_bytes), self.depth)
    }

    /// Returns the parameters for the agent.
    pub(super) fn step(&self, args: &BenchArgs) -> Step {
        let Self { operation, size_bytes, depth } = *self;
        Step { operation, size_bytes, depth, queue_pair: args.queue_pair, wait: args.client.wait }
    }
}

/// Measures one row, over all connections of a session at once.
///
/// Returns `None` if the user interrupted before there was a result. The inner error is a feature
/// that a rail lacks; the session continues after it.
pub(super) fn row(
    args: &BenchArgs,
    session: &Session,
    wanted: &Wanted,
) -> Result<Result<Option<Row>, Failure>> {
    let step = wanted.step(args);
    let mut lanes = Vec::new();
    let measured = repetitions(args, session, &step, &mut lanes);
    for (place, channel) in session.channels.iter().enumerate() {
        channel.send(Order::StepDone(lanes.get(place).map_or(0, |(_, flow): &Lane| flow.total)))?;
    }
    let repetitions = match measured {
        Ok(repetitions) => repetitions,
        Err(error) => match Failure::of(&error) {
            failure if failure.exit == Exit::Unavailable => return Ok(Err(failure)),
            _ => return Err(error),
        },
    };
    let key = Key {
        operation: wanted.operation.name().to_owned(),
        size_bytes: wanted.size_bytes,
        depth: wanted.depth,
        queues: session.channels.len() as u32,
        rails: session.rails(),
    };
    Ok(Ok(Row::new(key, LatencyOf::Completion, repetitions)))
}

fn repetitions(
    args: &BenchArgs,
    session: &Session,
    step: &Step,
    lanes: &mut Vec<Lane>,
) -> Result<Vec<Repetition>> {
    let mut ends = Vec::new();
    for channel in &session.channels {
        channel.send(Order::Step(step.clone()))?;
        let made: Result<Ends, TheirFailure> = channel.recv()?;
        ends.push(made.map_err(of_the_other_side));
    }
    for (channel, ends) in session.channels.iter().zip(ends) {
        let stream: Box<dyn Stream> = match step.native() {
            Some(rules) => {
                let cards = Cards::of(&session.engine, args.client.rails.gid_index).tuned(args.tuning);
                Box::new(native::client_stream(&cards, channel, rules)?)
            }
            None => streams::open(&session.engine, channel, step, &ends?)?,
        };
        lanes.push((stream, Flow::new(step.depth as usize)));
    }
    let mut repetitions = Vec::new();
    if !args.warm_up.is_zero() {
        run(lanes, args.warm_up)?;
    }
    while repetitions.len() < args.repetitions as usize && !interrupt::is_asked() {
        repetitions.extend(repetition(session, step, lanes, args.seconds)?);
    }
    Ok(repetitions)
}

type Lane = (Box<dyn Stream>, Flow);

/// Keeps all connections busy for this time. Returns the number of completed operations.
fn run(lanes: &mut [Lane], time: Duration) -> Result<u64> {
    let (stopwatch, mut operations) = (Stopwatch::start(), 0);
    for (stream, flow) in lanes.iter_mut() {
        flow.fill(stream.as_mut())?;
    }
    while stopwatch.elapsed() < time && !interrupt::is_asked() {
        // Each connection stays at its depth, whichever one is waited for. A connection that posted
        // only in its own turn would idle during the others'.
        for (stream, flow) in lanes.iter_mut() {
            flow.complete(stream.as_mut())?;
            operations += 1;
            flow.fill(stream.as_mut())?;
        }
    }
    for (stream, flow) in lanes.iter_mut() {
        operations += flow.end(stream.as_mut())?;
    }
    Ok(operations)
}

fn repetition(
    session: &Session,
    step: &Step,
    lanes: &mut [Lane],
    time: Duration,
) -> Result<Option<Repetition>> {
    for ((_, flow), channel) in lanes.iter_mut().zip(&session.channels) {
        flow.latencies.reset();
        channel.send(Order::Begin(flow.total))?;
    }
    for channel in &session.channels {
        let Begun = channel.recv()?;
    }
    let stopwatch = Stopwatch::start();
    let mut operations = run(lanes, time)?;
    let sent_at = stopwatch.elapsed();
    let mut cpu_peer = Duration::ZERO;
    let mut messages = 0;
    // All agents get the message before the first answer is waited for, because the wait counts as
    // time of the measurement.
    for (channel, (_, flow)) in session.channels.iter().zip(lanes.iter()) {
        channel.send(Order::End(flow.total))?;
    }
    for channel in &session.channels {
        let answer: Answer = channel.recv()?;
        cpu_peer += Duration::from_nanos(answer.usage.cpu_ns);
        messages += answer.messages;
    }
    // A completed send may still be in flight. A message counts when it has arrived, and the answer
    // follows it.
    let usage = stopwatch.usage();
    let mut elapsed = Duration::from_nanos(usage.wall_ns);
    if step.operation == Operation::RawSend && !step.queue_pair.is_reliable() {
        // Lost messages do not count. The server has waited for them, which is not part of the
        // measurement.
        (operations, elapsed) = (messages, sent_at);
    } else if matches!(step.operation, Operation::Send | Operation::RawSend) {
        ensure!(messages == operations, "{operations} messages were sent, {messages} arrived");
    }
    let mut latencies = crate::measure::histogram();
    for (_, flow) in lanes.iter() {
        latencies.add(&flow.latencies)?;
    }
    Ok(Repetition::new(Measured {
        operations,
        size_bytes: step.size_bytes,
        elapsed,
        latencies: Some(&latencies),
        cpu_here: Some(Duration::from_nanos(usage.cpu_ns)),
        cpu_peer: Some(cpu_peer),
    }))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// The operations in flight of all streams, now and at each wait.
    #[derive(Debug, Default)]
    struct Tally {
        in_flight: usize,
        when_waiting: Vec<usize>,
    }

    struct Counted(Rc<RefCell<Tally>>);

    impl Stream for Counted {
        fn post(&mut self) -> Result<()> {
            self.0.borrow_mut().in_flight += 1;
            Ok(())
        }

        fn complete(&mut self) -> Result<()> {
            let tally = &mut *self.0.borrow_mut();
            tally.when_waiting.push(tally.in_flight);
            tally.in_flight -= 1;
            Ok(())
        }
    }

    #[test]
    fn whichever_is_waited_for_all_connections_have_their_depth_in_flight() {
        for (queues, depth) in [(8, 1), (3, 4), (1, 16)] {
            // On a busy machine the time may pass before the first wait; then it is repeated with a
            // longer time.
            let (tally, operations) = (1..)
                .map(|factor| {
                    let tally = Rc::new(RefCell::new(Tally::default()));
                    let lane = |_| -> Lane { (Box::new(Counted(Rc::clone(&tally))), Flow::new(depth)) };
                    let mut lanes: Vec<Lane> = (0..queues).map(lane).collect();
                    let operations = run(&mut lanes, Duration::from_millis(2 * factor));
                    (tally, operations.expect("nothing fails"))
                })
                .find(|(_, operations)| *operations > (queues * depth) as u64)
                .expect("it is tried until there are some");
            let Tally { in_flight, when_waiting } = &*tally.borrow();
            assert_eq!((operations, *in_flight), (when_waiting.len() as u64, 0), "each is counted");
            let (going, ending) = when_waiting.split_at(when_waiting.len() - queues * depth);
            assert!(
                !going.is_empty() && going.iter().all(|count| *count == queues * depth),
                "{queues}, {depth}"
            );
            assert!(ending.is_sorted_by(|more, fewer| more > fewer), "{ending:?}");
        }
    }
}
