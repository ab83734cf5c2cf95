//! The agent's side of a blast.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use farreach::Engine;

use super::lane::{Initiator, Target};
use super::{End, Ends, NEWS, Operation, Order, RECEIVED_MAX, State, Task};
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
    let theirs: Ends = channel.recv_within(task.word_patience())?;
    let mut initiator = task
        .server_initiates()
        .then(|| Initiator::open(engine, channel, task, theirs.memory, task.alter_byte))
        .transpose()?;
    let Order::Go = channel.recv_within(task.word_patience())? else { return Ok(()) };
    let stopwatch = Stopwatch::start();
    let mut active_ns = 0;
    let mut is_enough = false;
    if let Some(initiator) = &mut initiator {
        is_enough = run(channel, task, initiator, target.as_mut())?;
        active_ns = stopwatch.elapsed().as_nanos() as u64;
        if !is_enough {
            channel.send(State { messages: initiator.messages, end: None })?;
        }
    }
    while !is_enough {
        is_enough = matches!(recv(channel, target.as_mut(), GLANCE)?, Heard::Enough);
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
    let (mut told, mut looked) = (Instant::now(), Instant::now());
    while !initiator.is_done() {
        initiator.go_on()?;
        if task.is_received() || looked.elapsed() > LOOK_EVERY {
            looked = Instant::now();
            if drain(channel, target.as_deref_mut())? {
                while initiator.finish_one()? {
                    drain(channel, target.as_deref_mut())?;
                }
                return Ok(true);
            }
        }
        if told.elapsed() > NEWS {
            told = Instant::now();
            channel.send(State { messages: initiator.messages, end: None })?;
        }
    }
    Ok(false)
}

/// Receives what has arrived. Returns whether the client has had enough.
fn drain(channel: &Channel, mut target: Option<&mut Target>) -> Result<bool> {
    for _ in 0..RECEIVED_MAX {
        match recv(channel, target.as_deref_mut(), Duration::ZERO)? {
            Heard::Bytes => {}
            Heard::Enough => return Ok(true),
            Heard::Nothing => break,
        }
    }
    Ok(false)
}

enum Heard {
    Nothing,
    Bytes,
    Enough,
}

/// Receives one message of the test or of the client.
fn recv(channel: &Channel, target: Option<&mut Target>, patience: Duration) -> Result<Heard> {
    match (channel.recv_either(patience), target) {
        (Ok(Received::Message(Order::Enough)), _) => Ok(Heard::Enough),
        (Ok(Received::Bytes(bytes)), Some(target)) => target.take(&bytes).map(|()| Heard::Bytes),
        (Ok(other), _) => bail!("unexpected message {other:?} during the test"),
        (Err(error), _) if exit::is_timeout(&error) => Ok(Heard::Nothing),
        (Err(error), _) => Err(error),
    }
}

/// Receives the number of the client's operations, and the messages before it.
fn count(channel: &Channel, target: &mut Target, task: &Task) -> Result<u64> {
    loop {
        match channel.recv_either(task.word_patience())? {
            Received::Message(count) => return Ok(count),
            Received::Bytes(bytes) => target.take(&bytes)?,
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(10);
