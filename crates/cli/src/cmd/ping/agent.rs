//! The agent's side of a ping: it answers.

use std::time::Duration;

use anyhow::Result;
use farreach::{Engine, ErrorKind, Rights};

use super::client::{Writes, alter};
use super::laps::Laps;
use super::{Begin, Enough, Operation, Task};
use crate::interrupt::GLANCE;
use crate::measure::{Pattern, Stopwatch, Usage};
use crate::registered;
use crate::session::{Channel, Received};

/// Answers, size by size, until the client is done or lost.
pub(crate) fn serve(engine: &Engine, channel: &Channel, task: &Task) -> Result<()> {
    for size in &task.sizes {
        let pattern = Pattern::new(task.seed, *size);
        let usage = match task.operation {
            Operation::Send => messages(channel, task, pattern)?,
            Operation::Write => writes(engine, channel, task, pattern)?,
            Operation::Read => reads(engine, channel, task, pattern)?,
        };
        channel.send(usage)?;
    }
    Ok(())
}

fn messages(channel: &Channel, task: &Task, mut pattern: Pattern) -> Result<Usage> {
    let mut laps = Laps::start();
    let mut number = 0;
    loop {
        match channel.recv_either(pattern.patience())? {
            Received::Message(Enough { warm_up }) => return Ok(laps.usage_behind(warm_up)),
            Received::Bytes(bytes) => {
                let mut answer = pattern.stamped(number).to_vec();
                if task.alter_byte {
                    alter(&mut answer);
                }
                channel.peer.send(answer).wait(pattern.patience())?;
                pattern.check(number, &bytes)?;
                laps.answered(number);
                number += 1;
            }
        }
    }
}

fn writes(engine: &Engine, channel: &Channel, task: &Task, pattern: Pattern) -> Result<Usage> {
    let mut half = Writes::open(engine, channel.clone(), pattern)?;
    let mut laps = Laps::start();
    let mut number = 0;
    loop {
        // A wait does not check this while messages arrive without a pause.
        channel.check_end()?;
        half.prepare(number);
        if task.alter_byte {
            half.alter();
        }
        loop {
            match half.wait(number, GLANCE) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    if let Some(Enough { warm_up }) = channel.recv_for(Duration::ZERO)? {
                        return Ok(laps.usage_behind(warm_up));
                    }
                }
                Err(error) => return Err(channel.why_not(&error, "a message").into()),
            }
        }
        half.write(number)?;
        half.look(number)?;
        laps.answered(number);
        number += 1;
    }
}

fn reads(engine: &Engine, channel: &Channel, task: &Task, mut pattern: Pattern) -> Result<Usage> {
    let mut slice = registered::allocate(engine, pattern.len())?;
    slice.copy_from_slice(pattern.stamped(0));
    if task.alter_byte {
        alter(&mut slice);
    }
    let memory = registered::grant(&channel.peer, slice, Rights::READ)?;
    channel.send(memory.token())?;
    // The card answers reads without this process, so the client announces when they count.
    let Begin = channel.recv_at_last()?;
    let stopwatch = Stopwatch::start();
    channel.send(Begin)?;
    let Enough { .. } = channel.recv_at_last()?;
    Ok(stopwatch.usage())
}
