//! Page maps: the pages of one memory, and their places in another.

pub use farreach_proto::indices::Indices;
pub use farreach_proto::plan::Pages;

/// The pages of a transfer, on both sides: page `n` of the transfer is page `source.indices[n]` of
/// the source and `destination.indices[n]` of the destination.
///
/// ```
/// use farreach::PageMap;
///
/// // The first three pages of 4 KiB go to places 9, 4 and 7.
/// let map = PageMap::of(4096).from([0, 1, 2]).to([9, 4, 7]);
/// assert_eq!(map.source.indices.len(), 3);
/// // The first 64 pages keep their places.
/// let map = PageMap::of(4096).first(64);
/// assert_eq!(map, PageMap::of(4096).from(0..64).to(0..64));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageMap {
    /// The length of a page in bytes.
    pub page_len: u64,
    /// The pages of the source.
    pub source: Pages,
    /// The places in the destination.
    pub destination: Pages,
}

impl PageMap {
    /// Returns an empty map of pages of `page_len` bytes, which lie one after the other in their
    /// memory. [`from`](Self::from) and [`to`](Self::to), or [`first`](Self::first), add the pages.
    pub fn of(page_len: u64) -> Self {
        let pages = Pages { indices: [].into(), stride: page_len, offset: 0 };
        Self { page_len, source: pages.clone(), destination: pages }
    }

    /// Sets the first `count` pages on both sides: each keeps its place.
    pub fn first(self, count: u32) -> Self {
        self.from(0..count).to(0..count)
    }

    /// Sets the pages of the source, by their numbers.
    pub fn from(mut self, pages: impl IntoIterator<Item = u32>) -> Self {
        self.source.indices = pages.into_iter().collect();
        self
    }

    /// Sets the places of the pages in the destination, by their numbers.
    pub fn to(mut self, places: impl IntoIterator<Item = u32>) -> Self {
        self.destination.indices = places.into_iter().collect();
        self
    }
}
