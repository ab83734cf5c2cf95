//! The operations of the engine as streams, with the memory that the other side prepares for each.

use std::collections::VecDeque;

use anyhow::{Context, Result};
use farreach::{
    Buffer, CompareSwap, Counter, CounterToken, Engine, Grant, GrantToken, PageMap, Pending, RemoteCounter,
    RemoteSlice, Rights, Shared, Slice, Transfer,
};
use serde::{Deserialize, Serialize};

use super::operation::Operation;
use super::{PATIENCE, Step};
use crate::measure::Pattern;
use crate::registered;
use crate::session::Channel;
use crate::stream::Stream;

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
            | Operation::RawRead => return Ok(Self::default()),
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
    let len = step.size_bytes as usize;
    if step.operation == Operation::Send {
        let message = Pattern::new(0, len).stamped(0).to_vec();
        return Ok(Box::new(Messages { channel: channel.clone(), message, under_way: VecDeque::new() }));
    }
    let memory = channel.peer.remote(ends.memory.context("the server sent no grant")?).wait(PATIENCE)?;
    let place = |number: u64| memory.get(number * step.size_bytes..(number + 1) * step.size_bytes);
    let places = Places { all: (0..u64::from(step.depth)).filter_map(place).collect(), next: 0 };
    let map = PageMap::of(step.size_bytes).first(1);
    let channel = channel.clone();
    Ok(match step.operation {
        Operation::Read => {
            let slices =
                (0..step.depth).map(|_| Ok(registered::allocate(engine, len)?)).collect::<Result<_>>()?;
            Box::new(Reads { channel, map, places, slices, under_way: VecDeque::new() })
        }
        Operation::Cas | Operation::Faa => {
            let is_cas = step.operation == Operation::Cas;
            Box::new(Words { channel, is_cas, places, under_way: VecDeque::new() })
        }
        _ => {
            let counter =
                ends.counter.map(|token| channel.peer.remote_counter(token).wait(PATIENCE)).transpose()?;
            let source = registered::allocate(engine, len)?.share();
            Box::new(Writes { channel, source, map, places, counter, under_way: VecDeque::new() })
        }
    })
}

/// The peer's memory, as consecutive places used in a cycle.
#[derive(Debug)]
struct Places {
    all: Vec<RemoteSlice>,
    next: usize,
}

impl Places {
    fn next(&mut self) -> &RemoteSlice {
        let place = &self.all[self.next];
        self.next = (self.next + 1) % self.all.len();
        place
    }
}

struct Messages {
    channel: Channel,
    message: Vec<u8>,
    under_way: VecDeque<Pending<()>>,
}

impl Stream for Messages {
    fn post(&mut self) -> Result<()> {
        self.under_way.push_back(self.channel.peer.send(self.message.clone()));
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        match self.under_way.pop_front() {
            Some(mut sent) => Ok(sent.wait(PATIENCE)?),
            None => Ok(()),
        }
    }
}

struct Writes {
    channel: Channel,
    source: Shared,
    map: PageMap,
    places: Places,
    counter: Option<RemoteCounter>,
    under_way: VecDeque<Transfer>,
}

impl Stream for Writes {
    fn post(&mut self) -> Result<()> {
        let (source, counter) = (self.source.clone(), self.counter.as_ref());
        self.under_way.push_back(self.channel.peer.write_pages(
            source,
            &self.map,
            self.places.next(),
            counter,
        ));
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        if let Some(mut transfer) = self.under_way.pop_front() {
            transfer.wait(PATIENCE)?;
        }
        Ok(())
    }
}

struct Reads {
    channel: Channel,
    map: PageMap,
    places: Places,
    slices: Vec<Slice>,
    under_way: VecDeque<Transfer>,
}

impl Stream for Reads {
    fn post(&mut self) -> Result<()> {
        let into = self.slices.pop().context("more reads are in flight than there are buffers")?;
        self.under_way.push_back(self.channel.peer.read_pages(self.places.next(), &self.map, into));
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        if let Some(mut transfer) = self.under_way.pop_front()
            && let Buffer::Slice(slice) = transfer.wait(PATIENCE)?.buffer
        {
            self.slices.push(slice);
        }
        Ok(())
    }
}

/// The memory has zeros, and keeps them: each swap succeeds.
const SWAP: CompareSwap = CompareSwap { expected: 0, desired: 0 };

struct Words {
    channel: Channel,
    is_cas: bool,
    places: Places,
    under_way: VecDeque<Pending<u64>>,
}

impl Stream for Words {
    fn post(&mut self) -> Result<()> {
        let (peer, place) = (&self.channel.peer, self.places.next());
        let word = if self.is_cas { peer.compare_and_swap(place, SWAP) } else { peer.fetch_add(place, 1) };
        self.under_way.push_back(word);
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        if let Some(mut word) = self.under_way.pop_front() {
            word.wait(PATIENCE)?;
        }
        Ok(())
    }
}
