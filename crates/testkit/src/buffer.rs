//! Memory that a device or another process writes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Zeroed, page-aligned memory that a device or another process may write while this is alive.
///
/// No reference to the bytes is ever created: they are accessed by copies, so that a write from
/// outside never changes referenced memory. A user that registers it with a device must end the
/// registration first.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
}

const PAGE: usize = 4096;

impl Buffer {
    /// Allocates `len` zeroes. `len` must be more than 0.
    pub fn new(len: usize) -> Self {
        assert!(len > 0, "a buffer has bytes");
        let layout = Layout::from_size_align(len, PAGE).expect("a length that fits in memory");
        // SAFETY: the layout has a size.
        let start = unsafe { alloc_zeroed(layout) };
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    /// Returns the number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Returns its beginning, for a call of C.
    pub fn as_ptr(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }

    /// Returns the address of the byte at `offset`.
    pub fn address(&self, offset: usize) -> u64 {
        self.as_ptr().expose_provenance() as u64 + offset as u64
    }

    /// Copies `bytes` to `offset`.
    #[track_caller]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: the range is inside the allocation, which no reference points into.
        unsafe { self.start.add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    }

    /// Returns a copy of `len` bytes at `offset`.
    #[track_caller]
    pub fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        self.check(offset, len);
        // Volatile, because the compiler does not know of writes by a device.
        // SAFETY: the range is inside the allocation, which was zeroed at first.
        (offset..offset + len).map(|index| unsafe { self.start.add(index).read_volatile() }).collect()
    }

    #[track_caller]
    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len()), "{len} bytes at {offset} of {}", self.len());
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and nobody else frees it.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Returns bytes that differ by position and by seed, so that bytes at a wrong place or from a
/// wrong source are detected.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_by_place_and_seed() {
        let all = pattern(1, 2 * PAGE);
        assert_ne!(all[..256], all[256..512]);
        assert_ne!(all[..PAGE], all[PAGE..]);
        assert_ne!(all, pattern(2, 2 * PAGE));
        assert_eq!(all[..PAGE], pattern(1, PAGE));
    }

    #[test]
    fn what_is_written_is_read() {
        let buffer = Buffer::new(PAGE + 1);
        buffer.write(PAGE - 1, b"ab");
        assert_eq!(buffer.read(PAGE - 2, 3), b"\0ab");
        assert_eq!(buffer.address(0) % PAGE as u64, 0);
    }

    #[test]
    #[should_panic(expected = "2 bytes at 7 of 8")]
    fn the_end_is_the_end() {
        Buffer::new(8).read(7, 2);
    }
}
