//! Memory that a peer may touch at any time.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::{Memory, Slice};

/// A slice that a peer may read and write while it is ours, too.
///
/// It never derefs to `[u8]`: a reference promises that nobody writes behind its back, and a peer does. Bytes are copied in and out,
/// each read or written as an atomic one; words may be changed atomically with respect to this process's threads. Whether a
/// card's atomics and a processor's exclude each other depends on the card.
///
/// ```
/// use std::sync::atomic::Ordering;
/// use farreach_memory::Memory;
///
/// let exposed = Memory::allocate(64)?.expose();
/// exposed.write_at(3, b"hello");
/// let mut copy = [0; 5];
/// exposed.read_at(3, &mut copy);
/// assert_eq!(&copy, b"hello");
/// exposed.word_at(8).store(7, Ordering::Release);
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
pub struct Exposed {
    slice: Slice,
}

impl Exposed {
    pub(crate) fn new(slice: Slice) -> Self {
        Self { slice }
    }

    /// The slice again.
    ///
    /// # Safety
    ///
    /// No peer can touch it any more: every key to it is dead.
    pub unsafe fn conceal(self) -> Slice {
        self.slice
    }

    /// The allocation that it is part of.
    pub fn memory(&self) -> &Memory {
        self.slice.memory()
    }

    /// The address of the first byte, as a peer names it.
    pub fn address(&self) -> NonNull<u8> {
        self.slice.address()
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies out what lies at `offset`. Bytes that a peer writes meanwhile may be seen old or new, each by itself.
    ///
    /// # Panics
    ///
    /// If it reaches beyond the end.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = self.byte(offset + index).load(Ordering::Relaxed);
        }
    }

    /// Copies in at `offset`.
    ///
    /// # Panics
    ///
    /// If it reaches beyond the end.
    pub fn write_at(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        for (index, byte) in from.iter().enumerate() {
            self.byte(offset + index).store(*byte, Ordering::Relaxed);
        }
    }

    /// The eight bytes at `offset`, to be read and changed atomically.
    ///
    /// # Panics
    ///
    /// If they reach beyond the end, or their address is not a multiple of eight.
    pub fn word_at(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, size_of::<u64>());
        // SAFETY: the word lies within the slice.
        let word = unsafe { self.address().add(offset) }.cast::<u64>();
        assert!(word.is_aligned(), "a word at {offset}, which is not aligned to eight bytes");
        // SAFETY: valid and aligned for as long as `self` lives, and never reached other than atomically: by us, because
        // no reference to the bytes is ever given, and by peers, whose writes stand for atomic ones.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: every caller has checked that the byte lies within the slice; the rest is as in `word_at`.
        unsafe { AtomicU8::from_ptr(self.address().add(offset).as_ptr()) }
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{len} bytes at {offset} of exposed memory of {} bytes",
            self.len()
        );
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exposed({:?})", self.slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_words_are_the_same_memory() {
        let exposed = Memory::allocate(16).unwrap().expose();
        exposed.word_at(8).store(u64::from_ne_bytes(*b"atomics!"), Ordering::Relaxed);
        let mut copy = [0; 16];
        exposed.read_at(0, &mut copy);
        assert_eq!(&copy[8..], b"atomics!");
        // SAFETY: no key to it was ever made.
        let slice = unsafe { exposed.conceal() };
        assert_eq!(*slice, copy);
    }

    #[test]
    fn nothing_beyond_the_end_is_reached() {
        let exposed = Memory::allocate(16).unwrap().expose();
        let beyond: [&dyn Fn(); 4] = [
            &|| exposed.read_at(16, &mut [0]),
            &|| exposed.write_at(usize::MAX, &[0, 0]),
            &|| _ = exposed.word_at(9),
            &|| _ = exposed.word_at(4),
        ];
        for access in beyond {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(access));
            assert!(caught.is_err());
        }
    }
}
