//! Page maps: the pages of one memory, and their places in another.

pub use farreach_proto::indices::Indices;
use farreach_proto::machine::Direction;
pub use farreach_proto::plan::Pages;
use farreach_proto::plan::{Extent, Plan, PlanError};

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
    pub fn first(mut self, count: u32) -> Self {
        let pages = Indices::from(0..count);
        (self.source.indices, self.destination.indices) = (pages.clone(), pages);
        self
    }

    /// Plans a transfer between memory of this side and of a peer, of these lengths.
    pub(crate) fn plan(
        &self,
        direction: Direction,
        own_len: u64,
        remote_len: u64,
    ) -> Result<Plan, PlanError> {
        // Numbers that follow each other are a first one and a count, and a list of others is
        // shared.
        let (source, destination) = (self.source.clone(), self.destination.clone());
        match direction {
            Direction::Write => Plan::new(self.page_len, (source, own_len), (destination, remote_len)),
            Direction::Read => Plan::reading(self.page_len, (source, remote_len), (destination, own_len)),
        }
    }

    /// Returns the page of this side and that of the peer, if there is one only and a transfer of it
    /// can be [planned](Self::plan).
    pub(crate) fn only_page(
        &self,
        direction: Direction,
        own_len: u64,
        remote_len: u64,
    ) -> Option<(Extent, Extent)> {
        let (own, remote) = match direction {
            Direction::Write => (&self.source, &self.destination),
            Direction::Read => (&self.destination, &self.source),
        };
        // Lists of different lengths are refused by `plan`, with an error that says so.
        if self.source.indices.len() != 1 || self.destination.indices.len() != 1 {
            return None;
        }
        // The same checks as those of `plan`, without the plan.
        let within = |pages: &Pages, memory_len| {
            let page = Extent { offset: pages.start(0)?, len: self.page_len };
            let end = page.offset.checked_add(page.len)?;
            (page.len > 0 && end <= memory_len).then_some(page)
        };
        Some((within(own, own_len)?, within(remote, remote_len)?))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// All maps of up to two pages with numbers at the edges.
    fn maps() -> impl Iterator<Item = PageMap> {
        let numbers = [0, 1, 7, 64, u64::MAX - 8, u64::MAX];
        let pages = move || {
            let lists: [&[u32]; 4] = [&[], &[0], &[u32::MAX], &[0, 1]];
            lists.into_iter().flat_map(move |indices| {
                numbers.into_iter().flat_map(move |stride| {
                    [0, 8, u64::MAX].map(|offset| Pages {
                        indices: indices.iter().copied().collect(),
                        stride,
                        offset,
                    })
                })
            })
        };
        let lens = [0, 1, 8, 64, u64::MAX];
        lens.into_iter().flat_map(move |page_len| {
            pages().flat_map(move |source| {
                pages().map(move |destination| PageMap { page_len, source: source.clone(), destination })
            })
        })
    }

    /// The numbers of these pages would take tens of gigabytes.
    #[test]
    fn pages_that_no_memory_has_are_refused_before_anything_is_allocated_for_them() {
        for map in [PageMap::of(1).first(u32::MAX), PageMap::of(1 << 40).first(u32::MAX)] {
            for direction in [Direction::Write, Direction::Read] {
                let refused = map.plan(direction, 10, 4096).unwrap_err();
                assert!(matches!(refused, PlanError::OutOfBounds { .. }), "{refused}");
            }
        }
    }

    #[test]
    fn an_only_page_can_be_planned_and_is_the_planned_one() {
        let limits = farreach_proto::plan::Limits {
            bytes: u64::MAX,
            pieces: 1,
            targets: 1,
            pages: 1,
            is_ordered: true,
        };
        let mut found = 0;
        for map in maps() {
            for direction in [Direction::Write, Direction::Read] {
                let lens = [(16, 72), (8, 8), (u64::MAX, 16)];
                for (own_len, remote_len) in lens {
                    let Some((own, remote)) = map.only_page(direction, own_len, remote_len) else { continue };
                    found += 1;
                    let mut plan = map.plan(direction, own_len, remote_len).expect("it can be planned");
                    let mut operation = farreach_proto::plan::Operation::default();
                    assert!(plan.pages() == 1 && plan.next(&limits, &mut operation), "{map:?}");
                    assert_eq!((&operation.pieces[..], &operation.targets[..]), (&[own][..], &[remote][..]));
                }
            }
        }
        assert!(found > 100, "{found}");
    }
}
