//! The operations of the engine as streams.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result};
use farreach::{Buffer, Engine, PageMap, Peer, Pending, RemoteCounter, RemoteSlice, Shared, Slice, Transfer};

use super::Stream;
use crate::registered;

/// The peer's memory, as consecutive places of one size that are used in a cycle.
#[derive(Debug)]
pub(crate) struct Places {
    all: Vec<RemoteSlice>,
    next: usize,
}

impl Places {
    /// Divides the memory. Fails if the other side has granted less than `count` places.
    pub(crate) fn new(memory: &RemoteSlice, len: u64, count: u64) -> Result<Self> {
        let place = |number: u64| {
            let start = number.checked_mul(len)?;
            memory.get(start..start.checked_add(len)?)
        };
        let all: Option<Vec<_>> = (0..count).map(place).collect();
        let all = all.filter(|all| !all.is_empty());
        Ok(Self { all: all.context("the memory of the other side is too short")?, next: 0 })
    }

    pub(crate) fn next(&mut self) -> &RemoteSlice {
        let place = &self.all[self.next];
        self.next = (self.next + 1) % self.all.len();
        place
    }
}

/// Messages with the same contents.
#[derive(Debug)]
pub(crate) struct Messages {
    peer: Peer,
    message: Vec<u8>,
    patience: Duration,
    in_flight: VecDeque<Pending<()>>,
}

impl Messages {
    pub(crate) fn new(peer: Peer, message: Vec<u8>, patience: Duration) -> Self {
        Self { peer, message, patience, in_flight: VecDeque::new() }
    }
}

impl Stream for Messages {
    fn post(&mut self) -> Result<()> {
        self.in_flight.push_back(self.peer.send(self.message.clone()));
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        match self.in_flight.pop_front() {
            Some(mut sent) => Ok(sent.wait(self.patience)?),
            None => Ok(()),
        }
    }
}

/// Writes of the same contents, each of which may count on a counter of the peer.
#[derive(Debug)]
pub(crate) struct Writes {
    peer: Peer,
    source: Shared,
    map: PageMap,
    places: Places,
    counter: Option<RemoteCounter>,
    patience: Duration,
    in_flight: VecDeque<Transfer>,
}

impl Writes {
    pub(crate) fn new(
        peer: Peer,
        source: Slice,
        places: Places,
        counter: Option<RemoteCounter>,
        patience: Duration,
    ) -> Self {
        let map = PageMap::of(source.len() as u64).first(1);
        Self { peer, source: source.share(), map, places, counter, patience, in_flight: VecDeque::new() }
    }
}

impl Stream for Writes {
    fn post(&mut self) -> Result<()> {
        let (source, counter) = (self.source.clone(), self.counter.as_ref());
        let transfer = self.peer.write_pages(source, &self.map, self.places.next(), counter);
        self.in_flight.push_back(transfer);
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        if let Some(mut transfer) = self.in_flight.pop_front() {
            transfer.wait(self.patience)?;
        }
        Ok(())
    }
}

/// Reads, each into a slice of its own. The slices are used in a cycle.
#[derive(Debug)]
pub(crate) struct Reads {
    peer: Peer,
    map: PageMap,
    places: Places,
    /// The slices that no read uses. Those that were read into last are at the back.
    slices: VecDeque<Slice>,
    patience: Duration,
    in_flight: VecDeque<Transfer>,
}

impl Reads {
    /// Prepares reads of `len` bytes, `depth` of them at a time.
    pub(crate) fn open(
        engine: &Engine,
        peer: Peer,
        places: Places,
        len: usize,
        depth: usize,
        patience: Duration,
    ) -> Result<Self> {
        let slices = (0..depth).map(|_| registered::allocate(engine, len)).collect::<Result<_, _>>()?;
        let map = PageMap::of(len as u64).first(1);
        Ok(Self { peer, map, places, slices, patience, in_flight: VecDeque::new() })
    }

    /// Returns the contents of the last reads, at most `depth` of them.
    pub(crate) fn last(&self, count: u64) -> impl Iterator<Item = &[u8]> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.slices.iter().rev().take(count).map(|slice| &**slice)
    }
}

impl Stream for Reads {
    fn post(&mut self) -> Result<()> {
        let into = self.slices.pop_front().context("more reads are in flight than there is memory for")?;
        self.in_flight.push_back(self.peer.read_pages(self.places.next(), &self.map, into));
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        if let Some(mut transfer) = self.in_flight.pop_front()
            && let Buffer::Slice(slice) = transfer.wait(self.patience)?.buffer
        {
            self.slices.push_back(slice);
        }
        Ok(())
    }
}
