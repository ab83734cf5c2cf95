//! Statistics of a transfer.

use crate::time::Time;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

/// Statistics of a transfer: pages, links, operations, bytes, time.
///
/// ```
/// use farreach_proto::stats::TransferStats;
///
/// let stats = TransferStats::default();
/// assert_eq!(stats.bytes(), 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferStats {
    /// Pages of the transfer.
    pub pages: u64,
    /// The share of each link.
    pub links: LinkShares,
    /// Operations that a full queue refused, and that were posted again.
    pub refusals: u64,
    /// Bytes that are known to have arrived: all of them if the transfer is done. Otherwise more may have
    /// arrived, and any of the pages.
    pub delivered: u64,
    started_at: Time,
    finished_at: Time,
}

/// The shares of the links in a transfer: a slice. Those of two links need no memory of their own.
///
/// ```
/// use farreach_proto::stats::LinkShares;
///
/// assert!(LinkShares::default().is_empty());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkShares(SmallVec<[LinkStats; 2]>);

impl Deref for LinkShares {
    type Target = [LinkStats];

    fn deref(&self) -> &[LinkStats] {
        &self.0
    }
}

impl DerefMut for LinkShares {
    fn deref_mut(&mut self) -> &mut [LinkStats] {
        &mut self.0
    }
}

impl<'a> IntoIterator for &'a LinkShares {
    type Item = &'a LinkStats;
    type IntoIter = slice::Iter<'a, LinkStats>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The share of one link in a transfer.
///
/// ```
/// use farreach_proto::stats::LinkStats;
///
/// assert_eq!(LinkStats::default().operations, 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStats {
    /// The local rail: `rxe0`, `net 10.0.0.7`.
    pub rail: Arc<str>,
    /// The number of the link. A link that was lost and made again has another number.
    pub link: u64,
    /// Posted operations, including those that were posted again after another link was lost.
    pub operations: u64,
    /// The bytes of these operations.
    pub bytes: u64,
    /// Operations that carried an immediate, which raises the receiver's counter.
    pub immediates: u64,
}

impl TransferStats {
    /// The statistics of a transfer of `pages` pages that begins now, over links of these rails.
    pub fn begin(pages: u64, rails: impl IntoIterator<Item = Arc<str>>, started_at: Time) -> Self {
        // Each field is given: the default of `rail` is one for the whole process, and threads on
        // different engines would wait for each other's cache line.
        let share = |rail| LinkStats { rail, link: 0, operations: 0, bytes: 0, immediates: 0 };
        let links = LinkShares(rails.into_iter().map(share).collect());
        Self { pages, links, started_at, ..Self::default() }
    }

    /// Notes the end of the transfer.
    pub fn end(&mut self, finished_at: Time) {
        self.finished_at = finished_at;
    }

    /// Returns the bytes of all posted operations, including those that were posted again.
    pub fn bytes(&self) -> u64 {
        self.links.iter().map(|link| link.bytes).sum()
    }

    /// Returns the number of posted operations.
    pub fn operations(&self) -> u64 {
        self.links.iter().map(|link| link.operations).sum()
    }

    /// Returns the time from the request to the end.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.finished_at.saturating_since(self.started_at))
    }
}

impl fmt::Display for TransferStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages, {} operations, {:?}", self.pages, self.operations(), self.elapsed())?;
        for share in self.links.iter().filter(|share| share.operations > 0) {
            let LinkStats { rail, link, operations, bytes, immediates } = share;
            write!(
                f,
                "\n  {rail}, link {link}: {bytes} bytes in {operations} operations, {immediates} immediates"
            )?;
        }
        if self.refusals > 0 {
            write!(f, "\n  {} operations waited for room", self.refusals)?;
        }
        Ok(())
    }
}
