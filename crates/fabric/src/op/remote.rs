//! A peer's memory.

use std::fmt;

/// A range of a peer's memory that it has given access to: where, how long, and by which key.
///
/// Nothing reaches beyond it: every operation is checked against the length before it is posted. Over tcp a write that fails at
/// its target completes all the same, and the operations behind it never do.
///
/// ```
/// use farreach_fabric::RemoteRegion;
///
/// // What the peer told us.
/// let region = RemoteRegion::new(0, 1 << 20, 0x1234);
/// let page = region.get(4096, 4096).unwrap();
/// assert_eq!((page.address(), page.len()), (4096, 4096));
/// assert!(region.get(1 << 20, 1).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RemoteRegion {
    address: u64,
    len: u64,
    key: u64,
    /// 1 where somebody vouches for it. Of a word's size: what is smaller leaves bytes behind it that are copied along.
    vouched: u64,
}

/// No process has memory at or above this address. Below it, nothing that a target adds to an address wraps around: its region's own
/// address, and the length.
const ADDRESS_END: u64 = 1 << 62;

impl RemoteRegion {
    /// A region as the peer describes it. What would lie at 2^62 or above is cut off: some targets add the length to the address
    /// without looking at the carry, and then write to where the sum does not lead.
    #[inline]
    pub fn new(address: u64, len: u64, key: u64) -> Self {
        let address = address.min(ADDRESS_END);
        Self { address, len: len.min(ADDRESS_END - address), key, vouched: 0 }
    }

    /// The same, to be used with a provider that does not enforce keys. There, what this names is what is read and written, in the
    /// peer's process, which may be our own.
    ///
    /// # Safety
    ///
    /// The peer has exposed this memory, and keeps it exposed until every operation on it is done.
    #[must_use]
    #[inline]
    pub unsafe fn vouched(mut self) -> Self {
        self.vouched = 1;
        self
    }

    /// Whether somebody vouches for it.
    #[inline]
    pub fn is_vouched(self) -> bool {
        self.vouched != 0
    }

    /// The same as a word that is not 0, which is cheaper to combine.
    #[inline(always)]
    pub(crate) fn vouched_word(self) -> u64 {
        self.vouched
    }

    /// The `len` bytes at `offset`, or nothing if it does not have them.
    #[inline]
    pub fn get(self, offset: u64, len: u64) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        Some(Self { address: self.address.checked_add(offset)?, len, ..self })
    }

    /// The address of its first byte, in the peer's words.
    #[inline]
    pub fn address(self) -> u64 {
        self.address
    }

    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty region is of no use, and none is made")]
    #[inline]
    pub fn len(self) -> u64 {
        self.len
    }

    /// The key.
    #[inline]
    pub fn key(self) -> u64 {
        self.key
    }
}

/// Several ranges of a peer's region, all by its key: one operation fills them, or reads them, one after the other.
///
/// It is a list of its own, because an operation that is posted allocates nothing.
///
/// ```
/// use farreach_fabric::{RemoteParts, RemoteRegion};
///
/// let region = RemoteRegion::new(0, 1 << 20, 0x1234);
/// let mut pages = RemoteParts::new(region);
/// assert!(pages.push(8 * 4096, 4096) && pages.push(3 * 4096, 4096));
/// assert_eq!((pages.count(), pages.len()), (2, 8192));
/// assert!(!pages.push(1 << 20, 1), "it lies outside");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RemoteParts {
    region: RemoteRegion,
    /// Addresses and lengths; those behind `count` are empty.
    ranges: [(u64, u64); Self::MAX],
    count: usize,
}

impl RemoteParts {
    /// How many there may be: as many as tcp and shared memory take.
    pub const MAX: usize = 4;

    /// None of this region, yet.
    #[inline]
    pub fn new(region: RemoteRegion) -> Self {
        Self { region, ranges: [(0, 0); Self::MAX], count: 0 }
    }

    /// Adds the `len` bytes at `offset` of the region; `false` if it does not have them, if there are none, or if the list is full.
    #[must_use = "a part that was not added is not written to"]
    pub fn push(&mut self, offset: u64, len: u64) -> bool {
        let part = self.region.get(offset, len).filter(|_| len > 0 && self.count < Self::MAX);
        let Some(part) = part else { return false };
        self.ranges[self.count] = (part.address, len);
        self.count += 1;
        true
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The bytes of all.
    #[inline]
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(_, len)| len).fold(0, |all, len| all.saturating_add(*len))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The region that they are parts of.
    #[inline]
    pub fn region(&self) -> RemoteRegion {
        self.region
    }

    /// Each, with its address and its bytes.
    pub fn iter(&self) -> impl Iterator<Item = RemoteRegion> + '_ {
        self.ranges[..self.count].iter().map(|(address, len)| RemoteRegion {
            address: *address,
            len: *len,
            ..self.region
        })
    }
}

impl fmt::Debug for RemoteParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl fmt::Debug for RemoteRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteRegion({:#x} +{} by {:#x})", self.address, self.len, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_inside_or_is_not_there() {
        let region = RemoteRegion::new(ADDRESS_END - 10, 10, 1);
        assert_eq!(region.get(10, 0).map(RemoteRegion::len), Some(0));
        assert_eq!(region.get(4, 6).map(RemoteRegion::address), Some(ADDRESS_END - 6));
        for (offset, len) in [(0, 11), (10, 1), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(region.get(offset, len), None, "{len} at {offset}");
        }
    }

    #[test]
    fn nothing_lies_where_a_sum_of_addresses_could_wrap() {
        let cases = [
            (ADDRESS_END - 10, 11, 10),
            (ADDRESS_END, 1, 0),
            (u64::MAX - 64, 4096, 0),
            (0, u64::MAX, ADDRESS_END),
        ];
        for (address, len, expected) in cases {
            let region = RemoteRegion::new(address, len, 1);
            assert_eq!(region.len(), expected, "{len} at {address:#x}");
            assert!(region.address() + region.len() <= ADDRESS_END);
        }
    }

    #[test]
    fn a_region_is_vouched_for_or_not_and_so_are_its_parts() {
        let plain = RemoteRegion::new(0, 100, 1);
        // SAFETY: nothing is posted with it.
        let vouched = unsafe { plain.vouched() };
        for (region, word) in [(plain, 0), (vouched, 1)] {
            let part = region.get(10, 10).unwrap();
            assert_eq!((region.is_vouched(), region.vouched_word()), (word == 1, word));
            assert_eq!((part.is_vouched(), part.vouched_word()), (word == 1, word));
        }
    }

    #[test]
    fn parts_are_counted() {
        let mut parts = RemoteParts::new(RemoteRegion::new(0, 100, 1));
        for count in 0..3 {
            assert_eq!((parts.count(), parts.is_empty()), (count, count == 0));
            assert!(parts.push(0, 10));
        }
    }

    #[test]
    fn parts_are_inside_and_no_more_than_there_is_room_for() {
        let mut parts = RemoteParts::new(RemoteRegion::new(1000, 100, 1));
        for (offset, len) in [(90, 11), (101, 1), (u64::MAX, 2), (5, 0)] {
            assert!(!parts.push(offset, len), "{len} at {offset}");
        }
        assert!(parts.is_empty());
        for number in 0..RemoteParts::MAX as u64 {
            assert!(parts.push(90 - 10 * number, 10));
        }
        assert!(!parts.push(0, 1), "it is full");
        let ranges: Vec<_> = parts.iter().map(|part| (part.address(), part.len(), part.key())).collect();
        assert_eq!(ranges, [(1090, 10, 1), (1080, 10, 1), (1070, 10, 1), (1060, 10, 1)]);
        assert_eq!(parts.len(), 40);
    }
}
