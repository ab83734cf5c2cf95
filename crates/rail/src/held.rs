//! The memory of a transfer.

use std::sync::Arc;

use farreach_memory::{Buffer, Buffers, ExposedPart, Lent, Memory, Shared};
use farreach_proto::plan::Extent;

/// This side's memory of a transfer that is in flight.
#[derive(Debug)]
pub enum Held {
    /// Memory that cards read.
    Shared(Shared),
    /// Memory that cards write or read, with exclusive access.
    Lent(Lent),
    /// Memory that cards write or read while the program and others may access it.
    Exposed(ExposedPart),
    /// The memory of segments. Several transfers may have it at the same time.
    List(Arc<HeldList>),
}

impl Held {
    /// Returns the number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks whether it is")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Shared(shared) => shared.len() as u64,
            Self::Lent(lent) => lent.len() as u64,
            Self::Exposed(part) => part.len() as u64,
            Self::List(list) => list.0.iter().map(|buffer| buffer.len() as u64).sum(),
        }
    }

    /// Calls `visit` with the allocations that contain it. Stops at the first error.
    pub fn try_for_each_memory<E>(&self, mut visit: impl FnMut(&Memory) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::Shared(shared) => visit(shared.memory()),
            Self::Lent(lent) => visit(lent.memory()),
            Self::Exposed(part) => visit(part.exposed().memory()),
            Self::List(list) => list.try_for_each_memory(visit),
        }
    }

    #[inline]
    fn part(&self, extent: Extent) -> Option<Buffer> {
        let start = usize::try_from(extent.offset).ok()?;
        let range = start..start.checked_add(usize::try_from(extent.len).ok()?)?;
        match self {
            Self::Shared(shared) => shared.get(range).map(Buffer::Shared),
            Self::Lent(lent) => lent.get(range).map(Buffer::Lent),
            Self::Exposed(part) => part.get(range).map(Buffer::Exposed),
            Self::List(list) => list.part(extent),
        }
    }

    pub(crate) fn parts(&self, extents: &[Extent], list: Option<Vec<Buffer>>) -> Option<Buffers> {
        match extents {
            // A notification has no bytes.
            [] => Some(Buffers::None),
            [one] => self.part(*one).map(Buffers::One),
            several => {
                // A list that was used before has its capacity, so that most posts allocate
                // nothing.
                let mut list = list.unwrap_or_default();
                list.reserve(several.len());
                for extent in several {
                    list.push(self.part(*extent)?);
                }
                Some(Buffers::List(list))
            }
        }
    }
}

/// The buffers of a transfer of segments. None is a slice: parts of slices are taken when they are lent.
///
/// An extent names a buffer and an offset in it by one number ([`place`](Self::place)).
#[derive(Debug)]
pub struct HeldList(Vec<Buffer>);

impl HeldList {
    /// The bits of the offset in a buffer.
    const OFFSET_BITS: u32 = 40;

    /// The maximum number of buffers.
    pub const BUFFERS_MAX: usize = 1 << (u64::BITS - Self::OFFSET_BITS - 1);

    /// The maximum length of a buffer in bytes. No place lies behind the last byte of such a buffer, so
    /// the places of two buffers are never neighbours.
    pub const LEN_MAX: u64 = (1 << Self::OFFSET_BITS) - 1;

    /// Takes these buffers. Returns them if there are too many, or one is too long. Slices are lent.
    pub fn new(buffers: Vec<Buffer>) -> Result<Self, Vec<Buffer>> {
        let fits = |buffer: &Buffer| buffer.len() as u64 <= Self::LEN_MAX;
        // The place of a byte beyond either limit would be that of another buffer.
        if buffers.len() > Self::BUFFERS_MAX || !buffers.iter().all(fits) {
            return Err(buffers);
        }
        let lend = |buffer| match buffer {
            Buffer::Slice(slice) => Buffer::Lent(slice.lend()),
            other => other,
        };
        Ok(Self(buffers.into_iter().map(lend).collect()))
    }

    /// Returns the number that names a byte of a buffer, by the index of the buffer. The offset must be
    /// at most [`LEN_MAX`](Self::LEN_MAX).
    #[inline]
    pub const fn place(buffer: u32, offset: u64) -> u64 {
        ((buffer as u64) << Self::OFFSET_BITS) | offset
    }

    #[inline]
    fn part(&self, extent: Extent) -> Option<Buffer> {
        let start = (extent.offset & Self::LEN_MAX) as usize;
        let end = start.checked_add(usize::try_from(extent.len).ok()?)?;
        self.0.get((extent.offset >> Self::OFFSET_BITS) as usize)?.part(start..end)
    }

    /// Calls `visit` with the allocations of the buffers, of neighbours in the same one once.
    pub fn try_for_each_memory<E>(&self, mut visit: impl FnMut(&Memory) -> Result<(), E>) -> Result<(), E> {
        let mut last: Option<&Memory> = None;
        for memory in self.0.iter().map(Buffer::memory) {
            // A visit calls each rail, and a list may have thousands of parts of one allocation.
            if !last.replace(memory).is_some_and(|last| last.is_same(memory)) {
                visit(memory)?;
            }
        }
        Ok(())
    }

    /// Returns the buffers in their order. A slice that was lent comes back as a slice if no part of it
    /// is left, and as the lent slice otherwise.
    pub fn into_buffers(self) -> Vec<Buffer> {
        let reclaim = |buffer| match buffer {
            Buffer::Lent(lent) => lent.try_reclaim().map_or_else(Buffer::Lent, Buffer::Slice),
            other => other,
        };
        self.0.into_iter().map(reclaim).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(len: usize) -> Buffer {
        Memory::allocate(len).unwrap().into()
    }

    #[test]
    fn a_place_names_a_byte_of_one_buffer() {
        let first = slice(100);
        let second = Buffer::Shared(Memory::allocate(50).unwrap().share());
        let addresses = [first.address(), second.address()].map(|address| address.as_ptr().addr());
        let list = Held::List(Arc::new(HeldList::new(vec![first, second]).unwrap()));
        let extent = |buffer, offset, len| Extent { offset: HeldList::place(buffer, offset), len };
        for (buffer, offset, len) in [(0, 0, 100), (0, 99, 1), (1, 7, 43), (1, 50, 0)] {
            let part = list.part(extent(buffer, offset, len)).unwrap();
            let start = part.address().as_ptr().addr() - addresses[buffer as usize];
            assert_eq!((start as u64, part.len() as u64), (offset, len));
        }
        for (buffer, offset, len) in [(0, 0, 101), (0, 100, 1), (1, 0, 51), (2, 0, 1), (0, 5, u64::MAX)] {
            assert!(list.part(extent(buffer, offset, len)).is_none(), "{buffer} {offset} {len}");
        }
        assert_eq!(list.len(), 150);
    }

    #[test]
    fn memory_in_a_row_is_visited_once() {
        let mut first = Memory::allocate(100).unwrap();
        let (second, third) = (first.split_off(50), Memory::allocate(10).unwrap());
        let buffers = vec![first.into(), second.into(), third.into()];
        let list = Held::List(Arc::new(HeldList::new(buffers).unwrap()));
        let mut lens = Vec::new();
        let visited: Result<(), ()> = list.try_for_each_memory(|memory| {
            lens.push(memory.len());
            Ok(())
        });
        assert_eq!((visited, lens), (Ok(()), vec![100, 10]));
        let mut visits = 0;
        let stopped = list.try_for_each_memory(|_| {
            visits += 1;
            Err(visits)
        });
        assert_eq!(stopped, Err(1));
    }

    #[test]
    fn a_slice_comes_back_when_no_part_of_it_is_left() {
        let list = HeldList::new(vec![slice(100), slice(10)]).unwrap();
        let part = list.part(Extent { offset: 5, len: 5 });
        let buffers = list.into_buffers();
        assert!(matches!(buffers[..], [Buffer::Lent(_), Buffer::Slice(_)]), "{buffers:?}");
        drop(part);
        let list = HeldList::new(buffers).unwrap();
        assert!(list.into_buffers().into_iter().all(|buffer| buffer.into_slice().is_ok()));
    }
}
