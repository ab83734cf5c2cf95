//! How a transfer went.

use std::fmt;
use std::time::Duration;

/// How a finished transfer went: over which rails, in how many operations.
///
/// ```
/// use farreach_proto::explain::Explanation;
///
/// let explanation = Explanation::default();
/// assert_eq!(explanation.bytes(), 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// Pages that were asked for.
    pub pages: u64,
    /// What each link did.
    pub rails: Vec<RailShare>,
    /// Operations that a card had no room for, and that were posted again.
    pub refusals: u64,
    started_ns: u64,
    finished_ns: u64,
}

/// What one link did for a transfer.
///
/// ```
/// use farreach_proto::explain::RailShare;
///
/// assert_eq!(RailShare::default().operations, 0);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RailShare {
    /// The rail of this side's: `rxe0`, `tcp;ofi_rxm`.
    pub rail: String,
    /// The connection's number: another one after it was lost and made anew.
    pub link: u64,
    /// Operations that were posted; with those that were posted again because another link was lost.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those that told the receiver's counter.
    pub immediates: u64,
}

impl Explanation {
    /// Of a transfer of so many pages over so many links, which begins at this time.
    pub fn begin(pages: u64, links: usize, started_ns: u64) -> Self {
        Self { pages, rails: vec![RailShare::default(); links], started_ns, ..Self::default() }
    }

    /// The transfer has ended at this time.
    pub fn end(&mut self, finished_ns: u64) {
        self.finished_ns = finished_ns;
    }

    /// All bytes that were posted, those that were sent again too.
    pub fn bytes(&self) -> u64 {
        self.rails.iter().map(|rail| rail.bytes).sum()
    }

    /// All operations that were posted.
    pub fn operations(&self) -> u64 {
        self.rails.iter().map(|rail| rail.operations).sum()
    }

    /// From the order to the end.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.finished_ns.saturating_sub(self.started_ns))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pages, {} operations, {:?}", self.pages, self.operations(), self.elapsed())?;
        for share in self.rails.iter().filter(|share| share.operations > 0) {
            let RailShare { rail, link, operations, bytes, immediates } = share;
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
