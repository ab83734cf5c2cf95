//! A slice in flight, in parts.
//!
//! Invariant: no reference to the bytes exists until the last part is gone.

use std::fmt;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::range::Range;
use crate::{DomainId, Memory, Slice, bounds};

/// A slice that is in flight in any number of work requests. Each work request holds a part of it;
/// parts may overlap and come in any order.
///
/// It does not deref: while a part exists, a device may write the bytes, and nothing else can
/// access them. When the last work request has returned its part,
/// [`try_reclaim`](Self::try_reclaim) returns the whole slice.
///
/// ```
/// use farreach_memory::{Buffer, Memory};
///
/// let lent = Memory::allocate(8192)?.lend();
/// let page = lent.get(4096..).unwrap();
/// let request_takes = Buffer::from(page);
/// let lent = lent.try_reclaim().expect_err("a work request holds a part");
/// drop(request_takes);
/// assert_eq!(lent.try_reclaim().unwrap().len(), 8192);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Clone)]
pub struct Lent {
    range: Arc<Range>,
    // Relative to the range.
    offset: usize,
    len: usize,
}

impl Lent {
    pub(crate) fn new(range: Range) -> Self {
        let len = range.len();
        Self { range: Arc::new(range), offset: 0, len }
    }

    /// Returns a part of it, or `None` if the bounds exceed it.
    #[inline]
    pub fn get(&self, range: impl RangeBounds<usize>) -> Option<Self> {
        let part = bounds::within(&range, self.len)?;
        Some(Self { range: Arc::clone(&self.range), offset: self.offset + part.start, len: part.len() })
    }

    /// Returns the whole slice if no other part of it exists, and `self` otherwise.
    pub fn try_reclaim(self) -> Result<Slice, Self> {
        let Self { range, offset, len } = self;
        // Each work request holds its part until the device is done with it. No other part is left,
        // so no work request is in flight.
        Arc::try_unwrap(range).map(Slice::from_range).map_err(|range| Self { range, offset, len })
    }

    /// Returns the allocation that contains it.
    pub fn memory(&self) -> &Memory {
        self.range.memory()
    }

    /// Returns the length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the address of the first byte, as a work request names it.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        // SAFETY: `get` returns no part that exceeds the one it is taken from, so the offset is
        // within the range, or at its end if the part is empty.
        unsafe { self.range.address().add(self.offset) }
    }

    /// Returns the local key under which a domain has registered it, if any.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        self.range.memory().local_key(domain)
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lent({}..{} of {:?})", self.offset, self.offset + self.len, self.range)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;

    #[test]
    fn parts_of_parts_keep_their_place() {
        let lent = Memory::allocate(100).unwrap().lend();
        let part = lent.get(10..50).unwrap().get(5..=14).unwrap();
        assert_eq!(part.len(), 10);
        assert_eq!(part.address().as_ptr().addr() - lent.address().as_ptr().addr(), 15);
        assert!(part.get(..11).is_none());
        assert!(lent.get((Bound::Excluded(usize::MAX), Bound::Unbounded)).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "tests a reversed range")]
        let backwards = lent.get(5..3);
        assert!(backwards.is_none());
        assert!(lent.get(100..).unwrap().is_empty());
    }

    #[test]
    fn it_comes_back_whole_and_only_when_the_last_part_is_gone() {
        let lent = Memory::allocate(100).unwrap().lend();
        let part = lent.get(3..5).unwrap();
        let part = part.try_reclaim().unwrap_err();
        drop(lent);
        assert_eq!(part.try_reclaim().unwrap().len(), 100);
    }
}
