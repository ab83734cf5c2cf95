//! Memory that a peer may touch at any time.

use std::fmt;
use std::ops;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::key_guard::{KeyGuard, Keys};
use crate::range::Range;
use crate::{Memory, Slice};

const WORD: usize = size_of::<u64>();

/// A slice that a peer may read and write while it is ours, too.
///
/// It never derefs to `[u8]`: a reference promises that nobody writes behind its back, and a peer does. Bytes are copied in and out;
/// words may be changed atomically with respect to this process's threads. Whether a card's atomics and a processor's exclude each
/// other depends on the card.
///
/// It counts its keys: each key by which a peer reaches it has a [`KeyGuard`], and [`try_into_slice`](Self::try_into_slice) succeeds
/// when every one of them has been ended by a proof that peers no longer use it.
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
/// exposed.atomic_at(8).store(7, Ordering::Release);
///
/// let slice = exposed.try_into_slice().expect("no key was made");
/// assert_eq!(slice[8..16], 7_u64.to_ne_bytes());
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
pub struct Exposed {
    range: Range,
    keys: Arc<Keys>,
}

impl Exposed {
    pub(crate) fn new(range: Range) -> Self {
        Self { range, keys: Arc::default() }
    }

    /// The slice again, if no key to it is left; otherwise itself.
    pub fn try_into_slice(self) -> Result<Slice, Self> {
        // Nobody makes a key meanwhile: that takes a reference to what is owned here.
        if self.keys() > 0 {
            return Err(self);
        }
        Ok(Slice::from_range(self.range))
    }

    /// The slice again, whatever keys are left.
    ///
    /// # Safety
    ///
    /// No peer and no card reads or writes it any more, by any key that was made.
    pub unsafe fn into_slice_unchecked(self) -> Slice {
        Slice::from_range(self.range)
    }

    /// How many keys peers may still use.
    pub fn keys(&self) -> usize {
        self.keys.count()
    }

    /// What stands for one more key: for the libraries that make keys. They take it before the key exists.
    pub fn guard_key(&self) -> KeyGuard {
        KeyGuard::new(&self.keys, self.memory(), self.range.offset(), self.len())
    }

    /// The allocation that it is part of.
    pub fn memory(&self) -> &Memory {
        self.range.memory()
    }

    /// The address of the first byte, as a peer names it.
    pub fn address(&self) -> NonNull<u8> {
        self.range.address()
    }

    /// Its bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies all bytes out, as [`read_at`](Self::read_at) does.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.read_at(0, &mut bytes);
        bytes
    }

    /// Copies out what lies at `offset`. What a peer writes meanwhile may be seen old or new, each byte by itself.
    ///
    /// # Panics
    ///
    /// If it reaches beyond the end.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) {
        for (place, part) in self.places(offset, into.len()) {
            match place {
                Place::Byte(byte) => into[part.start] = byte.load(Ordering::Relaxed),
                Place::Word(word, first) => {
                    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
                    let len = part.len();
                    into[part].copy_from_slice(&bytes[first..first + len]);
                }
            }
        }
    }

    /// Copies in at `offset`. Bytes beside them stay as they are, also where a peer or another thread writes those.
    ///
    /// # Panics
    ///
    /// If it reaches beyond the end.
    pub fn write_at(&self, offset: usize, from: &[u8]) {
        for (place, part) in self.places(offset, from.len()) {
            match place {
                Place::Byte(byte) => byte.store(from[part.start], Ordering::Relaxed),
                Place::Word(word, first) => change(word, first, &from[part]),
            }
        }
    }

    /// The eight bytes at `offset`, to be read and changed atomically.
    ///
    /// # Panics
    ///
    /// If they reach beyond the end, or their address is not a multiple of eight.
    pub fn atomic_at(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, WORD);
        match self.place(offset) {
            Place::Word(word, 0) => word,
            _ => panic!("a word at {offset}, which is not aligned to eight bytes"),
        }
    }

    /// The places that hold `len` bytes from `offset` on, each with those of the `len` bytes that are in it.
    fn places(&self, offset: usize, len: usize) -> impl Iterator<Item = (Place<'_>, ops::Range<usize>)> {
        self.check(offset, len);
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == len {
                return None;
            }
            let place = self.place(offset + done);
            let start = done;
            done = len.min(done + place.bytes_left());
            Some((place, start..done))
        })
    }

    /// The place that holds the byte at `offset`, which must be within.
    ///
    /// Bytes of a whole aligned word within the memory are only reached by that word, and the others one by one: atomics of different
    /// sizes over one byte are undefined.
    fn place(&self, offset: usize) -> Place<'_> {
        // SAFETY: `atomic_at` and `places`, the only callers, have asked `check` whether the offset is below the length of the range, which lies in one allocation.
        let byte = unsafe { self.address().add(offset) };
        let first = byte.addr().get() % WORD;
        if offset < first || self.len() - (offset - first) < WORD {
            // SAFETY: the range keeps its pages mapped as long as `self` lives. The byte is never reached otherwise: by us, because this place is the only one
            // for this byte and no reference to the bytes is ever given; by peers, whose accesses stand for atomic ones.
            return Place::Byte(unsafe { AtomicU8::from_ptr(byte.as_ptr()) });
        }
        // SAFETY: the word begins at `offset - first`, which is not before the memory's start, and eight bytes are there: asked above.
        let word = unsafe { byte.sub(first) }.cast::<u64>();
        // SAFETY: aligned, because `first` is what its address has beyond a multiple of eight; the rest is as for a byte.
        Place::Word(unsafe { AtomicU64::from_ptr(word.as_ptr()) }, first)
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

/// The atomic that a byte of exposed memory belongs to.
enum Place<'a> {
    /// A byte that no whole aligned word of the memory has.
    Byte(&'a AtomicU8),
    /// A word, and which of its bytes it is.
    Word(&'a AtomicU64, usize),
}

impl Place<'_> {
    /// The bytes of it, from the one that was asked for on.
    fn bytes_left(&self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::Word(_, first) => WORD - first,
        }
    }
}

/// Changes bytes of a word, and leaves the others as they are at that moment.
fn change(word: &AtomicU64, first: usize, from: &[u8]) {
    if let Ok(whole) = from.try_into() {
        return word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
    }
    let with = |before: u64| {
        let mut bytes = before.to_ne_bytes();
        bytes[first..first + from.len()].copy_from_slice(from);
        Some(u64::from_ne_bytes(bytes))
    };
    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).expect("it always has a new value");
}

impl From<Slice> for Exposed {
    fn from(slice: Slice) -> Self {
        slice.expose()
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exposed({:?}, {} keys)", self.range, self.keys())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_words_are_the_same_memory() {
        let exposed = Memory::allocate(16).unwrap().expose();
        exposed.atomic_at(8).store(u64::from_ne_bytes(*b"atomics!"), Ordering::Relaxed);
        let mut copy = [0; 16];
        exposed.read_at(0, &mut copy);
        assert_eq!(&copy[8..], b"atomics!");
        assert_eq!(*exposed.try_into_slice().unwrap(), copy);
    }

    /// Every start, length and part of memory of up to three words, against the same in a vector.
    #[test]
    fn copies_change_what_they_name_and_nothing_beside_it() {
        // Miri is slow: a few that have a head, a whole word and a tail.
        let (starts, lens) = if cfg!(miri) { (4..6, 15..17) } else { (0..8, 1..25) };
        for (start, len) in starts.flat_map(|start| lens.clone().map(move |len| (start, len))) {
            for (offset, part) in
                (0..len).flat_map(|offset| (0..=len - offset).map(move |part| (offset, part)))
            {
                let mut slice = Memory::allocate(32).unwrap();
                slice.fill(0xee);
                let mut middle = slice.split_off(start);
                let behind = middle.split_off(len);
                let exposed = middle.expose();
                let written: Vec<u8> = (1..=part as u8).collect();
                exposed.write_at(offset, &written);

                let mut copy = vec![0; part];
                exposed.read_at(offset, &mut copy);
                assert_eq!(copy, written);
                let mut expected = vec![0xee; len];
                expected[offset..offset + part].copy_from_slice(&written);
                assert_eq!(
                    *exposed.try_into_slice().unwrap(),
                    expected,
                    "{part} at {offset} of {start}+{len}"
                );
                assert!(slice.iter().chain(behind.iter()).all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn bytes_of_a_whole_aligned_word_are_reached_by_the_word_and_others_one_by_one() {
        for (start, len) in (0..8).flat_map(|start| (1..26).map(move |len| (start, len))) {
            let mut exposed = Memory::allocate(40).unwrap().split_off(start);
            drop(exposed.split_off(len));
            let exposed = exposed.expose();
            for offset in 0..len {
                // Memory begins at a page, so that `start` tells how the address is aligned.
                let word = (start + offset) / WORD * WORD;
                let is_whole = word >= start && word + WORD <= start + len;
                match exposed.place(offset) {
                    Place::Word(_, first) => assert!(is_whole && first == start + offset - word),
                    Place::Byte(_) => assert!(!is_whole, "{offset} of {start}+{len}"),
                }
            }
        }
        let exposed = Memory::allocate(16).unwrap().expose();
        assert!(!exposed.is_empty() && exposed.atomic_at(0).load(Ordering::Relaxed) == 0);
        assert!(Memory::allocate(16).unwrap().split_off(16).expose().is_empty());
    }

    /// Under Miri, this is what finds a reference to the bytes, or atomics of several sizes.
    #[test]
    fn threads_read_and_write_the_same_bytes() {
        let mut slice = Memory::allocate(64).unwrap();
        let exposed = slice.split_off(3).expose();
        std::thread::scope(|scope| {
            for thread in 0..3_u8 {
                let exposed = &exposed;
                scope.spawn(move || {
                    let mut copy = [0; 11];
                    for round in 0..20 {
                        exposed.write_at(usize::from(thread) + 11 * (round % 3), &[thread; 11]);
                        exposed.read_at(usize::from(thread), &mut copy);
                        exposed.atomic_at(13).fetch_add(1, Ordering::Relaxed);
                        assert_eq!(exposed.len(), 61);
                    }
                });
            }
        });
        exposed.try_into_slice().unwrap();
    }

    #[test]
    fn a_part_of_a_word_takes_nothing_from_who_writes_the_rest() {
        let exposed = Memory::allocate(8).unwrap().expose();
        std::thread::scope(|scope| {
            for byte in 0..2_u8 {
                let exposed = &exposed;
                scope.spawn(move || {
                    for value in 0..if cfg!(miri) { 50 } else { 10_000_u32 } {
                        let value = [value as u8];
                        exposed.write_at(usize::from(byte), &value);
                        let mut back = [0];
                        exposed.read_at(usize::from(byte), &mut back);
                        assert_eq!(back, value, "the other thread's byte was written over this one");
                    }
                });
            }
        });
    }

    #[test]
    fn nothing_beyond_the_end_is_reached() {
        let mut slice = Memory::allocate(24).unwrap();
        let inside = {
            let mut rest = slice.split_off(4);
            let _behind = rest.split_off(16);
            rest.expose()
        };
        let exposed = Memory::allocate(16).unwrap().expose();
        let beyond: [&dyn Fn(); 7] = [
            &|| exposed.read_at(16, &mut [0]),
            &|| exposed.write_at(usize::MAX, &[0, 0]),
            &|| _ = exposed.atomic_at(9),
            &|| _ = exposed.atomic_at(4),
            // Aligned, and not whole within: 4..20 of the allocation has one word, at 8.
            &|| _ = inside.atomic_at(12),
            &|| _ = inside.atomic_at(0),
            &|| inside.read_at(15, &mut [0; 2]),
        ];
        for access in beyond {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(access));
            assert!(caught.is_err());
        }
        _ = inside.atomic_at(4);
    }
}
