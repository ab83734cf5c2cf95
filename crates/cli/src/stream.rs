//! Many operations of one kind, as many at once as are wanted.

use std::collections::VecDeque;
use std::time::Instant;

use anyhow::Result;
use hdrhistogram::Histogram;

/// One kind of operation, posted again and again.
pub(crate) trait Stream {
    /// Posts the next one.
    fn post(&mut self) -> Result<()>;

    /// Waits for the one that was posted first of those under way.
    fn complete(&mut self) -> Result<()>;
}

/// Keeps a stream going.
#[derive(Debug)]
pub(crate) struct Flow {
    depth: usize,
    posted: VecDeque<Instant>,
    /// All that were posted, since the beginning.
    pub(crate) total: u64,
    /// From the post to the completion.
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

    /// Posts until as many are under way as may be. Who has several streams fills all of them before it waits for one.
    pub(crate) fn fill(&mut self, stream: &mut dyn Stream) -> Result<()> {
        self.fill_to(stream, self.depth)
    }

    /// Completes one operation, after as many were posted as may be under way, where only so many more are to be completed.
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

    /// Completes what is under way, and posts no more: how many that were.
    pub(crate) fn end(&mut self, stream: &mut dyn Stream) -> Result<u64> {
        let under_way = self.posted.len() as u64;
        while !self.posted.is_empty() {
            self.complete(stream)?;
        }
        Ok(under_way)
    }

    /// Waits for the one that was posted first.
    pub(crate) fn complete(&mut self, stream: &mut dyn Stream) -> Result<()> {
        stream.complete()?;
        if let Some(posted) = self.posted.pop_front() {
            self.latencies.saturating_record(posted.elapsed().as_nanos() as u64);
        }
        Ok(())
    }
}
