//! A peer's memory.

use crate::mr::RemoteKey;

/// A range of a peer's memory that it has given access to: where, how long, and by which key.
///
/// Nothing reaches beyond it: every request is checked against the length before it is posted. The peer's card checks once
/// more, but a request that fails there ends the connection.
///
/// ```
/// use farreach_verbs::mr::RemoteKey;
/// use farreach_verbs::wr::RemoteRange;
///
/// // What the peer told us.
/// let region = RemoteRange::new(0x7f00_0000_0000, 1 << 20, RemoteKey(0x1234));
/// let page = region.get(4096, 4096).unwrap();
/// assert_eq!((page.address(), page.len()), (0x7f00_0000_1000, 4096));
/// assert!(region.get(1 << 20, 1).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRange {
    address: u64,
    len: u64,
    key: RemoteKey,
}

impl RemoteRange {
    /// For requests that go to no memory.
    pub(crate) const NOWHERE: Self = Self { address: 0, len: 0, key: RemoteKey(0) };

    /// A range as the peer describes it. What would lie beyond the last address is cut off, so that no sum of an address and a length
    /// wraps around.
    #[inline]
    pub fn new(address: u64, len: u64, key: RemoteKey) -> Self {
        Self { address, len: len.min(u64::MAX - address), key }
    }

    /// The `len` bytes at `offset`, or nothing if it does not have them.
    #[inline]
    pub fn get(self, offset: u64, len: u64) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        Some(Self { address: self.address.checked_add(offset)?, len, key: self.key })
    }

    /// The address of its first byte, in the peer's words.
    #[inline]
    pub fn address(self) -> u64 {
        self.address
    }

    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty range is of no use, and none is made")]
    #[inline]
    pub fn len(self) -> u64 {
        self.len
    }

    /// The key.
    #[inline]
    pub fn key(self) -> RemoteKey {
        self.key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_sum_of_address_and_length_wraps() {
        let range = RemoteRange::new(u64::MAX - 10, 4096, RemoteKey(1));
        assert_eq!(range.len(), 10);
        assert_eq!(range.get(4, 6).map(RemoteRange::address), Some(u64::MAX - 6));
        for (offset, len) in [(0, 11), (10, 1), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(range.get(offset, len), None, "{len} at {offset}");
        }
    }
}
