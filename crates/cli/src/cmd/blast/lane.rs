//! One direction of a blast: the initiator of the operations, and their target. Either side can be
//! both.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farreach::{Engine, Grant, GrantToken, Rights};

use super::{Operation, Task};
use crate::exit::{Exit, Failure};
use crate::measure::{self, Pattern, Stopwatch};
use crate::registered;
use crate::session::Channel;
use crate::stream::{Flow, Messages, Places, Reads, Stream, Writes};

/// The target: memory that is written to or read, or the receiver of messages.
#[derive(Debug)]
pub(super) enum Target {
    Memory(Grant),
    Inbox(Inbox),
}

/// Checks messages as they arrive.
#[derive(Debug)]
pub(super) struct Inbox {
    expected: Vec<u8>,
    received: u64,
}

impl Target {
    /// Opens the target, with one byte altered on request.
    pub(super) fn open(engine: &Engine, channel: &Channel, task: &Task, is_altered: bool) -> Result<Self> {
        let contents = task.contents(is_altered);
        let rights = match task.operation {
            Operation::Send => return Ok(Self::Inbox(Inbox { expected: contents, received: 0 })),
            Operation::Write => Rights::WRITE,
            Operation::Read => Rights::READ,
        };
        let mut slice = registered::allocate(engine, task.message_bytes as usize * task.depth)?;
        if task.operation == Operation::Read {
            slice.chunks_exact_mut(contents.len()).for_each(|place| place.copy_from_slice(&contents));
        }
        Ok(Self::Memory(registered::grant(&channel.peer, slice, rights)?))
    }

    pub(super) fn token(&self) -> Option<GrantToken> {
        match self {
            Self::Memory(memory) => Some(memory.token()),
            Self::Inbox(_) => None,
        }
    }

    /// Alters one byte of the memory.
    pub(super) fn alter(&self, task: &Task) {
        let Self::Memory(memory) = self else { return };
        let (mut byte, middle) = ([0], task.message_bytes as usize / 2);
        memory.read_at(middle, &mut byte);
        memory.write_at(middle, &[byte[0] ^ 1]);
    }

    /// Checks a message of the test.
    pub(super) fn take(&mut self, message: &[u8]) -> Result<()> {
        let Self::Inbox(inbox) = self else { bail!("unexpected data from the other side during the test") };
        let number = inbox.received;
        measure::compare(&inbox.expected, message, || format!("message {number} has wrong bytes"))?;
        inbox.received += 1;
        Ok(())
    }

    /// Checks the final contents after this many operations.
    pub(super) fn check(self, task: &Task, messages: u64) -> Result<()> {
        match self {
            Self::Memory(memory) => {
                let memory = memory.revoke(task.patience())?;
                if task.operation == Operation::Read {
                    // The initiator has checked the bytes that it read.
                    return Ok(());
                }
                let (expected, mut found) = (task.contents(false), vec![0; task.message_bytes as usize]);
                for place in 0..task.depth.min(messages as usize) {
                    memory.read_at(place * found.len(), &mut found);
                    measure::compare(&expected, &found, || {
                        format!("the memory at place {place} differs from the message written there")
                    })?;
                }
                Ok(())
            }
            Self::Inbox(inbox) if inbox.received == messages => Ok(()),
            Self::Inbox(inbox) => Err(Failure::new(
                Exit::Mismatch,
                format!("{messages} messages were sent, {} arrived", inbox.received),
            )
            .into()),
        }
    }
}

/// Posts operations on consecutive places in a cycle, or sends messages.
#[derive(Debug)]
pub(super) struct Initiator {
    operations: Operations,
    /// The bytes of each operation.
    contents: Vec<u8>,
    flow: Flow,
    left: Option<u64>,
    pub(super) messages: u64,
    /// When the last operation completed.
    last: Instant,
}

#[derive(Debug)]
enum Operations {
    Writes(Writes),
    Reads(Reads),
    Messages(Messages),
}

impl Operations {
    fn stream(&mut self) -> &mut dyn Stream {
        match self {
            Self::Writes(writes) => writes,
            Self::Reads(reads) => reads,
            Self::Messages(messages) => messages,
        }
    }
}

impl Initiator {
    /// Prepares operations on the other side's memory, or messages to it, with one byte altered on
    /// request.
    pub(super) fn open(
        engine: &Engine,
        channel: &Channel,
        task: &Task,
        memory: Option<GrantToken>,
        is_altered: bool,
    ) -> Result<Self> {
        let (len, peer, patience) = (task.message_bytes, channel.peer.clone(), task.patience());
        let places = || {
            let memory = memory.context("the other side sent no grant")?;
            let memory = peer.remote(memory).wait(patience)?;
            Places::new(&memory, len, task.depth as u64)
        };
        let contents = task.contents(is_altered);
        let operations = match task.operation {
            Operation::Send => Operations::Messages(Messages::new(peer, contents.clone(), patience)),
            Operation::Write => {
                let places = places()?;
                let mut source = registered::allocate(engine, contents.len())?;
                source.copy_from_slice(&contents);
                Operations::Writes(Writes::new(peer, source, places, None, patience))
            }
            Operation::Read => {
                let places = places()?;
                Operations::Reads(Reads::open(engine, peer, places, len as usize, task.depth, patience)?)
            }
        };
        let flow = Flow::new(task.depth);
        Ok(Self { operations, contents, flow, left: task.count, messages: 0, last: Instant::now() })
    }

    /// Returns whether all requested operations are complete.
    pub(super) fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Completes one more operation.
    pub(super) fn go_on(&mut self) -> Result<()> {
        self.flow.turn_within(self.operations.stream(), self.left.unwrap_or(u64::MAX))?;
        self.last = Instant::now();
        self.messages += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(())
    }

    /// Completes an operation without posting another one. Returns `false` if none is in flight.
    pub(super) fn finish_one(&mut self) -> Result<bool> {
        if self.flow.in_flight() == 0 {
            return Ok(false);
        }
        self.flow.complete(self.operations.stream())?;
        self.messages += 1;
        Ok(true)
    }

    /// Checks the bytes of the last reads. The target of writes and messages checks those.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let Operations::Reads(reads) = &self.operations else { return Ok(()) };
        for found in reads.last(self.messages) {
            measure::compare(&self.contents, found, || {
                "the bytes read differ from the memory of the other side".to_owned()
            })?;
        }
        Ok(())
    }

    /// Returns when the last operation completed, by a stopwatch that was started before the first.
    pub(super) fn last_at(&self, stopwatch: &Stopwatch) -> Duration {
        stopwatch.elapsed().saturating_sub(self.last.elapsed())
    }
}

impl Task {
    /// Returns the bytes of each message, with one byte altered on request.
    fn contents(&self, is_altered: bool) -> Vec<u8> {
        let mut contents = Pattern::new(self.seed, self.message_bytes as usize).stamped(0).to_vec();
        if is_altered {
            contents[self.message_bytes as usize / 2] ^= 1;
        }
        contents
    }
}
