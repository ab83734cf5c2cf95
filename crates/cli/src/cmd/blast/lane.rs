//! One direction of a blast: the writer and the target. Either side can be both.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use farreach::{Engine, Grant, GrantToken, PageMap, RemoteSlice, Rights, Shared, Transfer};

use super::Task;
use crate::exit::{Exit, Failure};
use crate::measure::{Pattern, Stopwatch};
use crate::registered;
use crate::session::Channel;
use crate::stream::{Flow, Stream};

/// Memory that is written to.
#[derive(Debug)]
pub(super) struct Sink {
    memory: Grant,
}

impl Sink {
    pub(super) fn open(engine: &Engine, channel: &Channel, task: &Task) -> Result<Self> {
        let slice = registered::allocate(engine, task.message_bytes as usize * task.depth)?;
        Ok(Self { memory: registered::grant(&channel.peer, slice, Rights::WRITE)? })
    }

    pub(super) fn token(&self) -> GrantToken {
        self.memory.token()
    }

    /// Alters one byte.
    pub(super) fn alter(&self, task: &Task) {
        let (mut byte, middle) = ([0], task.message_bytes as usize / 2);
        self.memory.read_at(middle, &mut byte);
        self.memory.write_at(middle, &[byte[0] ^ 1]);
    }

    /// Checks the contents after `messages` writes to consecutive places.
    pub(super) fn check(self, task: &Task, messages: u64) -> Result<()> {
        let memory = self.memory.revoke(task.patience())?;
        let len = task.message_bytes as usize;
        let (mut pattern, mut found) = (Pattern::new(task.seed, len), vec![0; len]);
        for place in 0..task.depth.min(messages as usize) {
            memory.read_at(place * len, &mut found);
            pattern.check(0, &found).map_err(|failure| Failure {
                error: format!("the memory at place {place} differs from the message written there"),
                exit: Exit::Mismatch,
                ..failure
            })?;
        }
        Ok(())
    }
}

/// Writes to consecutive places in a cycle.
#[derive(Debug)]
pub(super) struct Source {
    writes: Writes,
    flow: Flow,
    left: Option<u64>,
    pub(super) messages: u64,
    /// When the last message had arrived.
    last: Instant,
}

#[derive(Debug)]
struct Writes {
    channel: Channel,
    source: Shared,
    map: PageMap,
    places: Vec<RemoteSlice>,
    next: usize,
    patience: Duration,
    under_way: VecDeque<Transfer>,
}

impl Source {
    /// Prepares writes to the other side's memory, with one byte altered on request.
    pub(super) fn open(
        engine: &Engine,
        channel: &Channel,
        task: &Task,
        memory: GrantToken,
        is_spoilt: bool,
    ) -> Result<Self> {
        let len = task.message_bytes;
        let memory = channel.peer.remote(memory).wait(task.patience())?;
        let places =
            (0..task.depth as u64).filter_map(|place| memory.get(place * len..(place + 1) * len)).collect();
        let mut source = registered::allocate(engine, len as usize)?;
        source.copy_from_slice(Pattern::new(task.seed, len as usize).stamped(0));
        if is_spoilt {
            source[len as usize / 2] ^= 1;
        }
        let (source, map) = (source.share(), PageMap::of(len).first(1));
        let (patience, under_way) = (task.patience(), VecDeque::new());
        let writes = Writes { channel: channel.clone(), source, map, places, next: 0, patience, under_way };
        Ok(Self { writes, flow: Flow::new(task.depth), left: task.count, messages: 0, last: Instant::now() })
    }

    /// Returns whether all requested messages are written.
    pub(super) fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Completes one more message.
    pub(super) fn go_on(&mut self) -> Result<()> {
        self.flow.turn_within(&mut self.writes, self.left.unwrap_or(u64::MAX))?;
        self.count();
        Ok(())
    }

    /// Waits for everything in flight.
    pub(super) fn end(&mut self) -> Result<()> {
        self.messages += self.flow.end(&mut self.writes)?;
        Ok(())
    }

    /// Returns when the last message had arrived, by a stopwatch that was started before the first.
    pub(super) fn last_at(&self, stopwatch: &Stopwatch) -> Duration {
        stopwatch.elapsed().saturating_sub(self.last.elapsed())
    }

    fn count(&mut self) {
        self.last = Instant::now();
        self.messages += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
    }
}

impl Stream for Writes {
    fn post(&mut self) -> Result<()> {
        let place = &self.places[self.next];
        self.next = (self.next + 1) % self.places.len();
        self.under_way.push_back(self.channel.peer.write_pages(self.source.clone(), &self.map, place, None));
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        if let Some(mut transfer) = self.under_way.pop_front() {
            transfer.wait(self.patience)?;
        }
        Ok(())
    }
}
