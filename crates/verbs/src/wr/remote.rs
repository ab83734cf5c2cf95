//! A range of a peer's memory.

use crate::mr::RemoteKey;

/// A range of a peer's memory that the peer has given access to: address, length and key.
///
/// Every work request is checked against the length before it is posted. The peer's device checks
/// it too, but a work request that fails there ends the connection.
///
/// ```
/// use farreach_verbs::mr::RemoteKey;
/// use farreach_verbs::wr::RemoteRange;
///
/// // Received from the peer.
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
    /// The range of work requests that access no remote memory.
    pub(crate) const NOWHERE: Self = Self { address: 0, len: 0, key: RemoteKey(0) };

    /// Creates a range as the peer describes it. It is truncated at the last address, so that no
    /// sum of an address and a length overflows.
    #[inline]
    pub fn new(address: u64, len: u64, key: RemoteKey) -> Self {
        Self { address, len: len.min(u64::MAX - address), key }
    }

    /// Returns the `len` bytes at `offset`, or `None` if they exceed the range.
    #[inline]
    pub fn get(self, offset: u64, len: u64) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        Some(Self { address: self.address.checked_add(offset)?, len, key: self.key })
    }

    /// Returns the address of the first byte, as the peer names it.
    #[inline]
    pub fn address(self) -> u64 {
        self.address
    }

    /// Returns the length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty range is of no use, and none is made")]
    #[inline]
    pub fn len(self) -> u64 {
        self.len
    }

    /// Returns the key.
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
