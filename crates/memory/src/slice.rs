//! The exclusive right to a range of memory.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::range::Range;
use crate::{DomainId, Exposed, Lent, Memory, Shared};

/// The exclusive right to a range of bytes. It derefs to `[u8]`, splits like `BytesMut`, and is
/// `Send`.
///
/// Invariant: no two slices overlap, and none overlaps a [`Shared`], [`Lent`] or [`Exposed`] range.
/// The first slice covers its whole allocation, and every method that makes another range takes the
/// bytes from this one. All other types of this crate rely on that.
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
    /// Returns the first slice of an allocation. It must be called once for each allocation.
    pub(crate) fn whole(memory: Memory) -> Self {
        Self::from_range(Range::whole(memory))
    }

    /// Adds the right to form references to a range. The caller must know that no device and no
    /// peer writes to it.
    #[inline]
    pub(crate) fn from_range(range: Range) -> Self {
        Self { range }
    }

    /// Returns the allocation that contains the slice.
    pub fn memory(&self) -> &Memory {
        self.range.memory()
    }

    /// Returns the offset of the slice in its allocation.
    pub fn offset(&self) -> usize {
        self.range.offset()
    }

    /// Returns the length in bytes.
    // Not by `Deref`: reading the length should not form a reference to the bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of the first byte, as a work request names it.
    #[inline]
    pub fn address(&self) -> NonNull<u8> {
        self.range.address()
    }

    /// Returns the local key under which a domain has registered it, if any.
    #[inline]
    pub fn local_key(&self, domain: DomainId) -> Option<u64> {
        self.range.memory().local_key(domain)
    }

    /// Splits the slice at `at`. It keeps the bytes before `at` and returns the rest.
    ///
    /// # Panics
    ///
    /// Panics if `at` exceeds the length.
    #[must_use = "dropped bytes cannot be used again before the whole allocation is freed"]
    pub fn split_off(&mut self, at: usize) -> Self {
        Self::from_range(self.range.split_off(at))
    }

    /// Splits the slice at `at`. It returns the bytes before `at` and keeps the rest.
    ///
    /// # Panics
    ///
    /// Panics if `at` exceeds the length.
    #[must_use = "dropped bytes cannot be used again before the whole allocation is freed"]
    pub fn split_to(&mut self, at: usize) -> Self {
        let rest = self.split_off(at);
        std::mem::replace(self, rest)
    }

    /// Joins the slice that begins where this one ends. Returns any other slice as the error.
    pub fn unsplit(&mut self, next: Self) -> Result<(), Self> {
        self.range.unsplit(next.range).map_err(Self::from_range)
    }

    /// Returns the vector that the memory was made from ([`Memory::from_vec`]), with its capacity, and
    /// copies nothing. Registrations with devices are ended first.
    ///
    /// Returns the slice if it is not the whole memory, if anything else refers to the memory (a
    /// [`Memory`] handle, another slice, a key of a peer), or if the memory was not made from a vector.
    ///
    /// If a registration cannot be ended, its bytes are leaked and counted
    /// ([`leaked_bytes`](crate::leaked_bytes)), and the returned vector is a copy.
    pub fn into_vec(self) -> Result<Vec<u8>, Self> {
        self.range.into_vec().map_err(Self::from_range)
    }

    /// Reads into the slice until it is full, or until the end of the input. Returns the number of
    /// bytes that were read; the rest of the slice is unchanged.
    ///
    /// This is how a file gets into memory for transfers. Mapping a file is no safe alternative:
    /// whoever can write to the file can change bytes that a `&[u8]` promises not to change, and an
    /// access behind the end of a file that was truncated raises SIGBUS, which ends the process.
    ///
    /// ```
    /// use std::fs::File;
    /// use farreach_memory::Memory;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let path = std::env::temp_dir().join(format!("farreach-read-from-{}", std::process::id()));
    /// # std::fs::write(&path, "weights")?;
    /// let file = File::open(&path)?;
    /// let mut slice = Memory::allocate(file.metadata()?.len() as usize)?;
    /// assert_eq!(slice.read_from(file)?, slice.len());
    /// assert_eq!(&*slice, b"weights");
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_from(&mut self, mut input: impl io::Read) -> io::Result<usize> {
        let len = self.len();
        let mut rest = &mut **self;
        while !rest.is_empty() {
            match input.read(rest) {
                Ok(0) => break,
                Ok(count) => rest = &mut rest[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(len - rest.len())
    }

    /// Makes the slice read-only and clonable.
    pub fn share(self) -> Shared {
        Shared::new(self)
    }

    /// Lends the slice, so that several work requests can hold parts of it. Its bytes are
    /// inaccessible until all parts have been returned.
    pub fn lend(self) -> Lent {
        Lent::new(self.range)
    }

    /// Makes the slice memory that peers may access. No reference to its bytes can exist until no
    /// key to it is left.
    pub fn expose(self) -> Exposed {
        Exposed::new(self.range)
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the allocation (`Range`), which lives as long as the handle
        // that the range holds. Its bytes are initialised: mapped as zeroes, or by the contract of
        // `Memory::from_raw`. Nothing else has a right to them: ranges do not overlap, and only
        // `from_range` turns one into a slice, when no device and no peer writes to it.
        unsafe { std::slice::from_raw_parts(self.address().as_ptr(), self.len()) }
    }
}

impl DerefMut for Slice {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref` for the bytes. `self` is borrowed exclusively, and only the slice
        // of a range forms references into it, so no other reference exists.
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
        // By its offset, it begins where `left` ends.
        let right = Memory::allocate(8192).unwrap().split_off(4096);
        assert_eq!((left.offset() + left.len(), right.len()), (right.offset(), 4096));
        let right = left.unsplit(right).expect_err("it belongs to another allocation");
        assert_eq!((left.len(), right.len()), (4096, 4096));
    }

    #[test]
    #[should_panic(expected = "split at 11 of a slice of 10 bytes")]
    fn a_split_beyond_the_end_panics() {
        let _ = Memory::allocate(10).unwrap().split_off(11);
    }

    /// Returns one byte a call, with interruptions, and fails at its end if it is told to.
    struct Slow {
        bytes: Vec<u8>,
        calls: usize,
        fails: bool,
    }

    impl io::Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.calls += 1;
            match self.bytes.first() {
                _ if self.calls % 2 == 1 => Err(io::ErrorKind::Interrupted.into()),
                None if self.fails => Err(io::ErrorKind::BrokenPipe.into()),
                None => Ok(0),
                Some(first) => {
                    into[0] = *first;
                    self.bytes.remove(0);
                    Ok(1)
                }
            }
        }
    }

    #[test]
    fn what_is_read_fills_the_slice_from_its_beginning() {
        let slow = |len: u8, fails| Slow { bytes: (1..=len).collect(), calls: 0, fails };
        let mut slice = Memory::allocate(4).unwrap();
        assert_eq!(slice.read_from(slow(2, false)).unwrap(), 2);
        assert_eq!(*slice, [1, 2, 0, 0], "the input ended");
        let mut longer = slow(9, true);
        assert_eq!(slice.read_from(&mut longer).unwrap(), 4);
        assert_eq!((&*slice, longer.bytes.len()), (&[1, 2, 3, 4][..], 5), "the slice is full");
        let error = slice.read_from(slow(1, true)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(slice.split_off(4).read_from(slow(1, true)).unwrap(), 0);
    }

    #[test]
    fn memory_is_page_aligned_and_zeroed() {
        let slice = Memory::allocate(100_001).unwrap();
        assert_eq!(slice.address().as_ptr().addr() % 4096, 0);
        assert_eq!(slice.len(), 100_001);
        assert!(slice.iter().all(|byte| *byte == 0));
    }
}
