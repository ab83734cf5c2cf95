//! Which pages go where.

pub use farreach_proto::plan::Pages;

/// Which pages of one memory go to which places of another: page `n` of the transfer is page `source.indices[n]` on one side and
/// `destination.indices[n]` on the other.
///
/// ```
/// use farreach::PageMap;
///
/// // The first three pages of 4 KiB go, in turn, to places 9, 4 and 7.
/// let map = PageMap::scattered(4096, vec![0, 1, 2], vec![9, 4, 7]);
/// assert_eq!(map.pages(), 3);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageMap {
    /// The bytes of a page.
    pub page_len: u64,
    /// Where the pages come from.
    pub source: Pages,
    /// Where they go.
    pub destination: Pages,
}

impl PageMap {
    /// The first `count` pages of `page_len` bytes on both sides.
    pub fn contiguous(page_len: u64, count: u32) -> Self {
        let pages = Pages::contiguous(count, page_len);
        Self { page_len, source: pages.clone(), destination: pages }
    }

    /// These pages to those places, each one behind the other in its memory.
    pub fn scattered(page_len: u64, source: Vec<u32>, destination: Vec<u32>) -> Self {
        let pages = |indices| Pages { indices, stride: page_len, offset: 0 };
        Self { page_len, source: pages(source), destination: pages(destination) }
    }

    /// How many pages.
    pub fn pages(&self) -> u64 {
        self.source.indices.len() as u64
    }
}
