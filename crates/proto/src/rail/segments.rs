//! Several ranges of a peer's memory.

use crate::plan::Extent;

use super::RemoteSegment;

/// Several ranges of a peer's memory by one key, in the order of an operation's bytes: all inside of one thing that the peer has granted.
///
/// They are where the engine has them: a request of several ranges copies none.
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
    /// Those that begin so far behind `address`; none where one of them would end behind the last address.
    pub fn new(address: u64, key: u64, extents: &'a [Extent]) -> Option<Self> {
        let has_end = |extent: &Extent| {
            let end = address.checked_add(extent.offset).and_then(|start| start.checked_add(extent.len));
            end.is_some()
        };
        extents.iter().all(has_end).then_some(Self { address, key, extents })
    }

    /// The key.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.extents.len()
    }

    /// The bytes of all.
    pub fn len(&self) -> u64 {
        self.extents.iter().fold(0, |all, extent| all.saturating_add(extent.len))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Each.
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
