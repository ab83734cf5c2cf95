//! The memory of a transfer.

use farreach_memory::{Buffer, Buffers, Lent, Memory, Shared};
use farreach_proto::plan::Extent;

/// This side's memory of a transfer that is in flight.
#[derive(Debug)]
pub enum Held {
    /// Memory that cards read.
    Shared(Shared),
    /// Memory that cards write or read, with exclusive access.
    Lent(Lent),
}

impl Held {
    /// Returns the number of bytes.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks whether it is")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Shared(shared) => shared.len() as u64,
            Self::Lent(lent) => lent.len() as u64,
        }
    }

    /// Returns the allocation that contains it.
    pub fn memory(&self) -> &Memory {
        match self {
            Self::Shared(shared) => shared.memory(),
            Self::Lent(lent) => lent.memory(),
        }
    }

    #[inline]
    fn part(&self, extent: Extent) -> Option<Buffer> {
        let start = extent.offset as usize;
        let range = start..start + extent.len as usize;
        match self {
            Self::Shared(shared) => shared.get(range).map(Buffer::Shared),
            Self::Lent(lent) => lent.get(range).map(Buffer::Lent),
        }
    }

    pub(crate) fn parts(&self, extents: &[Extent], list: Option<Vec<Buffer>>) -> Option<Buffers> {
        match extents {
            [] => Some(Buffers::None),
            [one] => self.part(*one).map(Buffers::One),
            several => {
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
