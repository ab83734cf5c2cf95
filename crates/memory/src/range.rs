//! An exclusive range of an allocation, from which no reference can be formed.
//!
//! Invariant: no two ranges of an allocation overlap.

use std::fmt;
use std::ptr::NonNull;

use crate::Memory;

/// A range of bytes that no other `Range` overlaps. Each begins as the whole allocation, and is
/// only ever divided, or joined with its neighbour.
///
/// It does not deref. [`Slice`](crate::Slice) adds that. [`Lent`](crate::Lent) and
/// [`Exposed`](crate::Exposed), whose bytes a device or a peer writes, hold the range itself, so
/// that no reference to those bytes can be formed by mistake.
pub(crate) struct Range {
    memory: Memory,
    offset: usize,
    len: usize,
}

impl Range {
    /// Returns the range of a whole allocation. It must be called once for each allocation.
    pub(crate) fn whole(memory: Memory) -> Self {
        let len = memory.len();
        Self { memory, offset: 0, len }
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn address(&self) -> NonNull<u8> {
        // SAFETY: the offset is within the allocation, or at its end if the range is empty: `whole`
        // starts at 0, and `split_off` moves the offset by at most the length.
        unsafe { self.memory.start().add(self.offset) }
    }

    /// Keeps the bytes before `at`, and returns the rest.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split at {at} of a slice of {} bytes", self.len);
        let rest = Self { memory: self.memory.clone(), offset: self.offset + at, len: self.len - at };
        self.len = at;
        rest
    }

    /// Returns the vector that the allocation was made from, if this range covers all of it and nothing
    /// else refers to it.
    pub(crate) fn into_vec(self) -> Result<Vec<u8>, Self> {
        if self.len != self.memory.len() {
            return Err(self);
        }
        let Self { memory, offset, len } = self;
        memory.into_vec().map_err(|memory| Self { memory, offset, len })
    }

    /// Joins the range that begins where this one ends in the same allocation. Returns any other
    /// range.
    pub(crate) fn unsplit(&mut self, next: Self) -> Result<(), Self> {
        if !self.memory.is_same(&next.memory) || next.offset != self.offset + self.len {
            return Err(next);
        }
        self.len += next.len;
        Ok(())
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{} of {}", self.offset, self.offset + self.len, self.memory.len())
    }
}
