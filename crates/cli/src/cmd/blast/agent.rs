//! The agent's side of a blast.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::Engine;

use super::lane::{Sink, Source};
use super::{End, Ends, NEWS, Order, State, Task};
use crate::measure::Stopwatch;
use crate::session::Channel;

/// Writes, or is written to, until the client is done.
pub(crate) fn serve(engine: &Engine, channel: &Channel, task: &Task) -> Result<()> {
    let sink = task.direction.client_writes().then(|| Sink::open(engine, channel, task)).transpose()?;
    channel.send(Ends { memory: sink.as_ref().map(Sink::token) })?;
    let theirs: Ends = channel.recv_within(task.word_patience())?;
    let mut source = match task.direction.server_writes() {
        true => {
            let memory = theirs.memory.context("the client sent no grant")?;
            Some(Source::open(engine, channel, task, memory, task.alter_byte)?)
        }
        false => None,
    };
    let Order::Go = channel.recv_within(task.word_patience())? else { return Ok(()) };
    let stopwatch = Stopwatch::start();
    let mut writing_ns = 0;
    if let Some(source) = &mut source {
        let is_enough = write(channel, source)?;
        writing_ns = stopwatch.elapsed().as_nanos() as u64;
        if !is_enough {
            channel.send(State { messages: source.messages, end: None })?;
            while !matches!(channel.recv_at_last()?, Order::Enough) {}
        }
    } else {
        while !matches!(channel.recv_at_last()?, Order::Enough) {}
    }
    let end = Some(End { usage: stopwatch.usage(), writing_ns });
    channel.send(State { messages: source.map_or(0, |source| source.messages), end })?;
    if let Some(sink) = sink {
        let messages = channel.recv_within(task.word_patience())?;
        if task.alter_byte {
            sink.alter(task);
        }
        sink.check(task, messages)?;
        channel.send(())?;
    }
    Ok(())
}

/// Writes until everything is written or the client is done, and reports progress. Returns whether
/// the client ended it. All messages have arrived then.
fn write(channel: &Channel, source: &mut Source) -> Result<bool> {
    let (mut told, mut looked) = (Instant::now(), Instant::now());
    while !source.is_done() {
        source.go_on()?;
        if looked.elapsed() > LOOK_EVERY {
            looked = Instant::now();
            if let Some(Order::Enough) = channel.recv_for(Duration::ZERO)? {
                source.end()?;
                return Ok(true);
            }
        }
        if told.elapsed() > NEWS {
            told = Instant::now();
            channel.send(State { messages: source.messages, end: None })?;
        }
    }
    Ok(false)
}

const LOOK_EVERY: Duration = Duration::from_millis(10);
