//! Splits pages into operations: checks the bounds first, and joins adjacent pages.

use crate::indices::Indices;
pub use crate::plan_error::{PlanError, Side};
use crate::segments::Segments;

/// A list of pages in a memory region: page `n` begins at `offset + indices[n] × stride`.
///
/// ```
/// use farreach_proto::plan::Pages;
///
/// // Every other page of 4 KiB, behind a header.
/// let pages = Pages { indices: [0, 2, 4].into(), stride: 4096, offset: 64 };
/// assert_eq!(pages.start(1), Some(64 + 2 * 4096));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    /// The pages, in the order of the transfer.
    pub indices: Indices,
    /// The distance between the beginnings of two adjacent pages, in bytes.
    pub stride: u64,
    /// The offset of page 0.
    pub offset: u64,
}

impl Pages {
    /// Returns the first `count` pages of `len` bytes, one after the other.
    pub fn contiguous(count: u32, len: u64) -> Self {
        Self { indices: (0..count).into(), stride: len, offset: 0 }
    }

    /// Returns the offset of the page at this place in the transfer. Returns `None` if there is no
    /// such page, or its offset does not fit into 64 bits.
    pub fn start(&self, place: usize) -> Option<u64> {
        let index = u64::from(self.indices.get(place)?);
        self.offset.checked_add(index.checked_mul(self.stride)?)
    }

    /// Returns the offset of the page with this index. [`Plan::new`] has checked all pages, so the
    /// arithmetic cannot overflow.
    #[inline]
    fn at(&self, index: u32) -> u64 {
        self.offset + u64::from(index) * self.stride
    }

    /// Checks that all pages, of `page_len` bytes, lie within `memory_len` and do not overlap.
    fn check(&self, side: Side, page_len: u64, memory_len: u64) -> Result<(), PlanError> {
        // A single page cannot overlap another one, whatever the stride is.
        if self.stride < page_len && self.indices.len() > 1 {
            return Err(PlanError::Overlap { side, stride: self.stride, page_len });
        }
        let is_within = |index: u32| {
            // The numbers are the caller's: a page beyond 2^64 must be refused, and not wrap to a
            // valid offset.
            let start = u64::from(index).checked_mul(self.stride).and_then(|at| at.checked_add(self.offset));
            start.and_then(|start| start.checked_add(page_len)).is_some_and(|end| end <= memory_len)
        };
        // No page begins after the one with the largest index.
        match self.indices.largest() {
            Some(index) if !is_within(index) => Err(PlanError::OutOfBounds { side, index, memory_len }),
            _ => Ok(()),
        }
    }
}

/// The limits of one operation on a link, as reported by its card and library.
///
/// ```
/// use farreach_proto::plan::Limits;
///
/// let soft_roce = Limits { bytes: 1 << 31, pieces: 32, targets: 1, pages: 1024, is_ordered: true };
/// assert!(soft_roce.is_usable());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of bytes.
    pub bytes: u64,
    /// The maximum number of local segments.
    pub pieces: usize,
    /// The maximum number of remote segments.
    pub targets: usize,
    /// The maximum number of pages: as many as one immediate can count.
    pub pages: u32,
    /// Whether operations land in the order of posting.
    pub is_ordered: bool,
}

impl Limits {
    /// Returns `true` if an operation is possible within these limits.
    pub fn is_usable(&self) -> bool {
        self.bytes > 0 && self.pieces > 0 && self.targets > 0 && self.pages > 0
    }
}

/// A range of bytes within a memory region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its beginning.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Extent {
    fn end(self) -> u64 {
        self.offset + self.len
    }

    fn advance(&mut self, len: u64) {
        (self.offset, self.len) = (self.offset + len, self.len - len);
    }
}

/// The bytes that one work request moves: from the extents of one side to those of the other, in
/// order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operation {
    /// Extents of local memory.
    pub pieces: Vec<Extent>,
    /// Extents of remote memory, with the same number of bytes.
    pub targets: Vec<Extent>,
    /// The region of remote memory that the targets are in: 0 unless the transfer is of
    /// [segments](Plan::of_segments).
    pub region: u32,
    /// The number of bytes.
    pub bytes: u64,
    /// The number of pages that are complete with it.
    pub pages: u32,
}

impl Operation {
    /// Splits it into operations within these limits. Only the last one counts the pages.
    ///
    /// ```
    /// use farreach_proto::plan::{Extent, Limits, Operation};
    ///
    /// let pieces = vec![Extent { offset: 0, len: 10 }, Extent { offset: 50, len: 10 }];
    /// let targets = vec![Extent { offset: 7, len: 20 }];
    /// let whole = Operation { pieces, targets, region: 0, bytes: 20, pages: 2 };
    /// let one_piece = Limits { bytes: 1000, pieces: 1, targets: 1, pages: 1024, is_ordered: true };
    /// let parts = whole.split(&one_piece);
    /// assert_eq!(parts.iter().map(|part| (part.bytes, part.pages)).collect::<Vec<_>>(), [(10, 0), (10, 2)]);
    /// ```
    pub fn split(self, limits: &Limits) -> Vec<Self> {
        let fits = self.bytes <= limits.bytes
            && self.pieces.len() <= limits.pieces
            && self.targets.len() <= limits.targets;
        if fits {
            return vec![self];
        }
        let empty = || Self { region: self.region, ..Self::default() };
        let mut parts = vec![empty()];
        let (mut pieces, mut targets) = (self.pieces.into_iter(), self.targets.into_iter());
        let (mut piece, mut target) = (pieces.next(), targets.next());
        while let (Some(from), Some(to)) = (&mut piece, &mut target) {
            let part = parts.last_mut().expect("`parts` is never empty");
            // 0 if the part is full: there is no room then, and a new part begins.
            let len = from.len.min(to.len).min(limits.bytes - part.bytes);
            let (next_from, next_to) =
                (Extent { offset: from.offset, len }, Extent { offset: to.offset, len });
            let (joins_piece, joins_target) = (joins(&part.pieces, next_from), joins(&part.targets, next_to));
            let has_room = len > 0
                && (joins_piece || part.pieces.len() < limits.pieces)
                && (joins_target || part.targets.len() < limits.targets);
            // The same bytes are tried again with an empty part.
            if !has_room {
                parts.push(empty());
                continue;
            }
            append(&mut part.pieces, next_from, joins_piece);
            append(&mut part.targets, next_to, joins_target);
            part.bytes += len;
            from.advance(len);
            to.advance(len);
            if from.len == 0 {
                piece = pieces.next();
            }
            if to.len == 0 {
                target = targets.next();
            }
        }
        // A page is complete with its last byte, so no earlier part may count it.
        parts.last_mut().expect("`parts` is never empty").pages = self.pages;
        parts
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.targets.clear();
        (self.region, self.bytes, self.pages) = (0, 0, 0);
    }
}

/// Yields the operations of a transfer one after the other. Operations are built on demand, so a
/// million pages need no more memory than their list.
///
/// ```
/// use farreach_proto::plan::{Limits, Operation, Pages, Plan};
///
/// let source = Pages::contiguous(4, 4096);
/// // The first two are adjacent at the destination, the others are not.
/// let destination = Pages { indices: [6, 7, 3, 1].into(), stride: 4096, offset: 0 };
/// let mut plan = Plan::new(4096, (source, 4 * 4096), (destination, 8 * 4096))?;
/// let limits = Limits { bytes: 1 << 20, pieces: 4, targets: 1, pages: 1024, is_ordered: true };
/// let mut operation = Operation::default();
/// let mut pages = Vec::new();
/// while plan.next(&limits, &mut operation) {
///     pages.push(operation.pages);
/// }
/// assert_eq!(pages, [2, 1, 1]);
/// # Ok::<(), farreach_proto::plan::PlanError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Plan {
    map: Map,
    /// The place of the next page, and the number of its bytes that are in operations already.
    place: usize,
    within: u64,
}

/// The bytes of a transfer. Pieces are local memory, and targets the peer's.
#[derive(Debug, Clone)]
enum Map {
    /// Pages of one length.
    Pages { page_len: u64, pieces: Pages, targets: Pages },
    /// Segments, each of which is a page of its own length.
    Segments(Segments),
}

/// A page of a plan.
#[derive(Clone, Copy)]
struct Place {
    piece: u64,
    target: u64,
    region: u32,
    len: u64,
}

impl Map {
    /// Returns the number of pages.
    fn count(&self) -> usize {
        match self {
            Self::Pages { pieces, .. } => pieces.indices.len(),
            Self::Segments(segments) => segments.len(),
        }
    }
}

impl Plan {
    /// Creates a plan. Checks every page of both sides against the length of its memory.
    pub fn new(
        page_len: u64,
        (source, source_len): (Pages, u64),
        (destination, destination_len): (Pages, u64),
    ) -> Result<Self, PlanError> {
        let (source_count, destination_count) = (source.indices.len(), destination.indices.len());
        // `next` takes an operation without bytes for the end of the plan.
        if page_len == 0 {
            return Err(PlanError::EmptyPage);
        }
        if source_count != destination_count {
            return Err(PlanError::Counts { source_count, destination_count });
        }
        source.check(Side::Source, page_len, source_len)?;
        destination.check(Side::Destination, page_len, destination_len)?;
        // Two links may write the same page at the same time: chance would decide what is there.
        if let Some(index) = destination.indices.repeated() {
            return Err(PlanError::Repeated { index });
        }
        Ok(Self::of(Map::Pages { page_len, pieces: source, targets: destination }))
    }

    /// Creates a plan of segments. Each counts as a page.
    ///
    /// ```
    /// use farreach_proto::plan::{Limits, Operation, Plan, Side};
    /// use farreach_proto::segments::{Segment, Segments};
    ///
    /// // Two neighbours in one region, and one in another.
    /// let segment = |own, region, remote, len| Segment { own, remote, len, region };
    /// let list = [segment(0, 0, 70, 10), segment(10, 0, 80, 20), segment(30, 1, 100, 5)];
    /// let mut plan = Plan::of_segments(Segments::new(list, &[100, 105], Side::Source)?);
    /// let limits = Limits { bytes: 100, pieces: 4, targets: 4, pages: 1024, is_ordered: true };
    /// let (mut operation, mut found) = (Operation::default(), Vec::new());
    /// while plan.next(&limits, &mut operation) {
    ///     found.push((operation.region, operation.pieces.len(), operation.bytes, operation.pages));
    /// }
    /// assert_eq!(found, [(0, 1, 30, 2), (1, 1, 5, 1)]);
    /// # Ok::<(), farreach_proto::plan::PlanError>(())
    /// ```
    pub fn of_segments(segments: Segments) -> Self {
        Self::of(Map::Segments(segments))
    }

    fn of(map: Map) -> Self {
        Self { map, place: 0, within: 0 }
    }

    /// Creates a plan for reading: the source is the peer's memory and the destination local
    /// memory. As in a plan for writing, the operations have local extents as pieces and remote
    /// extents as targets.
    pub fn reading(
        page_len: u64,
        (source, source_len): (Pages, u64),
        (destination, destination_len): (Pages, u64),
    ) -> Result<Self, PlanError> {
        // `new` checks repeated pages for the destination only, which is the local side here: a
        // page of the peer may be read twice.
        let mut plan = Self::new(page_len, (source, source_len), (destination, destination_len))?;
        if let Map::Pages { pieces, targets, .. } = &mut plan.map {
            // After the checks, whose errors name the source and the destination of the caller.
            std::mem::swap(pieces, targets);
        }
        Ok(plan)
    }

    /// Fills `operation` with the next one for a link with these limits. Returns `false` if nothing
    /// is left. `operation` keeps its allocations, so later calls allocate nothing.
    ///
    /// A page is split only if it does not fit into an operation of its own. On a link without order,
    /// the caller must let the parts of a page that is counted [arrive](Self::left_in_page) before it
    /// posts the last one: the end of the page could be counted before its beginning has arrived.
    pub fn next(&mut self, limits: &Limits, operation: &mut Operation) -> bool {
        operation.clear();
        match &self.map {
            Map::Pages { page_len, pieces, targets } => {
                let (len, region) = (*page_len, 0);
                let pages = pieces.indices.iter_from(self.place).zip(targets.indices.iter_from(self.place));
                let places = pages.map(|(piece, target)| Place {
                    piece: pieces.at(piece),
                    target: targets.at(target),
                    region,
                    len,
                });
                (self.place, self.within) = fill(operation, limits, places, self.place, self.within);
            }
            Map::Segments(segments) => {
                let places = segments[self.place..].iter().map(|segment| Place {
                    piece: segment.own,
                    target: segment.remote,
                    region: segment.region,
                    len: segment.len,
                });
                (self.place, self.within) = fill(operation, limits, places, self.place, self.within);
            }
        }
        operation.bytes > 0
    }

    /// Returns `true` if a part of a page is in an operation, and the rest must follow.
    pub fn is_in_page(&self) -> bool {
        self.within > 0
    }

    /// Returns the number of bytes of the current page that are in no operation.
    ///
    /// ```
    /// use farreach_proto::plan::{Limits, Operation, Pages, Plan};
    ///
    /// let page = || (Pages::contiguous(1, 10), 10);
    /// let mut plan = Plan::new(10, page(), page())?;
    /// let limits = Limits { bytes: 4, pieces: 1, targets: 1, pages: 1, is_ordered: false };
    /// let (mut operation, mut left) = (Operation::default(), vec![plan.left_in_page()]);
    /// while plan.next(&limits, &mut operation) && plan.is_in_page() {
    ///     left.push(plan.left_in_page());
    /// }
    /// assert_eq!(left, [10, 6, 2]);
    /// # Ok::<(), farreach_proto::plan::PlanError>(())
    /// ```
    pub fn left_in_page(&self) -> u64 {
        self.page_len() - self.within
    }

    /// Begins the current page again from its first byte. Returns how many of its bytes were in operations.
    pub fn restart_page(&mut self) -> u64 {
        std::mem::take(&mut self.within)
    }

    /// Returns the bytes of its lists of pages.
    ///
    /// ```
    /// use farreach_proto::plan::{Pages, Plan};
    ///
    /// // Pages that follow each other need no list.
    /// let (source, indices) = (Pages::contiguous(1000, 64), (0..1000).rev().collect());
    /// let destination = Pages { indices, ..source.clone() };
    /// let plan = Plan::new(64, (source, 64_000), (destination, 64_000))?;
    /// assert_eq!(plan.memory(), 4 * 1000);
    /// # Ok::<(), farreach_proto::plan::PlanError>(())
    /// ```
    pub fn memory(&self) -> usize {
        match &self.map {
            Map::Pages { pieces, targets, .. } => pieces.indices.memory() + targets.indices.memory(),
            Map::Segments(segments) => size_of_val(&**segments),
        }
    }

    /// Drops all pages that are not in an operation yet.
    pub fn abort(&mut self) {
        // `within`, too: behind the last page there is no length from which it could be subtracted.
        (self.place, self.within) = (self.map.count(), 0);
    }

    /// Returns the length of the current page in bytes. Segments have different lengths.
    #[inline]
    pub fn page_len(&self) -> u64 {
        match &self.map {
            Map::Pages { page_len, .. } => *page_len,
            // Behind the last one there is no page.
            Map::Segments(segments) => segments.get(self.place).map_or(0, |segment| segment.len),
        }
    }

    /// Returns the number of pages of the whole transfer.
    pub fn pages(&self) -> usize {
        self.map.count()
    }

    /// Returns the number of pages that are not completely in operations yet.
    pub fn pages_left(&self) -> usize {
        self.map.count() - self.place
    }
}

/// Fills an operation with pages from the one at `place` on, of which `within` bytes are in operations
/// already. Returns both for the next operation.
#[inline]
fn fill(
    operation: &mut Operation,
    limits: &Limits,
    places: impl Iterator<Item = Place>,
    mut place: usize,
    mut within: u64,
) -> (usize, u64) {
    // The ends of the last extents.
    let (mut piece_end, mut target_end) = (None, None);
    for page in places.take(limits.pages as usize) {
        let left = page.len - within;
        let room = limits.bytes.saturating_sub(operation.bytes);
        let len = match left <= room {
            true => left,
            // A page alone in its operation is split.
            false if operation.bytes == 0 => room,
            false => break,
        };
        // An operation has one remote key.
        if operation.bytes == 0 {
            operation.region = page.region;
        } else if operation.region != page.region {
            break;
        }
        let from = Extent { offset: page.piece + within, len };
        let to = Extent { offset: page.target + within, len };
        let (joins_piece, joins_target) = (piece_end == Some(from.offset), target_end == Some(to.offset));
        if (!joins_piece && operation.pieces.len() >= limits.pieces)
            || (!joins_target && operation.targets.len() >= limits.targets)
        {
            break;
        }
        append(&mut operation.pieces, from, joins_piece);
        append(&mut operation.targets, to, joins_target);
        (piece_end, target_end) = (Some(from.end()), Some(to.end()));
        operation.bytes += len;
        // The link has taken as much of the page as fits into an operation.
        if len < left {
            within += len;
            break;
        }
        // Reached with the last byte of a page only: its other parts count nothing.
        operation.pages += 1;
        (place, within) = (place + 1, 0);
    }
    (place, within)
}

/// Returns `true` if an extent continues the last one.
#[inline]
fn joins(extents: &[Extent], next: Extent) -> bool {
    extents.last().is_some_and(|last| last.end() == next.offset)
}

#[inline]
fn append(extents: &mut Vec<Extent>, next: Extent, joins: bool) {
    match extents.last_mut() {
        Some(last) if joins => last.len += next.len,
        _ => extents.push(next),
    }
}
