//! The operations of the engine as streams, with the memory that the other side prepares for each.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use farreach::{CompareSwap, Counter, CounterToken, Engine, Grant, GrantToken, Peer, Pending, Rights};
use serde::{Deserialize, Serialize};

use super::operation::Operation;
use super::{PATIENCE, Step};
use crate::measure::Pattern;
use crate::registered;
use crate::session::Channel;
use crate::stream::{Messages, Places, Reads, Stream, Writes};

/// The agent's memory, and its counter for operations that notify one.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Ends {
    memory: Option<GrantToken>,
    counter: Option<CounterToken>,
}

/// The agent's side. It is kept until the client is done with the step.
#[derive(Debug, Default)]
pub(super) struct Target {
    memory: Option<Grant>,
    counter: Option<Counter>,
}

impl Target {
    pub(super) fn open(engine: &Engine, channel: &Channel, step: &Step) -> Result<Self> {
        let rights = match step.operation {
            Operation::Send
            | Operation::AtomicWrite
            | Operation::Flush
            | Operation::RawWrite
            | Operation::RawRead
            | Operation::RawSend => return Ok(Self::default()),
            Operation::Write | Operation::WriteImm => Rights::WRITE,
            Operation::Read => Rights::READ,
            Operation::Cas | Operation::Faa => Rights::ATOMIC,
        };
        let slice = registered::allocate(engine, step.places_len())?;
        let memory = Some(registered::grant(&channel.peer, slice, rights)?);
        let counter = (step.operation == Operation::WriteImm)
            .then(|| registered::open_counter(&channel.peer))
            .transpose()?;
        Ok(Self { memory, counter })
    }

    pub(super) fn ends(&self) -> Ends {
        Ends {
            memory: self.memory.as_ref().map(Grant::token),
            counter: self.counter.as_ref().map(Counter::token),
        }
    }
}

/// Opens the client's side.
pub(super) fn open(engine: &Engine, channel: &Channel, step: &Step, ends: &Ends) -> Result<Box<dyn Stream>> {
    let (len, peer) = (step.size_bytes as usize, channel.peer.clone());
    if step.operation == Operation::Send {
        let message = Pattern::new(0, len).stamped(0).to_vec();
        return Ok(Box::new(Messages::new(peer, message, PATIENCE)));
    }
    let memory = peer.remote(ends.memory.context("the server sent no grant")?).wait(PATIENCE)?;
    let places = Places::new(&memory, step.size_bytes, step.depth.into())?;
    Ok(match step.operation {
        Operation::Read => Box::new(Reads::open(engine, peer, places, len, step.depth as usize, PATIENCE)?),
        Operation::Cas | Operation::Faa => {
            let is_cas = step.operation == Operation::Cas;
            Box::new(Atomics { peer, is_cas, places, in_flight: VecDeque::new() })
        }
        _ => {
            let counter = ends.counter.map(|token| peer.remote_counter(token).wait(PATIENCE)).transpose()?;
            let source = registered::allocate(engine, len)?;
            Box::new(Writes::new(peer, source, places, counter, PATIENCE))
        }
    })
}

/// The memory has zeros, and keeps them: each swap succeeds.
const SWAP: CompareSwap = CompareSwap { expected: 0, desired: 0 };

struct Atomics {
    peer: Peer,
    is_cas: bool,
    places: Places,
    in_flight: VecDeque<Pending<u64>>,
}

impl Stream for Atomics {
    fn post(&mut self) -> Result<()> {
        let (peer, place) = (&self.peer, self.places.next());
        let word = if self.is_cas { peer.compare_and_swap(place, SWAP) } else { peer.fetch_add(place, 1) };
        self.in_flight.push_back(word);
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        if let Some(mut word) = self.in_flight.pop_front() {
            word.wait(PATIENCE)?;
        }
        Ok(())
    }
}
