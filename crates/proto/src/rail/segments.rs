//! Segments of a peer's memory.

use crate::plan::Extent;

/// A range of a peer's memory, within a grant of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteSegment {
    /// The address in the peer's notation.
    pub address: u64,
    /// The key.
    pub key: u64,
    /// The length in bytes.
    pub len: u64,
}

/// Several segments of a peer's memory with one key, in the order of an operation's bytes. All lie
/// within one grant of the peer.
///
/// It borrows the extents of the operation, so a work request of several segments copies none.
///
/// ```
/// use farreach_proto::plan::Extent;
/// use farreach_proto::rail::RemoteSegments;
///
/// let pages = [Extent { offset: 8 * 4096, len: 4096 }, Extent { offset: 0, len: 4096 }];
/// let pages = RemoteSegments::new(0x10_0000, 0x1234, &pages).expect("they end below the last address");
/// assert_eq!((pages.count(), pages.len()), (2, 8192));
/// assert_eq!(pages.iter().next().unwrap().address, 0x10_8000);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteSegments<'a> {
    address: u64,
    key: u64,
    extents: &'a [Extent],
}

impl<'a> RemoteSegments<'a> {
    /// Creates segments at these offsets from `address`. Returns `None` if one of them would end
    /// beyond the last address.
    pub fn new(address: u64, key: u64, extents: &'a [Extent]) -> Option<Self> {
        let has_end = |extent: &Extent| {
            let end = address.checked_add(extent.offset).and_then(|start| start.checked_add(extent.len));
            end.is_some()
        };
        extents.iter().all(has_end).then_some(Self { address, key, extents })
    }

    /// Returns the key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the number of segments.
    pub fn count(&self) -> usize {
        self.extents.len()
    }

    /// Returns the number of bytes of all segments.
    pub fn len(&self) -> u64 {
        self.extents.iter().fold(0, |all, extent| all.saturating_add(extent.len))
    }

    /// Returns `true` if there are no segments.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Iterates over the segments.
    pub fn iter(&self) -> impl Iterator<Item = RemoteSegment> + 'a {
        let Self { address, key, extents } = *self;
        extents.iter().map(move |extent| RemoteSegment {
            address: address + extent.offset,
            key,
            len: extent.len,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_keep_their_order_and_none_wraps() {
        let extents: Vec<Extent> =
            (0..4).map(|number| Extent { offset: 100 - number, len: 10 + number }).collect();
        let targets = RemoteSegments::new(1000, 5, &extents).unwrap();
        let expected =
            (0..4).map(|number| RemoteSegment { address: 1100 - number, key: 5, len: 10 + number });
        assert!(targets.iter().eq(expected));
        assert_eq!((targets.count(), targets.len(), targets.key()), (4, 46, 5));
        for (offset, len) in [(u64::MAX - 999, 1), (u64::MAX - 1010, 11), (0, u64::MAX - 999)] {
            assert!(RemoteSegments::new(1000, 5, &[Extent { offset, len }]).is_none(), "{offset} {len}");
        }
    }
}
