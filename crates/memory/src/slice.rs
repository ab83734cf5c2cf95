//! The exclusive right to a range of memory.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::range::Range;
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
    range: Range,
}

impl Slice {
    /// The first slice of an allocation. It must be the only one made so.
    pub(crate) fn whole(memory: Memory) -> Self {
        Self::from_range(Range::whole(memory))
    }

    /// The right to references as well, for who has the range and knows that no card and no peer writes to it.
    #[inline]
    pub(crate) fn from_range(range: Range) -> Self {
        Self { range }
    }

    /// The allocation that it is part of.
    pub fn memory(&self) -> &Memory {
        self.range.memory()
    }

    /// Where it begins in its allocation.
    pub fn offset(&self) -> usize {
        self.range.offset()
    }

    /// Its bytes.
    // Not by `Deref`: asking for the length forms no reference to the bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the first byte, as a request names it.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        self.range.address()
    }

    /// The local key under which a domain has it registered, if it has.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        self.range.memory().local_key(domain)
    }

    /// Splits at `at`: this slice keeps what lies before, and the rest is returned.
    ///
    /// # Panics
    ///
    /// If `at` lies beyond the end.
    #[must_use = "what is split off and dropped cannot be had again before the whole allocation is freed"]
    pub fn split_off(&mut self, at: usize) -> Self {
        Self::from_range(self.range.split_off(at))
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
        self.range.unsplit(next.range).map_err(Self::from_range)
    }

    /// Freezes it: read-only from now on, and in as many hands as wanted.
    pub fn share(self) -> Shared {
        Shared::new(self)
    }

    /// Puts it in flight in parts: requests take them along, and nobody can name the bytes until all have come back.
    pub fn lend(self) -> Lent {
        Lent::new(self.range)
    }

    /// Makes it memory that a peer may touch: no reference to its bytes can exist until no key to it is left.
    pub fn expose(self) -> Exposed {
        Exposed::new(self.range)
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the allocation (`Range`), which lives as long as the handle on it inside. Its bytes are
        // initialised: mapped as zeroes, or by the contract of `Memory::from_raw`. Nobody else has a right to them: ranges do not
        // overlap, and only `from_range` makes a slice of one.
        unsafe { std::slice::from_raw_parts(self.address().as_ptr(), self.len()) }
    }
}

impl DerefMut for Slice {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: what `deref` argues for the bytes holds here too. `self` is borrowed exclusively, and references into a range are formed by its slice
        // alone, so that there is no other one.
        unsafe { std::slice::from_raw_parts_mut(self.address().as_ptr(), self.len()) }
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
        write!(f, "Slice({:?})", self.range)
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
        // It begins where `left` ends, by its offset.
        let right = Memory::allocate(8192).unwrap().split_off(4096);
        assert_eq!((left.offset() + left.len(), right.len()), (right.offset(), 4096));
        let right = left.unsplit(right).expect_err("it is of another allocation");
        assert_eq!((left.len(), right.len()), (4096, 4096));
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
