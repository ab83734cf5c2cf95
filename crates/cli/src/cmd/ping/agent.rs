//! The agent's side of a ping: it answers.

use std::time::Duration;

use anyhow::Result;
use farreach::{Engine, Outcome, Rights};

use super::client::{Writes, alter};
use super::laps::Laps;
use super::{Begin, Enough, Operation, Task};
use crate::interrupt::GLANCE;
use crate::measure::{Pattern, Stopwatch, Usage};
use crate::session::{Heard, Talk};

/// Answers, size by size, until the client has enough or is gone.
pub(crate) fn serve(engine: &Engine, talk: &Talk, task: &Task) -> Result<()> {
    for size in &task.sizes {
        let pattern = Pattern::new(task.seed, *size);
        let usage = match task.operation {
            Operation::Send => messages(talk, task, pattern)?,
            Operation::Write => writes(engine, talk, task, pattern)?,
            Operation::Read => reads(engine, talk, task, pattern)?,
        };
        talk.say(usage)?;
    }
    Ok(())
}

fn messages(talk: &Talk, task: &Task, mut pattern: Pattern) -> Result<Usage> {
    let mut laps = Laps::start();
    let mut number = 0;
    loop {
        match talk.hear_either(pattern.patience())? {
            Heard::Word(Enough { warm_up }) => return Ok(laps.usage_behind(warm_up)),
            Heard::Bytes(bytes) => {
                let mut answer = pattern.stamped(number).to_vec();
                if task.alter_byte {
                    alter(&mut answer);
                }
                talk.peer.send(answer).wait(pattern.patience())?;
                pattern.check(number, &bytes)?;
                laps.answered(number);
                number += 1;
            }
        }
    }
}

fn writes(engine: &Engine, talk: &Talk, task: &Task, pattern: Pattern) -> Result<Usage> {
    let mut half = Writes::open(engine, talk.clone(), pattern)?;
    let mut laps = Laps::start();
    let mut number = 0;
    loop {
        // While messages come without a pause nothing else is heard.
        talk.check_end()?;
        half.prepare(number);
        if task.alter_byte {
            half.alter();
        }
        loop {
            match half.wait(number, GLANCE) {
                Outcome::Reached => break,
                Outcome::TimedOut => {
                    if let Some(Enough { warm_up }) = talk.hear_for(Duration::ZERO)? {
                        return Ok(laps.usage_behind(warm_up));
                    }
                }
                other => return Err(talk.why_not(other, "a message").into()),
            }
        }
        half.write(number)?;
        half.look(number)?;
        laps.answered(number);
        number += 1;
    }
}

fn reads(engine: &Engine, talk: &Talk, task: &Task, mut pattern: Pattern) -> Result<Usage> {
    let mut slice = engine.allocate(pattern.len())?;
    slice.copy_from_slice(pattern.stamped(0));
    if task.alter_byte {
        alter(&mut slice);
    }
    let memory = talk.peer.grant(slice, Rights::READ).map_err(|refused| refused.error)?;
    talk.say(memory.token())?;
    // Its card answers, and it hears of no read: so it is told when they count.
    let Begin = talk.hear_at_last()?;
    let stopwatch = Stopwatch::start();
    talk.say(Begin)?;
    let Enough { .. } = talk.hear_at_last()?;
    Ok(stopwatch.usage())
}
