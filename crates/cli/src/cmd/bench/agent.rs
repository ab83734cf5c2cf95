//! The agent's side of a bench: it has memory ready, takes messages, and tells what it used.

use anyhow::{Result, bail};
use farreach::Engine;

use super::streams::Target;
use super::{Answer, Order, Task};
use crate::exit::{self, Exit, Failure};
use crate::interrupt::GLANCE;
use crate::measure::Stopwatch;
use crate::native::{self, Cards};
use crate::session::{Heard, Talk};

/// Does what the client says, step by step.
pub(crate) fn serve(engine: &Engine, cards: &Cards, talk: &Talk, _task: &Task) -> Result<()> {
    loop {
        match talk.hear_at_last()? {
            Order::Step(step) => {
                // What this side does not have is told, and the client goes on with something else.
                let target = Target::open(engine, talk, &step).map_err(|error| Failure::of(&error));
                talk.say(target.as_ref().map(Target::ends).map_err(Clone::clone))?;
                let native = step.native().map(|rules| native::serve_stream(cards, talk, rules)).transpose();
                let native = match native {
                    Err(error) if Failure::of(&error).exit != Exit::Unavailable => return Err(error),
                    // The client was told, and goes on with something else.
                    native => native.ok().flatten(),
                };
                let posted = measure(talk)?;
                if let Some(native) = native {
                    native.check(posted)?;
                }
            }
            Order::Done => return Ok(()),
            other => bail!("the client says {other:?} before it has named a step"),
        }
    }
}

/// The repetitions of one step: how many operations the client has posted in all.
fn measure(talk: &Talk) -> Result<u64> {
    let (mut stopwatch, mut messages) = (Stopwatch::start(), 0);
    loop {
        match hear(talk)? {
            Heard::Bytes(_) => messages += 1,
            Heard::Word(Order::Begin) => (stopwatch, messages) = (Stopwatch::start(), 0),
            Heard::Word(Order::End) => talk.say(Answer { messages, usage: stopwatch.usage() })?,
            Heard::Word(Order::StepDone(posted)) => return Ok(posted),
            Heard::Word(other) => bail!("the client says {other:?} in the middle of a step"),
        }
    }
}

/// However long that takes, until the client is lost or this agent is told to end: of what a client does by itself an agent hears nothing, and
/// a repetition is as long as a person wants.
fn hear(talk: &Talk) -> Result<Heard<Order>> {
    loop {
        match talk.hear_either(GLANCE) {
            Err(error) if exit::is_timeout(&error) => {}
            heard => return heard,
        }
    }
}
