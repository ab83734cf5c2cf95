//! Runs many operations of one kind, with a given number in flight.

mod engine;

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::Result;
use hdrhistogram::Histogram;

pub(crate) use engine::{Messages, Places, Reads, Writes};

/// Operations of one kind, posted repeatedly.
pub(crate) trait Stream {
    /// Posts the next operation.
    fn post(&mut self) -> Result<()>;

    /// Waits for the oldest operation in flight.
    fn complete(&mut self) -> Result<()>;
}

/// Keeps a stream at its depth.
#[derive(Debug)]
pub(crate) struct Flow {
    depth: usize,
    posted: VecDeque<Instant>,
    /// The number of operations posted so far.
    pub(crate) total: u64,
    /// The times from post to completion.
    pub(crate) latencies: Histogram<u64>,
}

impl Flow {
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            depth,
            posted: VecDeque::with_capacity(depth),
            total: 0,
            latencies: crate::measure::histogram(),
        }
    }

    /// Posts until the depth is reached. With several streams, fill all of them before waiting for
    /// one.
    pub(crate) fn fill(&mut self, stream: &mut dyn Stream) -> Result<()> {
        self.fill_to(stream, self.depth)
    }

    /// Fills the stream and completes one operation. `left` limits the operations in flight to
    /// those still to be completed.
    pub(crate) fn turn_within(&mut self, stream: &mut dyn Stream, left: u64) -> Result<()> {
        self.fill_to(stream, usize::try_from(left).unwrap_or(usize::MAX).min(self.depth))?;
        self.complete(stream)
    }

    fn fill_to(&mut self, stream: &mut dyn Stream, most: usize) -> Result<()> {
        while self.posted.len() < most {
            self.posted.push_back(Instant::now());
            stream.post()?;
            self.total += 1;
        }
        Ok(())
    }

    /// Returns the number of operations in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.posted.len()
    }

    /// Completes everything in flight, without new posts. Returns the number of operations
    /// completed.
    pub(crate) fn end(&mut self, stream: &mut dyn Stream) -> Result<u64> {
        let in_flight = self.in_flight() as u64;
        while !self.posted.is_empty() {
            self.complete(stream)?;
        }
        Ok(in_flight)
    }

    /// Waits for the oldest operation.
    pub(crate) fn complete(&mut self, stream: &mut dyn Stream) -> Result<()> {
        stream.complete()?;
        if let Some(posted) = self.posted.pop_front() {
            self.latencies.saturating_record(posted.elapsed().as_nanos() as u64);
        }
        Ok(())
    }
}
