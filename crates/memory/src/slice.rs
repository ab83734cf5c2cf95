//! The exclusive right to a range of memory.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::{DomainId, Exposed, Lent, Memory, Shared};

/// The exclusive right to a range of bytes: it derefs to `[u8]`, splits like `BytesMut`, and is `Send`.
///
/// No two slices overlap, and none overlaps a [`Shared`] or [`Exposed`] one: each begins as the whole of its allocation, and every
/// method that makes another one takes the bytes from this one. That is the rule on which everything else relies.
///
/// ```
/// use farreach_memory::Memory;
///
/// let mut slice = Memory::allocate(100)?;
/// slice.fill(7);
/// let mut rest = slice.split_off(60);
/// rest[0] = 8;
/// assert_eq!((slice.len(), slice[59], rest[0]), (60, 7, 8));
/// slice.unsplit(rest).expect("they are neighbours");
/// assert_eq!(slice.len(), 100);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
pub struct Slice {
    memory: Memory,
    offset: usize,
    len: usize,
}

impl Slice {
    /// The first slice of an allocation. It must be the only one made so.
    pub(crate) fn whole(memory: Memory) -> Self {
        let len = memory.len();
        Self { memory, offset: 0, len }
    }

    /// The allocation that it is part of.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Where it begins in its allocation.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The address of the first byte, as a request names it.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        // SAFETY: the offset is within the allocation, or one past its end for an empty slice.
        unsafe { self.memory.start().add(self.offset) }
    }

    /// The local key under which a domain has it registered, if it has.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        self.memory.local_key(domain)
    }

    /// Splits at `at`: this slice keeps what lies before, and the rest is returned.
    ///
    /// # Panics
    ///
    /// If `at` lies beyond the end.
    #[must_use = "what is split off and dropped cannot be had again before the whole allocation is freed"]
    pub fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "split at {at} of a slice of {} bytes", self.len);
        let rest = Self { memory: self.memory.clone(), offset: self.offset + at, len: self.len - at };
        self.len = at;
        rest
    }

    /// Splits at `at`: what lies before is returned, and this slice keeps the rest.
    ///
    /// # Panics
    ///
    /// If `at` lies beyond the end.
    #[must_use = "what is split off and dropped cannot be had again before the whole allocation is freed"]
    pub fn split_to(&mut self, at: usize) -> Self {
        let rest = self.split_off(at);
        std::mem::replace(self, rest)
    }

    /// Joins the slice that begins where this one ends. Any other one is handed back.
    pub fn unsplit(&mut self, next: Self) -> Result<(), Self> {
        if !self.memory.is_same(&next.memory) || next.offset != self.offset + self.len {
            return Err(next);
        }
        self.len += next.len;
        Ok(())
    }

    /// Freezes it: read-only from now on, and in as many hands as wanted.
    pub fn share(self) -> Shared {
        Shared::new(self)
    }

    /// Puts it in flight in parts: requests take them along, and nobody can name the bytes until all have come back.
    pub fn lend(self) -> Lent {
        Lent::new(self)
    }

    /// Makes it memory that a peer may touch: no reference to its bytes can exist until it is concealed again.
    pub fn expose(self) -> Exposed {
        Exposed::new(self)
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the allocation, which lives as long as this handle on it; its bytes were zeroed when it was
        // mapped (or are the caller's word), and nobody else has a right to them.
        unsafe { std::slice::from_raw_parts(self.address().as_ptr(), self.len) }
    }
}

impl DerefMut for Slice {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and this slice is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address().as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for Slice {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({}..{} of {})", self.offset, self.offset + self.len, self.memory.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_moves_the_bytes_and_joining_brings_them_back() {
        let mut slice = Memory::allocate(10).unwrap();
        for (value, byte) in slice.iter_mut().enumerate() {
            *byte = value as u8;
        }
        let mut middle = slice.split_off(3);
        let tail = middle.split_off(4);
        assert_eq!((&*slice, &*middle, &*tail), (&[0, 1, 2][..], &[3, 4, 5, 6][..], &[7, 8, 9][..]));

        let tail = slice.unsplit(tail).expect_err("they do not touch");
        slice.unsplit(middle).unwrap();
        slice.unsplit(tail).unwrap();
        assert_eq!(*slice, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let head = slice.split_to(2);
        assert_eq!((&*head, slice.offset(), slice[0]), (&[0, 1][..], 2, 2));
    }

    #[test]
    fn neighbours_of_another_allocation_do_not_join() {
        let mut left = Memory::allocate(4096).unwrap();
        let right = Memory::allocate(4096).unwrap();
        let right = left.unsplit(right).unwrap_err();
        assert_eq!(right.len(), 4096);
    }

    #[test]
    #[should_panic(expected = "split at 11 of a slice of 10 bytes")]
    fn a_split_beyond_the_end_panics() {
        let _ = Memory::allocate(10).unwrap().split_off(11);
    }

    #[test]
    fn memory_is_page_aligned_and_zeroed() {
        let slice = Memory::allocate(100_001).unwrap();
        assert_eq!(slice.address().as_ptr().addr() % 4096, 0);
        assert_eq!(slice.len(), 100_001);
        assert!(slice.iter().all(|byte| *byte == 0));
    }
}
