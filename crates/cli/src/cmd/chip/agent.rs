//! The agent's side: it owns the memory.

use anyhow::{Context, Result};
use farreach::{Engine, Grant, Rights};

use super::{Answered, Ask, End, MESSAGE_BYTES, PATIENCE, Task, Way, access, link_rules, lock};
use crate::exit::Failure;
use crate::measure::{self, Pattern, Stopwatch};
use crate::native::{self, Card, Cards, Link, Memory, Received};
use crate::registered;
use crate::session::Channel;

/// Offers the memory, and serves the client's requests.
pub(crate) fn serve(engine: &Engine, cards: &Cards, channel: &Channel, task: &Task) -> Result<()> {
    match channel.recv()? {
        Way::Cards => answer(&OnCard::open(cards, channel, task)?, channel, task),
        Way::Engine => answer(&OnEngine::open(engine, channel, task)?, channel, task),
        Way::None => Ok(()),
    }
}

fn answer(memory: &dyn Offered, channel: &Channel, task: &Task) -> Result<()> {
    let stopwatch = Stopwatch::start();
    loop {
        match channel.recv_at_last()? {
            Ask::Message => memory.send()?,
            Ask::Look => {
                let mut found = vec![0; memory.len()];
                memory.read(0, &mut found)?;
                let mut pattern = Pattern::new(task.seed, memory.len());
                measure::compare(pattern.stamped(1), &found, || {
                    "the memory of the server differs from what the client wrote".to_owned()
                })?;
                channel.send(Answered)?;
            }
            Ask::Clear => {
                memory.write(0, &[0; lock::BYTES])?;
                channel.send(Answered)?;
            }
            Ask::End => {
                let mut counter = [0; 8];
                memory.read(lock::COUNTER, &mut counter)?;
                return channel.send(End { counter: u64::from_le_bytes(counter), usage: stopwatch.usage() });
            }
        }
    }
}

/// The memory, over either path.
trait Offered {
    fn len(&self) -> usize;
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Failure>;
    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Failure>;

    /// Sends the beginning of the memory as a message.
    fn send(&self) -> Result<()>;
}

struct OnCard {
    memory: Memory,
    links: Vec<Link>,
}

impl OnCard {
    fn open(cards: &Cards, channel: &Channel, task: &Task) -> Result<Self> {
        let rules = |card: &Card| Ok(link_rules(card, task));
        let memory = |card: &Card| {
            let memory = match task.host_memory {
                true => Memory::host(card, task.size_bytes, access(card)),
                false => Memory::on_chip(card, task.size_bytes, access(card)),
            }?;
            memory.write(0, Pattern::new(task.seed, memory.len()).stamped(0))?;
            Ok(memory)
        };
        let Received { links, memory } = native::receive(cards, channel, rules, memory)?;
        Ok(Self { memory, links })
    }
}

impl Offered for OnCard {
    fn len(&self) -> usize {
        self.memory.len()
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.memory.write(offset, bytes)
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
        self.memory.read(offset, into)
    }

    fn send(&self) -> Result<()> {
        let part =
            self.memory.part(0..MESSAGE_BYTES.min(self.memory.len())).context("the memory is too short")?;
        let link = self.links.first().context("there is no queue pair")?;
        link.post_from(part)?;
        link.complete()?;
        Ok(())
    }
}

struct OnEngine<'a> {
    memory: Grant,
    channel: &'a Channel,
}

impl<'a> OnEngine<'a> {
    fn open(engine: &Engine, channel: &'a Channel, task: &Task) -> Result<Self> {
        let mut slice = registered::allocate(engine, task.size_bytes)?;
        slice.copy_from_slice(Pattern::new(task.seed, task.size_bytes).stamped(0));
        let rights = Rights::READ | Rights::WRITE | Rights::ATOMIC;
        let memory = registered::grant(&channel.peer, slice, rights)?;
        channel.send(memory.token())?;
        Ok(Self { memory, channel })
    }
}

impl Offered for OnEngine<'_> {
    fn len(&self) -> usize {
        self.memory.len()
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Failure> {
        self.memory.write_at(offset, bytes);
        Ok(())
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Failure> {
        self.memory.read_at(offset, into);
        Ok(())
    }

    fn send(&self) -> Result<()> {
        let mut message = vec![0; MESSAGE_BYTES.min(self.memory.len())];
        self.memory.read_at(0, &mut message);
        Ok(self.channel.peer.send(message).wait(PATIENCE)?)
    }
}
