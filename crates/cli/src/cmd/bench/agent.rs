//! The agent's side of a bench: it prepares memory, receives messages, and reports its usage.

use anyhow::{Result, bail};
use farreach::Engine;

use super::streams::Target;
use super::{Answer, Begun, Order, Task};
use crate::exit::{self, Exit, Failure};
use crate::interrupt::GLANCE;
use crate::measure::Stopwatch;
use crate::native::{self, Cards, Receiver};
use crate::session::{Channel, Received};

/// Serves the client's steps.
pub(crate) fn serve(engine: &Engine, cards: &Cards, channel: &Channel, task: &Task) -> Result<()> {
    loop {
        match channel.recv_at_last()? {
            Order::Step(step) => {
                step.check(task)?;
                // A missing feature is reported, and the client continues with another step.
                let target = Target::open(engine, channel, &step).map_err(|error| Failure::of(&error));
                channel.send(target.as_ref().map(Target::ends).map_err(Clone::clone))?;
                let native =
                    step.native().map(|rules| native::serve_stream(cards, channel, rules)).transpose();
                let native = match native {
                    Err(error) if Failure::of(&error).exit != Exit::Unavailable => return Err(error),
                    // The client has the failure, and continues with another step.
                    native => native.ok().flatten(),
                };
                let receiver = native.as_ref().and_then(|native| native.receiver.as_ref());
                let posted = measure(channel, receiver)?;
                if let Some(native) = native {
                    native.check(posted)?;
                }
            }
            Order::Done => return Ok(()),
            other => bail!("unexpected message {other:?} before a step"),
        }
    }
}

/// Serves the repetitions of one step. Returns the number of operations that the client has posted.
fn measure(channel: &Channel, receiver: Option<&Receiver>) -> Result<u64> {
    let (mut stopwatch, mut messages) = (Stopwatch::start(), 0);
    let received = |posted| receiver.map_or(0, |receiver| receiver.wait_for(posted));
    let mut before = 0;
    loop {
        match recv(channel)? {
            Received::Bytes(_) => messages += 1,
            Received::Message(Order::Begin(posted)) => {
                before = received(posted);
                (stopwatch, messages) = (Stopwatch::start(), 0);
                // The client waits for this. Otherwise `before` could include its next messages.
                channel.send(Begun)?;
            }
            Received::Message(Order::End(posted)) => {
                if receiver.is_some() {
                    messages = received(posted).saturating_sub(before);
                }
                channel.send(Answer { messages, usage: stopwatch.usage() })?;
            }
            Received::Message(Order::StepDone(posted)) => return Ok(posted),
            Received::Message(other) => bail!("unexpected message {other:?} during a step"),
        }
    }
}

/// Receives without a timeout, until the client is lost or this agent is interrupted: one-sided
/// operations cause no messages, and the user chooses the length of a repetition.
fn recv(channel: &Channel) -> Result<Received<Order>> {
    loop {
        match channel.recv_either(GLANCE) {
            Err(error) if exit::is_timeout(&error) => {}
            heard => return heard,
        }
    }
}
