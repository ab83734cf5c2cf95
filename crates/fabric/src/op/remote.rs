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
    is_vouched: bool,
}

impl RemoteRegion {
    /// A region as the peer describes it.
    pub fn new(address: u64, len: u64, key: u64) -> Self {
        Self { address, len, key, is_vouched: false }
    }

    /// The same, to be used with a provider that does not enforce keys. There, what this names is what is read and written, in the
    /// peer's process, which may be our own.
    ///
    /// # Safety
    ///
    /// The peer has exposed this memory, and keeps it exposed until every operation on it is done.
    #[must_use]
    pub unsafe fn vouched(mut self) -> Self {
        self.is_vouched = true;
        self
    }

    /// Whether somebody vouches for it.
    pub fn is_vouched(self) -> bool {
        self.is_vouched
    }

    /// The `len` bytes at `offset`, or nothing if it does not have them.
    pub fn get(self, offset: u64, len: u64) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        Some(Self { address: self.address.checked_add(offset)?, len, ..self })
    }

    /// The address of its first byte, in the peer's words.
    pub fn address(self) -> u64 {
        self.address
    }

    /// Its bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty region is of no use, and none is made")]
    pub fn len(self) -> u64 {
        self.len
    }

    /// The key.
    pub fn key(self) -> u64 {
        self.key
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
        let region = RemoteRegion::new(u64::MAX - 10, 10, 1);
        assert_eq!(region.get(10, 0).map(RemoteRegion::len), Some(0));
        assert_eq!(region.get(4, 6).map(RemoteRegion::address), Some(u64::MAX - 6));
        for (offset, len) in [(0, 11), (10, 1), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(region.get(offset, len), None, "{len} at {offset}");
        }
    }
}
