//! The agent's side of a blast.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use farreach::Engine;

use super::lane::{Sink, Source};
use super::{Ends, NEWS, Order, State, Task};
use crate::measure::Stopwatch;
use crate::session::Talk;

/// Writes, or is written to, until the client has enough.
pub(crate) fn serve(engine: &Engine, talk: &Talk, task: &Task) -> Result<()> {
    let sink = task.direction.client_writes().then(|| Sink::open(engine, talk, task)).transpose()?;
    talk.say(Ends { memory: sink.as_ref().map(Sink::token) })?;
    let theirs: Ends = talk.hear()?;
    let mut source = match task.direction.server_writes() {
        true => {
            let memory = theirs.memory.context("the client grants no memory")?;
            Some(Source::open(engine, talk, task, memory, task.alter_byte)?)
        }
        false => None,
    };
    let Order::Go = talk.hear()? else { return Ok(()) };
    let stopwatch = Stopwatch::start();
    match &mut source {
        Some(source) => write(talk, source)?,
        None => while !matches!(talk.hear_at_last()?, Order::Enough) {},
    }
    let end = Some(stopwatch.usage());
    talk.say(State { messages: source.map_or(0, |source| source.messages), end })?;
    if let Some(sink) = sink {
        let messages = talk.hear()?;
        if task.alter_byte {
            sink.alter(task);
        }
        sink.check(task, messages)?;
        talk.say(())?;
    }
    Ok(())
}

/// Writes until the client has enough, and tells how far it is.
fn write(talk: &Talk, source: &mut Source) -> Result<()> {
    let (mut told, mut looked) = (Instant::now(), Instant::now());
    loop {
        if source.is_done() {
            source.end()?;
            talk.say(State { messages: source.messages, end: None })?;
            while !matches!(talk.hear_at_last()?, Order::Enough) {}
            return Ok(());
        }
        source.go_on()?;
        if looked.elapsed() > LOOK_EVERY {
            looked = Instant::now();
            if let Some(Order::Enough) = talk.hear_for(Duration::ZERO)? {
                return source.end();
            }
        }
        if told.elapsed() > NEWS {
            told = Instant::now();
            talk.say(State { messages: source.messages, end: None })?;
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_millis(10);
