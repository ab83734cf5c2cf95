//! The agent's side of a blast.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use farreach::Engine;

use super::lane::{Initiator, Target};
use super::{End, Ends, Operation, Order, RECEIVE_EVERY, RECEIVED_MAX, REPORT_EVERY, State, Task};
use crate::exit;
use crate::interrupt::GLANCE;
use crate::measure::Stopwatch;
use crate::session::{Channel, Received};

/// Is initiator, target or both, until the client is done.
pub(crate) fn serve(engine: &Engine, channel: &Channel, task: &Task) -> Result<()> {
    // What is read or sent is altered at once; what is written is altered at the end.
    let is_altered = task.alter_byte && task.operation != Operation::Write;
    let mut target =
        task.client_initiates().then(|| Target::open(engine, channel, task, is_altered)).transpose()?;
    channel.send(Ends { memory: target.as_ref().and_then(Target::token) })?;
    let theirs: Ends = channel.recv_within(task.reply_patience())?;
    let mut initiator = task
        .server_initiates()
        .then(|| Initiator::open(engine, channel, task, theirs.memory, task.alter_byte))
        .transpose()?;
    let Order::Start = channel.recv_within(task.reply_patience())? else { return Ok(()) };
    let stopwatch = Stopwatch::start();
    let mut active_ns = 0;
    let mut is_stopped = false;
    if let Some(initiator) = &mut initiator {
        is_stopped = run(channel, task, initiator, target.as_mut())?;
        active_ns = stopwatch.elapsed().as_nanos() as u64;
        if !is_stopped {
            channel.send(State { messages: initiator.messages, end: None })?;
        }
    }
    while !is_stopped {
        is_stopped = matches!(recv(channel, target.as_mut(), GLANCE)?, Event::Stop);
    }
    if let Some(initiator) = &initiator {
        initiator.check()?;
    }
    let end = Some(End { usage: stopwatch.usage(), active_ns });
    channel.send(State { messages: initiator.map_or(0, |initiator| initiator.messages), end })?;
    if let Some(mut target) = target {
        let messages = count(channel, &mut target, task)?;
        if task.alter_byte && task.operation == Operation::Write {
            target.alter(task);
        }
        target.check(task, messages)?;
        channel.send(())?;
    }
    Ok(())
}

/// Initiates operations until all are complete or the client is done, and reports progress. Returns
/// whether the client ended it. All operations are complete then.
fn run(
    channel: &Channel,
    task: &Task,
    initiator: &mut Initiator,
    mut target: Option<&mut Target>,
) -> Result<bool> {
    let (mut reported_at, mut received_at) = (Instant::now(), Instant::now());
    while !initiator.is_done() {
        initiator.go_on()?;
        if task.is_received() || received_at.elapsed() > RECEIVE_EVERY {
            received_at = Instant::now();
            if drain(channel, target.as_deref_mut())? {
                while initiator.finish_one()? {
                    drain(channel, target.as_deref_mut())?;
                }
                return Ok(true);
            }
        }
        if reported_at.elapsed() > REPORT_EVERY {
            reported_at = Instant::now();
            channel.send(State { messages: initiator.messages, end: None })?;
        }
    }
    Ok(false)
}

/// Receives what has arrived. Returns whether the client has ended the test.
fn drain(channel: &Channel, mut target: Option<&mut Target>) -> Result<bool> {
    for _ in 0..RECEIVED_MAX {
        match recv(channel, target.as_deref_mut(), Duration::ZERO)? {
            Event::Bytes => {}
            Event::Stop => return Ok(true),
            Event::Nothing => break,
        }
    }
    Ok(false)
}

enum Event {
    Nothing,
    Bytes,
    Stop,
}

/// Receives one message of the test or of the client.
fn recv(channel: &Channel, target: Option<&mut Target>, patience: Duration) -> Result<Event> {
    match (channel.recv_either(patience), target) {
        (Ok(Received::Message(Order::Stop)), _) => Ok(Event::Stop),
        (Ok(Received::Bytes(bytes)), Some(target)) => target.take(&bytes).map(|()| Event::Bytes),
        (Ok(other), _) => bail!("unexpected message {other:?} during the test"),
        (Err(error), _) if exit::is_timeout(&error) => Ok(Event::Nothing),
        (Err(error), _) => Err(error),
    }
}

/// Receives the number of the client's operations, and the messages before it.
fn count(channel: &Channel, target: &mut Target, task: &Task) -> Result<u64> {
    loop {
        match channel.recv_either(task.reply_patience())? {
            Received::Message(count) => return Ok(count),
            Received::Bytes(bytes) => target.take(&bytes)?,
        }
    }
}
