//! The content of pages: it identifies the origin and the page.

use std::sync::atomic::Ordering;

use farreach_memory::Exposed;

use super::chance::mix;

const WORD: usize = size_of::<u64>();

/// The byte with which users overwrite memory that they have back: a card that still reads it sends
/// this.
pub(super) const WORN: u8 = 0xEE;

/// The layout of pages in a memory. All numbers are multiples of eight.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) page_len: usize,
    pub(super) stride: usize,
    pub(super) offset: usize,
    pub(super) count: usize,
}

impl Layout {
    pub(super) fn start(self, page: usize) -> usize {
        self.offset + page * self.stride
    }

    /// Returns the bytes from the beginning of the memory to the end of the last page.
    pub(super) fn len(self) -> usize {
        self.start(self.count.saturating_sub(1)) + self.page_len
    }
}

/// The content of a page of some origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) tag: u64,
    pub(super) page: u32,
}

impl Content {
    fn word(self, index: usize) -> u64 {
        // The multiplier is odd, so no two words of a page are alike.
        let first = mix(self.tag.rotate_left(32) ^ u64::from(self.page));
        first.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(super) fn fill(self, bytes: &mut [u8]) {
        for (index, word) in bytes.chunks_exact_mut(WORD).enumerate() {
            word.copy_from_slice(&self.word(index).to_ne_bytes());
        }
    }

    pub(super) fn is(self, bytes: &[u8]) -> bool {
        let mut words = bytes.chunks_exact(WORD).enumerate();
        words.all(|(index, word)| word == self.word(index).to_ne_bytes())
    }

    /// Returns how many of the bytes there are its own, in words.
    pub(super) fn bytes_at(self, exposed: &Exposed, offset: usize, len: usize) -> u64 {
        let word = |index: usize| exposed.atomic_at(offset + index * WORD).load(Ordering::Relaxed);
        ((0..len / WORD).filter(|index| word(*index) == self.word(*index)).count() * WORD) as u64
    }

    pub(super) fn is_at(self, exposed: &Exposed, offset: usize, len: usize) -> bool {
        let word = |index: usize| exposed.atomic_at(offset + index * WORD).load(Ordering::Relaxed);
        (0..len / WORD).all(|index| word(index) == self.word(index))
    }
}
