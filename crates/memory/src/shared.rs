//! The right to read a range of memory, shared by any number of owners.

use std::fmt;
use std::ops::{Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{DomainId, Memory, Slice, bounds};

/// A read-only slice that can be cloned, so that one source can be sent to many peers at once.
///
/// Invariant: the bytes do not change while a `Shared` exists. It contains the [`Slice`], which is
/// the only right to write them.
///
/// ```
/// use farreach_memory::Memory;
///
/// let shared = Memory::allocate(8)?.share();
/// let half = shared.get(..4).unwrap();
/// let shared = shared.try_unshare().expect_err("another part exists");
/// drop(half);
/// let slice = shared.try_unshare().expect("this is the last one");
/// assert_eq!(slice.len(), 8);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Clone)]
pub struct Shared {
    slice: Arc<Slice>,
    // Relative to the slice.
    offset: usize,
    len: usize,
}

impl Shared {
    pub(crate) fn new(slice: Slice) -> Self {
        let len = slice.len();
        Self { slice: Arc::new(slice), offset: 0, len }
    }

    /// Returns the length in bytes.
    // Not by `Deref`: reading the length needs no reference to the bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a part of it, or `None` if the bounds exceed it.
    #[inline]
    pub fn get(&self, range: impl RangeBounds<usize>) -> Option<Self> {
        let part = bounds::within(&range, self.len)?;
        Some(Self { slice: Arc::clone(&self.slice), offset: self.offset + part.start, len: part.len() })
    }

    /// Returns the slice that it was made from if no other `Shared` of it exists, and `self`
    /// otherwise.
    pub fn try_unshare(self) -> Result<Slice, Self> {
        let Self { slice, offset, len } = self;
        Arc::try_unwrap(slice).map_err(|slice| Self { slice, offset, len })
    }

    /// Returns the allocation that contains it.
    pub fn memory(&self) -> &Memory {
        self.slice.memory()
    }

    /// Returns the address of the first byte, as a work request names it.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        // SAFETY: `get` returns no part that exceeds the one it is taken from, so the offset is
        // within the slice, or at its end if the part is empty.
        unsafe { self.slice.address().add(self.offset) }
    }

    /// Returns the offset of the first byte in the allocation.
    pub(crate) fn offset_in_memory(&self) -> usize {
        self.slice.offset() + self.offset
    }

    /// Returns the local key under which a domain has registered it, if any.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        self.slice.local_key(domain)
    }
}

impl Deref for Shared {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.slice[self.offset..self.offset + self.len]
    }
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Slice> for Shared {
    fn from(slice: Slice) -> Self {
        slice.share()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({}..{} of {:?})", self.offset, self.offset + self.len, self.slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts_keep_their_place() {
        let mut slice = Memory::allocate(10).unwrap();
        for (value, byte) in slice.iter_mut().enumerate() {
            *byte = value as u8;
        }
        let tail = slice.split_off(2).share();
        let part = tail.get(1..7).unwrap().get(2..).unwrap();
        assert_eq!(*part, [5, 6, 7, 8]);
        assert_eq!(part.address().as_ptr().addr() - part.memory().start().as_ptr().addr(), 5);
        assert!(part.get(..5).is_none());
        assert_eq!(part.get(4..).unwrap().len(), 0);
    }

    #[test]
    fn a_part_gives_the_whole_slice_back() {
        let shared = Memory::allocate(10).unwrap().share();
        let part = shared.get(3..5).unwrap();
        drop(shared);
        assert_eq!(part.try_unshare().unwrap().len(), 10);
    }
}
