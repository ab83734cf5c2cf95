//! A ring with one producer and one consumer, in words that both processes share.
//!
//! An entry occupies one slot, or several that follow each other. The first word of a slot is its
//! header. The producer stores the header of an entry's first slot last, so the consumer waits for
//! one cache line instead of an index and a slot. The only index that is shared is that of the
//! consumer, and the producer reads it only when the ring seems full.
//!
//! Invariant: the producer writes only to slots before `head + slots`, and the consumer reads only
//! slots whose header it has seen. The other side may be hostile: each value that is read from the
//! ring is checked, and a wrong one is [`Nonsense`].

use std::sync::atomic::Ordering;

use crate::words::Words;

/// The words of a slot: one cache line.
pub(crate) const SLOT_WORDS: usize = 8;
/// The bytes of an entry that one slot holds.
pub(crate) const SLOT_BYTES: usize = (SLOT_WORDS - 1) * 8;

/// A place that continues the entry before it.
const CONTINUES: u8 = 0xff;

/// Where a ring is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Area {
    /// The first word of the first slot.
    pub(crate) slots_at: usize,
    /// The number of slots, a power of two.
    pub(crate) slots: usize,
    /// The word of the consumer's index.
    pub(crate) head_at: usize,
}

impl Area {
    #[inline(always)]
    fn slot(&self, position: u64) -> usize {
        self.slots_at + (position as usize & (self.slots - 1)) * SLOT_WORDS
    }

    /// Returns the number of the lap that writes this position. A slot that was never written has
    /// lap 0. It wraps after 2^32 laps.
    #[inline(always)]
    fn lap(&self, position: u64) -> u32 {
        (position >> self.slots.trailing_zeros()) as u32 + 1
    }

    /// Returns the number of slots of an entry.
    #[inline(always)]
    fn slots_of(len: usize) -> usize {
        len.div_ceil(SLOT_BYTES).max(1)
    }

    /// Returns the maximum length of an entry. Four of them fit, so that a long one does not wait
    /// for an empty ring.
    pub(crate) fn len_max(&self) -> usize {
        Self::len_max_of(self.slots)
    }

    pub(crate) const fn len_max_of(slots: usize) -> usize {
        if slots < 4 { SLOT_BYTES } else { slots / 4 * SLOT_BYTES }
    }
}

/// The other side has written something into shared memory that it never writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer wrote {what} into shared memory")]
pub struct Nonsense {
    /// A description of the value.
    pub what: &'static str,
}

fn nonsense<T>(what: &'static str) -> Result<T, Nonsense> {
    Err(Nonsense { what })
}

fn header(lap: u32, kind: u8, len: usize) -> u64 {
    (u64::from(lap) << 32) | (u64::from(kind) << 24) | len as u64
}

fn parts(header: u64) -> (u32, u8, usize) {
    ((header >> 32) as u32, (header >> 24) as u8, (header & 0xff_ffff) as usize)
}

/// The side that writes.
#[derive(Debug)]
pub(crate) struct Producer<W> {
    words: W,
    area: Area,
    tail: u64,
    /// The consumer's index as last read.
    head: u64,
}

impl<W: Words> Producer<W> {
    pub(crate) fn new(words: W, area: Area) -> Self {
        Self { words, area, tail: 0, head: 0 }
    }

    /// Returns whether an entry of `len` bytes has room now.
    pub(crate) fn has_room(&mut self, len: usize) -> Result<bool, Nonsense> {
        let needed = Area::slots_of(len) as u64;
        let slots = self.area.slots as u64;
        if slots - (self.tail - self.head) >= needed {
            return Ok(true);
        }
        // Acquire pairs with the Release of `Consumer::release`: the slots were read.
        let head = self.words.load(self.area.head_at, Ordering::Acquire);
        if head < self.head || head > self.tail {
            return nonsense("an index that no consumer has");
        }
        self.head = head;
        Ok(slots - (self.tail - self.head) >= needed)
    }

    /// Appends an entry. Returns `false` if there is no room.
    ///
    /// # Panics
    ///
    /// Panics if the entry is longer than [`Area::len_max`].
    pub(crate) fn push(&mut self, kind: u8, bytes: &[u8]) -> Result<bool, Nonsense> {
        assert!(bytes.len() <= self.area.len_max() && kind != CONTINUES);
        if !self.has_room(bytes.len())? {
            return Ok(false);
        }
        let first = self.tail;
        let mut chunks = bytes.chunks(SLOT_BYTES);
        self.fill(first, chunks.next().unwrap_or_default());
        let mut position = first;
        for chunk in chunks {
            position += 1;
            self.fill(position, chunk);
            let lap = self.area.lap(position);
            self.words.store(self.area.slot(position), header(lap, CONTINUES, 0), Ordering::Relaxed);
        }
        self.tail = position + 1;
        // Release: whoever sees the header sees the whole entry, and all bytes written before.
        let lap = self.area.lap(first);
        self.words.store(self.area.slot(first), header(lap, kind, bytes.len()), Ordering::Release);
        Ok(true)
    }

    #[inline(always)]
    fn fill(&self, position: u64, bytes: &[u8]) {
        let at = self.area.slot(position) + 1;
        for (index, word) in bytes.chunks(8).enumerate() {
            let mut padded = [0; 8];
            padded[..word.len()].copy_from_slice(word);
            self.words.store(at + index, u64::from_le_bytes(padded), Ordering::Relaxed);
        }
    }
}

/// The side that reads.
#[derive(Debug)]
pub(crate) struct Consumer<W> {
    words: W,
    area: Area,
    head: u64,
}

impl<W: Words> Consumer<W> {
    pub(crate) fn new(words: W, area: Area) -> Self {
        Self { words, area, head: 0 }
    }

    /// Returns whether an entry is there. A wrong header counts as one.
    pub(crate) fn is_empty(&self) -> bool {
        let (lap, ..) = parts(self.words.load(self.area.slot(self.head), Ordering::Acquire));
        lap == self.area.lap(self.head).wrapping_sub(1)
    }

    /// Takes the next entry: appends its bytes to `into`, and returns its kind.
    #[inline]
    pub(crate) fn pop(&mut self, into: &mut Vec<u8>) -> Result<Option<u8>, Nonsense> {
        let first = self.head;
        let expected = self.area.lap(first);
        // Acquire pairs with the Release of `push`.
        let (lap, kind, len) = parts(self.words.load(self.area.slot(first), Ordering::Acquire));
        if lap != expected {
            // The lap before, or none: the producer has not come here yet.
            return if lap == expected.wrapping_sub(1) { Ok(None) } else { nonsense("a slot of no lap") };
        }
        if kind == CONTINUES || len > self.area.len_max() {
            return nonsense("an entry without its beginning, or too long");
        }
        let mut left = len;
        for position in first..first + Area::slots_of(len) as u64 {
            let at = self.area.slot(position);
            if position > first {
                let (lap, kind, _) = parts(self.words.load(at, Ordering::Relaxed));
                if lap != self.area.lap(position) || kind != CONTINUES {
                    return nonsense("an entry without its end");
                }
            }
            for index in 0..left.min(SLOT_BYTES).div_ceil(8) {
                let word = self.words.load(at + 1 + index, Ordering::Relaxed).to_le_bytes();
                let here = left.min(8);
                into.extend_from_slice(&word[..here]);
                left -= here;
            }
        }
        self.head = first + Area::slots_of(len) as u64;
        // Release: the producer writes to the slots only after they were read.
        self.words.store(self.area.head_at, self.head, Ordering::Release);
        Ok(Some(kind))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::words::LocalWords;

    const SLOTS: usize = 8;
    const AREA: Area = Area { slots_at: 1, slots: SLOTS, head_at: 0 };

    fn ring() -> (Arc<LocalWords>, Producer<Arc<LocalWords>>, Consumer<Arc<LocalWords>>) {
        let words = LocalWords::new(1 + SLOTS * SLOT_WORDS);
        (Arc::clone(&words), Producer::new(Arc::clone(&words), AREA), Consumer::new(words, AREA))
    }

    fn pop(consumer: &mut Consumer<Arc<LocalWords>>) -> Option<(u8, Vec<u8>)> {
        let mut bytes = Vec::new();
        consumer.pop(&mut bytes).unwrap().map(|kind| (kind, bytes))
    }

    #[test]
    fn entries_of_all_lengths_arrive_in_order() {
        let (_, mut producer, mut consumer) = ring();
        assert!(consumer.is_empty());
        for round in 0..if cfg!(miri) { 2 } else { 50 } {
            for len in (0..=AREA.len_max()).step_by(if cfg!(miri) { 23 } else { 1 }) {
                let bytes: Vec<u8> = (0..len).map(|index| (index + round) as u8).collect();
                assert!(producer.push(7, &bytes).unwrap());
                assert!(!consumer.is_empty());
                assert_eq!(pop(&mut consumer), Some((7, bytes)));
                assert_eq!(pop(&mut consumer), None);
            }
        }
    }

    #[test]
    fn a_full_ring_refuses_and_has_room_again() {
        let (_, mut producer, mut consumer) = ring();
        for kind in 0..SLOTS as u8 {
            assert!(producer.push(kind, &[kind]).unwrap());
        }
        assert!(!producer.push(9, &[]).unwrap() && !producer.has_room(1).unwrap());
        assert_eq!(pop(&mut consumer), Some((0, vec![0])));
        assert!(!producer.push(9, &[1; SLOT_BYTES + 1]).unwrap(), "one slot is not two");
        assert!(producer.push(9, &[]).unwrap());
        for kind in (1..SLOTS as u8).chain([9]) {
            assert_eq!(pop(&mut consumer).unwrap().0, kind);
        }
        assert!(consumer.is_empty());
    }

    #[test]
    #[should_panic(expected = "len_max")]
    fn an_entry_that_never_fits_panics() {
        ring().1.push(1, &[0; 3 * SLOT_BYTES]).unwrap();
    }

    /// Runs two threads over one ring. Under Miri it finds races.
    #[test]
    fn threads_pass_entries() {
        let (_, mut producer, mut consumer) = ring();
        let count = if cfg!(miri) { 40 } else { 2_000_u32 };
        let sender = std::thread::spawn(move || {
            for number in 0..count {
                let len = 4 + number as usize % (AREA.len_max() - 4);
                let mut bytes = vec![number as u8; len];
                bytes[..4].copy_from_slice(&number.to_le_bytes());
                while !producer.push(1, &bytes).unwrap() {
                    std::thread::yield_now();
                }
            }
        });
        for number in 0..count {
            let (kind, bytes) = loop {
                match pop(&mut consumer) {
                    Some(entry) => break entry,
                    None => std::thread::yield_now(),
                }
            };
            assert!(kind == 1 && bytes[..4] == number.to_le_bytes());
            assert!(bytes[4..].iter().all(|byte| *byte == number as u8));
        }
        sender.join().unwrap();
    }

    /// Writes each of many values to each word. Neither side panics, and a wrong value is told.
    #[test]
    fn nonsense_is_told() {
        let values = [1, u64::MAX, 2 << 32, header(1, 0xff, 0), header(1, 1, 0xff_ffff), 3 << 32];
        let mut told = 0;
        for index in 0..1 + 2 * SLOT_WORDS {
            for value in values {
                let (words, mut producer, mut consumer) = ring();
                assert!(producer.push(1, &[5; SLOT_BYTES + 1]).unwrap());
                words.store(index, value, Ordering::Relaxed);
                let mut bytes = Vec::new();
                let mut is_wrong = false;
                for _ in 0..4 {
                    is_wrong |= consumer.pop(&mut bytes).is_err();
                    is_wrong |= producer.push(2, &[6; 2 * SLOT_BYTES]).is_err();
                }
                assert!(bytes.len() <= 5 * AREA.len_max());
                told += usize::from(is_wrong);
            }
        }
        // Five of the values are wrong as the header of the first slot, and five as that of the second.
        // The consumer overwrites its index, and payload has no wrong values.
        assert_eq!(told, 10);
    }

    #[test]
    fn an_index_that_goes_back_or_too_far_is_told() {
        let (words, mut producer, mut consumer) = ring();
        for _ in 0..SLOTS {
            producer.push(1, &[]).unwrap();
        }
        pop(&mut consumer);
        assert!(producer.push(1, &[]).unwrap());
        for wrong in [0, 10, u64::MAX] {
            words.store(AREA.head_at, wrong, Ordering::Relaxed);
            assert!(producer.push(1, &[]).is_err(), "{wrong}");
        }
    }
}
