//! Memory that peers may read and write at any time.
//!
//! Invariant: no reference to the bytes exists; they are accessed by atomics. Each byte is always
//! accessed by an atomic of the same size and place (`Exposed::place`).

use std::fmt;
use std::ops;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::key_guard::{ExchangingError, KeyGuard, Keys};
use crate::range::Range;
use crate::{Memory, Shared, Slice};

const WORD: usize = size_of::<u64>();

/// Memory that peers may read and write while this process uses it too.
///
/// It does not deref to `[u8]`: a reference asserts that nothing else changes the bytes, and a peer
/// may. Bytes are copied in and out; aligned words can be changed atomically with respect to the
/// threads of this process. Whether a device's atomics exclude the processor's depends on the
/// device.
///
/// Each key by which a peer reaches the memory has a [`KeyGuard`], and the guards are counted.
/// [`try_into_slice`](Self::try_into_slice) succeeds when every guard has been ended with a proof
/// that no peer can use its key.
///
/// It can also be made of [`Shared`] memory (`From`). Peers may then only read: a key for anything else
/// gets no guard. The bytes stay readable by `Deref` of the `Shared`, which is not unique as long as
/// this value or a key to it exists.
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
    bytes: Bytes,
    keys: Arc<Keys>,
}

/// The bytes that are exposed.
enum Bytes {
    /// Bytes that nobody else owns. Peers and the owner may change them.
    Own(Range),
    /// Bytes that nobody changes.
    Shared(Shared),
}

/// What peers may do with a key.
///
/// ```
/// use farreach_memory::{Exposed, KeyAccess, Memory};
///
/// let exposed = Exposed::from(Memory::allocate(4096)?.share());
/// assert!(exposed.guard_key(KeyAccess::Write).is_err());
/// # Ok::<(), farreach_memory::AllocateError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAccess {
    /// Peers only read.
    Read,
    /// Peers may change the memory.
    Write,
}

/// The error of a key by which peers could change [`Shared`] memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("shared memory can be exposed for reading only")]
pub struct ReadOnlyError;

impl ReadOnlyError {
    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        "give peers only the right to read, or expose a slice"
    }
}

/// The error of a key that cannot be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Peers could change shared memory by it.
    #[error(transparent)]
    ReadOnly(#[from] ReadOnlyError),
    /// The pages are being exchanged.
    #[error(transparent)]
    Exchanging(#[from] ExchangingError),
}

impl KeyError {
    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::ReadOnly(error) => error.fix(),
            Self::Exchanging(error) => error.fix(),
        }
    }
}

impl Exposed {
    pub(crate) fn new(range: Range) -> Self {
        Self { bytes: Bytes::Own(range), keys: Arc::default() }
    }

    /// Returns `true` if it was made of [`Shared`] memory: nobody may change it.
    pub fn is_read_only(&self) -> bool {
        matches!(self.bytes, Bytes::Shared(_))
    }

    /// Returns whether the owner has had a reference to an atomic of the memory
    /// ([`atomic_at`](Self::atomic_at)). What it changes by it could be lost while pages are
    /// [exchanged](crate::Exchange), so none are as long as it may have the reference.
    pub fn has_atomics(&self) -> bool {
        self.keys.has_atomics()
    }

    /// Returns whether the pages are being [exchanged](crate::Exchange). No key can be made meanwhile.
    pub fn is_exchanging(&self) -> bool {
        self.keys.is_exchanging()
    }

    /// Returns the slice if no key to the memory is left, and `self` otherwise. Memory that was made of
    /// [`Shared`] is returned as it is: [`Shared::try_unshare`] returns its slice.
    pub fn try_into_slice(self) -> Result<Slice, Self> {
        // No key can be made meanwhile: `guard_key` borrows the `Exposed` that is owned here, and
        // `KeyGuard::another` needs a guard, of which none exists at zero.
        if self.keys() > 0 {
            return Err(self);
        }
        match self.bytes {
            Bytes::Own(range) => Ok(Slice::from_range(range)),
            Bytes::Shared(_) => Err(self),
        }
    }

    /// Returns the slice without checking for keys.
    ///
    /// # Panics
    ///
    /// Panics if it was made of [`Shared`] memory.
    ///
    /// # Safety
    ///
    /// No peer and no device reads or writes the memory any more, by any key that was made.
    pub unsafe fn into_slice_unchecked(self) -> Slice {
        self.keys.note_slice();
        match self.bytes {
            Bytes::Own(range) => Slice::from_range(range),
            Bytes::Shared(_) => panic!("shared memory is no slice: `Shared::try_unshare` returns it"),
        }
    }

    /// Returns the number of keys that peers may still use.
    pub fn keys(&self) -> usize {
        self.keys.count()
    }

    /// Returns a guard for one more key. It is meant for libraries that make keys; they must take
    /// the guard before the key exists, with the access that the key gives.
    pub fn guard_key(&self, access: KeyAccess) -> Result<KeyGuard, KeyError> {
        if self.is_read_only() && access == KeyAccess::Write {
            return Err(ReadOnlyError.into());
        }
        let (memory, offset, len) = self.place_in_memory();
        Ok(KeyGuard::new(&self.keys, memory, offset, len)?)
    }

    /// Returns the allocation, the offset of the range in it, and the length of the range.
    pub(crate) fn place_in_memory(&self) -> (&Memory, usize, usize) {
        let (memory, offset) = match &self.bytes {
            Bytes::Own(range) => (range.memory(), range.offset()),
            Bytes::Shared(shared) => (shared.memory(), shared.offset_in_memory()),
        };
        (memory, offset, self.len())
    }

    /// Returns the allocation that contains the memory.
    pub fn memory(&self) -> &Memory {
        match &self.bytes {
            Bytes::Own(range) => range.memory(),
            Bytes::Shared(shared) => shared.memory(),
        }
    }

    /// Returns the address of the first byte, as a peer names it.
    pub fn address(&self) -> NonNull<u8> {
        match &self.bytes {
            Bytes::Own(range) => range.address(),
            Bytes::Shared(shared) => shared.address(),
        }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match &self.bytes {
            Bytes::Own(range) => range.len(),
            Bytes::Shared(shared) => shared.len(),
        }
    }

    /// Returns `true` if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies all bytes out, in the same way as [`read_at`](Self::read_at).
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.read_at(0, &mut bytes);
        bytes
    }

    /// Copies bytes out, from `offset` on. For bytes that a peer writes meanwhile, each byte is
    /// either the old or the new one, independently of the others.
    ///
    /// # Panics
    ///
    /// Panics if the range exceeds the memory.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) {
        if let Bytes::Shared(shared) = &self.bytes {
            self.check(offset, into.len());
            // References to shared bytes exist, and nobody changes them: no atomics.
            into.copy_from_slice(&shared[offset..offset + into.len()]);
            return;
        }
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

    /// Copies bytes in, from `offset` on. Neighbouring bytes are not changed, even if a peer or
    /// another thread writes to them at the same time.
    ///
    /// # Panics
    ///
    /// Panics if the range exceeds the memory, or if it was made of [`Shared`] memory.
    pub fn write_at(&self, offset: usize, from: &[u8]) {
        self.keys.write(|| {
            for (place, part) in self.places(offset, from.len()) {
                match place {
                    Place::Byte(byte) => byte.store(from[part.start], Ordering::Relaxed),
                    Place::Word(word, first) => change(word, first, &from[part]),
                }
            }
        });
    }

    /// Returns the eight bytes at `offset` as an atomic. The first call waits while the pages are being
    /// [exchanged](Self::is_exchanging), about a second for a GiB.
    ///
    /// # Panics
    ///
    /// Panics if the eight bytes exceed the memory, if their address is not a multiple of eight, or if
    /// it was made of [`Shared`] memory.
    pub fn atomic_at(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, WORD);
        self.keys.note_atomic();
        match self.place(offset) {
            Place::Word(word, 0) => word,
            _ => panic!("the word at offset {offset} is not aligned to eight bytes"),
        }
    }

    /// Returns the atomics that hold the `len` bytes from `offset` on, each with the subrange of
    /// `0..len` that it holds.
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

    /// Returns the atomic that holds the byte at `offset`, which must be within the memory.
    ///
    /// Invariant: bytes of an aligned word that lies wholly within the memory are accessed only
    /// through that word, and all other bytes one by one. Concurrent atomic accesses of different
    /// sizes to one byte are undefined behaviour.
    fn place(&self, offset: usize) -> Place<'_> {
        assert!(!self.is_read_only(), "shared memory is exposed for reading only");
        // SAFETY: the only callers, `atomic_at` and `places`, have checked (`check`) that the
        // offset is below the length of the range, which lies within one allocation.
        let byte = unsafe { self.address().add(offset) };
        let first = byte.addr().get() % WORD;
        if offset < first || self.len() - (offset - first) < WORD {
            // SAFETY: the range keeps its pages mapped while `self` lives. The byte has no other
            // kind of access: in this process, `place` maps each byte to this atomic alone and no
            // reference to the bytes is handed out; accesses by peers count as atomic.
            return Place::Byte(unsafe { AtomicU8::from_ptr(byte.as_ptr()) });
        }
        // SAFETY: the word begins at `offset - first`, which is not before the start of the memory,
        // and eight bytes follow: both are checked above.
        let word = unsafe { byte.sub(first) }.cast::<u64>();
        // SAFETY: the address is aligned, because `first` is its remainder modulo eight. The rest
        // is as for a byte.
        Place::Word(unsafe { AtomicU64::from_ptr(word.as_ptr()) }, first)
    }

    fn check(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{len} bytes at offset {offset} exceed exposed memory of {} bytes",
            self.len()
        );
    }
}

/// The atomic that a byte of exposed memory is accessed by.
enum Place<'a> {
    /// A byte that is part of no whole aligned word of the memory.
    Byte(&'a AtomicU8),
    /// A word, and the index of the byte within it.
    Word(&'a AtomicU64, usize),
}

impl Place<'_> {
    /// Returns the number of bytes from the requested one to the end of the atomic.
    fn bytes_left(&self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::Word(_, first) => WORD - first,
        }
    }
}

/// Changes some bytes of a word and leaves the others at their current value.
fn change(word: &AtomicU64, first: usize, from: &[u8]) {
    if let Ok(whole) = from.try_into() {
        return word.store(u64::from_ne_bytes(whole), Ordering::Relaxed);
    }
    let with = |before: u64| {
        let mut bytes = before.to_ne_bytes();
        bytes[first..first + from.len()].copy_from_slice(from);
        Some(u64::from_ne_bytes(bytes))
    };
    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with)
        .expect("the closure always returns a value");
}

impl From<Slice> for Exposed {
    fn from(slice: Slice) -> Self {
        slice.expose()
    }
}

impl From<Shared> for Exposed {
    fn from(shared: Shared) -> Self {
        // The keys hold it, too: the bytes stay as they are while a peer may read them.
        let keys = Arc::new(Keys::of_shared(shared.clone()));
        Self { bytes: Bytes::Shared(shared), keys }
    }
}

impl fmt::Debug for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bytes {
            Bytes::Own(range) => write!(f, "Exposed({range:?}, {} keys)", self.keys()),
            Bytes::Shared(shared) => write!(f, "Exposed({shared:?}, {} keys)", self.keys()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_exposed_for_reading_only() {
        let mut slice = Memory::allocate(32).unwrap();
        slice[5..10].copy_from_slice(b"hello");
        let shared = slice.share().get(5..21).unwrap();
        let exposed = Exposed::from(shared.clone());
        assert_eq!((exposed.len(), exposed.address()), (16, shared.address()));
        assert_eq!(exposed.place_in_memory().1, 5);
        let mut copy = [0; 4];
        exposed.read_at(1, &mut copy);
        assert_eq!((&copy, &exposed.to_vec()[..]), (b"ello", &shared[..]));
        exposed.guard_key(KeyAccess::Write).unwrap_err();
        let change = |change: fn(&Exposed)| {
            let change = std::panic::AssertUnwindSafe(|| change(&exposed));
            std::panic::catch_unwind(change).unwrap_err();
        };
        change(|exposed| exposed.write_at(0, b"no"));
        change(|exposed| exposed.atomic_at(3).store(1, Ordering::Relaxed));
        assert_eq!(exposed.to_vec()[..5], *b"hello");
        let exposed = exposed.try_into_slice().expect_err("references to it exist");
        let shared = shared.try_unshare().expect_err("it is exposed");
        drop(exposed);
        assert_eq!(shared.try_unshare().unwrap().len(), 32);
    }

    #[test]
    fn shared_memory_stays_shared_while_a_peer_may_read_it() {
        let shared = Memory::allocate(4096).unwrap().share();
        let exposed = Exposed::from(shared.clone());
        let guards = [(); 2].map(|()| exposed.guard_key(KeyAccess::Read).unwrap());
        drop(exposed);
        let mut shared = shared;
        for guard in guards {
            shared = shared.try_unshare().expect_err("a key exists");
            // SAFETY: no key was made for this guard.
            unsafe { guard.end() };
        }
        let shared = shared.try_unshare().expect("no key is left").share();
        // Nothing proves that this one has ended.
        drop(Exposed::from(shared.clone()).guard_key(KeyAccess::Read).unwrap());
        shared.try_unshare().expect_err("a peer may read it for good");
    }

    #[test]
    fn bytes_and_words_are_the_same_memory() {
        let exposed = Memory::allocate(16).unwrap().expose();
        exposed.atomic_at(8).store(u64::from_ne_bytes(*b"atomics!"), Ordering::Relaxed);
        let mut copy = [0; 16];
        exposed.read_at(0, &mut copy);
        assert_eq!(&copy[8..], b"atomics!");
        assert_eq!(*exposed.try_into_slice().unwrap(), copy);
    }

    /// Compares every start, length and part of memory of up to three words with a vector.
    #[test]
    fn copies_change_what_they_name_and_nothing_beside_it() {
        // Miri is slow: a few cases that have a head, a whole word and a tail.
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
                // Memory is page-aligned, so `start` determines the alignment of the address.
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

    /// Under Miri, this test finds a reference to the bytes, or atomics of several sizes.
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
                        assert_eq!(back, value, "the other thread's write changed this byte");
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
            // Aligned, and not wholly within: 4..20 of the allocation contains one word, at 8.
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

    #[test]
    fn an_atomic_of_the_owner_is_noted() {
        let exposed = Memory::allocate(64).unwrap().expose();
        exposed.write_at(0, &[1; 64]);
        assert!(!exposed.has_atomics());
        exposed.atomic_at(8).store(7, Ordering::Relaxed);
        assert!(exposed.has_atomics());
    }
}
