//! Memory of peers.

use std::fmt;

/// A range of a peer's memory that it has given access to: address, length and key.
///
/// No operation ends beyond it: each is checked against the length before it is posted. Over tcp, a
/// write that fails at its target still completes, and later operations never do.
///
/// ```
/// use farreach_fabric::RemoteRegion;
///
/// // As the peer described it.
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
    /// 1 if the region is vouched for. It has the size of a word, because a smaller field would
    /// leave padding that is copied along.
    vouched: u64,
}

/// No process has memory at or above this address. Below it, no sum that a target computes from an
/// address wraps around: with its region's own address, and with the length.
const ADDRESS_END: u64 = 1 << 62;

impl RemoteRegion {
    /// Creates a region as the peer describes it. The part at or above 2^62 is cut off: some
    /// targets add the length to the address without checking for overflow, and then write to a
    /// wrong address.
    #[inline]
    pub fn new(address: u64, len: u64, key: u64) -> Self {
        let address = address.min(ADDRESS_END);
        Self { address, len: len.min(ADDRESS_END - address), key, vouched: 0 }
    }

    /// Marks the region for use with a provider that does not enforce keys. With such a provider,
    /// operations access this range of the peer's process directly, which may be this process.
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

    /// Returns `true` if the region is vouched for.
    #[inline]
    pub fn is_vouched(self) -> bool {
        self.vouched != 0
    }

    /// As [`is_vouched`](Self::is_vouched), as a word that is not 0, which is cheaper to combine.
    #[inline(always)]
    pub(crate) fn vouched_word(self) -> u64 {
        self.vouched
    }

    /// Returns the `len` bytes at `offset`, or `None` if they are not within the region.
    #[inline]
    pub fn get(self, offset: u64, len: u64) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        Some(Self { address: self.address.checked_add(offset)?, len, ..self })
    }

    /// Returns the address of its first byte, in the peer's notation.
    #[inline]
    pub fn address(self) -> u64 {
        self.address
    }

    /// Returns its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty region is of no use, and none is made")]
    #[inline]
    pub fn len(self) -> u64 {
        self.len
    }

    /// Returns the key.
    #[inline]
    pub fn key(self) -> u64 {
        self.key
    }
}

/// Several ranges of a peer's region, all with its key. One operation writes or reads them one
/// after the other.
///
/// It has a fixed size, because posting an operation allocates nothing.
///
/// ```
/// use farreach_fabric::{RemoteParts, RemoteRegion};
///
/// let region = RemoteRegion::new(0, 1 << 20, 0x1234);
/// let mut pages = RemoteParts::new(region);
/// assert!(pages.push(8 * 4096, 4096) && pages.push(3 * 4096, 4096));
/// assert_eq!((pages.count(), pages.len()), (2, 8192));
/// assert!(!pages.push(1 << 20, 1), "it is outside of the region");
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RemoteParts {
    region: RemoteRegion,
    /// Addresses and lengths; the entries from `count` on are empty.
    ranges: [(u64, u64); Self::MAX],
    count: usize,
}

impl RemoteParts {
    /// The maximum number of parts: as many as tcp and shared memory support.
    pub const MAX: usize = 4;

    /// Creates an empty list for this region.
    #[inline]
    pub fn new(region: RemoteRegion) -> Self {
        Self { region, ranges: [(0, 0); Self::MAX], count: 0 }
    }

    /// Adds the `len` bytes at `offset` of the region. Returns `false` if they are not within the
    /// region, if `len` is 0, or if the list is full.
    #[must_use = "a part that was not added is not written to"]
    pub fn push(&mut self, offset: u64, len: u64) -> bool {
        let part = self.region.get(offset, len).filter(|_| len > 0 && self.count < Self::MAX);
        let Some(part) = part else { return false };
        self.ranges[self.count] = (part.address, len);
        self.count += 1;
        true
    }

    /// Returns the number of parts.
    #[inline]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of bytes of all parts.
    #[inline]
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(_, len)| len).fold(0, |all, len| all.saturating_add(*len))
    }

    /// Returns `true` if there are no parts.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the region of the parts.
    #[inline]
    pub fn region(&self) -> RemoteRegion {
        self.region
    }

    /// Iterates over the parts.
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
