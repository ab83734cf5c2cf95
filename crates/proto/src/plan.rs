//! Pages into operations: bounds checked first, neighbours joined.

/// Which pages of a memory, and where in it they lie: page `n` begins at `offset + indices[n] × stride`.
///
/// ```
/// use farreach_proto::plan::Pages;
///
/// // Every other page of 4 KiB, behind a header.
/// let pages = Pages { indices: vec![0, 2, 4], stride: 4096, offset: 64 };
/// assert_eq!(pages.start(1), Some(64 + 2 * 4096));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pages {
    /// The pages, in the order of the transfer.
    pub indices: Vec<u32>,
    /// From the beginning of one page to that of the next.
    pub stride: u64,
    /// Where page 0 begins.
    pub offset: u64,
}

impl Pages {
    /// The first `count` pages of `len` bytes, one after the other.
    pub fn contiguous(count: u32, len: u64) -> Self {
        Self { indices: (0..count).collect(), stride: len, offset: 0 }
    }

    /// Where the page of this place in the transfer begins; none where there is no such page, or no such address.
    pub fn start(&self, place: usize) -> Option<u64> {
        let index = u64::from(*self.indices.get(place)?);
        self.offset.checked_add(index.checked_mul(self.stride)?)
    }

    /// Whether all pages, of `page_len` bytes, lie within `memory_len`.
    fn check(&self, side: Side, page_len: u64, memory_len: u64) -> Result<(), PlanError> {
        if self.stride < page_len && self.indices.len() > 1 {
            return Err(PlanError::Overlap { side, stride: self.stride, page_len });
        }
        for (place, index) in self.indices.iter().enumerate() {
            let end = self.start(place).and_then(|start| start.checked_add(page_len));
            if end.is_none_or(|end| end > memory_len) {
                return Err(PlanError::OutOfBounds { side, index: *index, memory_len });
            }
        }
        Ok(())
    }

    /// The first index that is there twice.
    fn repeated(&self) -> Option<u32> {
        let last = *self.indices.iter().max()? as usize;
        // A bit for each page that could be there, unless those are far more than are.
        if last / 32 <= self.indices.len() {
            let mut seen = vec![0_u64; last / 64 + 1];
            return self.indices.iter().copied().find(|index| {
                let (word, bit) = (&mut seen[*index as usize / 64], 1 << (index % 64));
                let is_seen = *word & bit != 0;
                *word |= bit;
                is_seen
            });
        }
        let mut sorted = self.indices.clone();
        sorted.sort_unstable();
        sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
    }
}

/// What one operation of a link can do: its card and library say so.
///
/// ```
/// use farreach_proto::plan::Limits;
///
/// let soft_roce = Limits { bytes: 1 << 31, pieces: 32, targets: 1, pages: 1024, is_ordered: true };
/// assert!(soft_roce.is_usable());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub bytes: u64,
    /// Ranges of local memory.
    pub pieces: usize,
    /// Ranges of remote memory.
    pub targets: usize,
    /// Pages: as many as can be counted at once.
    pub pages: u32,
    /// Whether operations land in the order of posting.
    pub is_ordered: bool,
}

impl Limits {
    /// Whether anything can be done within them.
    pub fn is_usable(&self) -> bool {
        self.bytes > 0 && self.pieces > 0 && self.targets > 0 && self.pages > 0
    }
}

/// Whose memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where the bytes come from.
    Source,
    /// Where they go.
    Destination,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
        })
    }
}

/// Why pages cannot be moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A page without bytes.
    #[error("pages of 0 bytes")]
    EmptyPage,
    /// The two sides have different numbers of pages.
    #[error("{source_count} pages of the source for {destination_count} of the destination")]
    Counts {
        /// Pages of the source.
        source_count: usize,
        /// Pages of the destination.
        destination_count: usize,
    },
    /// A page reaches beyond its memory.
    #[error("page {index} of the {side} reaches beyond its {memory_len} bytes")]
    OutOfBounds {
        /// Whose.
        side: Side,
        /// Which.
        index: u32,
        /// How long that memory is.
        memory_len: u64,
    },
    /// Pages that overlap.
    #[error("pages of {page_len} bytes, {stride} apart: those of the {side} overlap")]
    Overlap {
        /// Whose.
        side: Side,
        /// From one to the next.
        stride: u64,
        /// How long each is.
        page_len: u64,
    },
    /// A page that would be written twice, in no order.
    #[error("page {index} of the destination is there twice")]
    Repeated {
        /// Which.
        index: u32,
    },
}

/// A range of bytes in a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes.
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

/// What a link is asked to do: bytes of one side's ranges to those of the other, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operation {
    /// Of the source.
    pub pieces: Vec<Extent>,
    /// Of the destination: as many bytes.
    pub targets: Vec<Extent>,
    /// How many bytes.
    pub bytes: u64,
    /// How many pages are whole with it.
    pub pages: u32,
}

impl Operation {
    /// The same bytes in operations that these limits allow, of which only the last one says that the pages are whole.
    ///
    /// ```
    /// use farreach_proto::plan::{Extent, Limits, Operation};
    ///
    /// let pieces = vec![Extent { offset: 0, len: 10 }, Extent { offset: 50, len: 10 }];
    /// let targets = vec![Extent { offset: 7, len: 20 }];
    /// let whole = Operation { pieces, targets, bytes: 20, pages: 2 };
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
        let mut parts = vec![Self::default()];
        let (mut pieces, mut targets) = (self.pieces.into_iter(), self.targets.into_iter());
        let (mut piece, mut target) = (pieces.next(), targets.next());
        while let (Some(from), Some(to)) = (&mut piece, &mut target) {
            let part = parts.last_mut().expect("there is always one");
            let len = from.len.min(to.len).min(limits.bytes - part.bytes);
            let (next_from, next_to) =
                (Extent { offset: from.offset, len }, Extent { offset: to.offset, len });
            let has_room = len > 0
                && fits_in(&part.pieces, next_from, limits.pieces)
                && fits_in(&part.targets, next_to, limits.targets);
            if !has_room {
                parts.push(Self::default());
                continue;
            }
            append(&mut part.pieces, next_from);
            append(&mut part.targets, next_to);
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
        parts.last_mut().expect("there is always one").pages = self.pages;
        parts
    }

    fn clear(&mut self) {
        self.pieces.clear();
        self.targets.clear();
        (self.bytes, self.pages) = (0, 0);
    }
}

/// How pages become operations, one after the other: nothing is made before it is asked for, so that a million pages cost no
/// more memory than their list.
///
/// ```
/// use farreach_proto::plan::{Limits, Operation, Pages, Plan};
///
/// let source = Pages::contiguous(4, 4096);
/// // The first two land beside each other, the others elsewhere.
/// let destination = Pages { indices: vec![6, 7, 3, 1], stride: 4096, offset: 0 };
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
    page_len: u64,
    source: Pages,
    destination: Pages,
    /// The page that is next, and how many of its bytes are done.
    place: usize,
    within: u64,
}

impl Plan {
    /// Checks every page of both sides, each with the length of its memory.
    pub fn new(
        page_len: u64,
        (source, source_len): (Pages, u64),
        (destination, destination_len): (Pages, u64),
    ) -> Result<Self, PlanError> {
        let (source_count, destination_count) = (source.indices.len(), destination.indices.len());
        if page_len == 0 {
            return Err(PlanError::EmptyPage);
        }
        if source_count != destination_count {
            return Err(PlanError::Counts { source_count, destination_count });
        }
        source.check(Side::Source, page_len, source_len)?;
        destination.check(Side::Destination, page_len, destination_len)?;
        if let Some(index) = destination.repeated() {
            return Err(PlanError::Repeated { index });
        }
        Ok(Self { page_len, source, destination, place: 0, within: 0 })
    }

    /// For reading: the source is the peer's, where a page may be read twice, and the destination ours. The plan's operations have the
    /// ranges of our own memory as pieces and the peer's as targets, as those of a write have.
    pub fn reading(
        page_len: u64,
        (source, source_len): (Pages, u64),
        (destination, destination_len): (Pages, u64),
    ) -> Result<Self, PlanError> {
        let plan = Self::new(page_len, (source, source_len), (destination, destination_len))?;
        Ok(Self { source: plan.destination, destination: plan.source, ..plan })
    }

    /// The next operation, for a link with these limits; `false` where nothing is left. `operation` is filled anew, and keeps its
    /// room: asking allocates nothing after the first time.
    ///
    /// A page is cut only where it does not fit into an operation of its own, and only for a link that keeps the order: on another
    /// one, the end of a page could be counted before its beginning is there. Then it is one operation all the same, and the link
    /// must refuse it.
    pub fn next(&mut self, limits: &Limits, operation: &mut Operation) -> bool {
        operation.clear();
        while self.place < self.source.indices.len() && operation.pages < limits.pages {
            let left = self.page_len - self.within;
            let room = limits.bytes.saturating_sub(operation.bytes);
            let len = match left <= room {
                true => left,
                // A page of its own, cut.
                false if operation.bytes == 0 && limits.is_ordered => room,
                false if operation.bytes == 0 => left,
                false => break,
            };
            let (from, to) = (self.extent(&self.source, len), self.extent(&self.destination, len));
            if !fits_in(&operation.pieces, from, limits.pieces)
                || !fits_in(&operation.targets, to, limits.targets)
            {
                break;
            }
            append(&mut operation.pieces, from);
            append(&mut operation.targets, to);
            operation.bytes += len;
            self.within += len;
            if self.within == self.page_len {
                operation.pages += 1;
                (self.place, self.within) = (self.place + 1, 0);
            }
        }
        operation.bytes > 0
    }

    /// Whether a page was begun, and the rest of it is to follow.
    pub fn is_in_page(&self) -> bool {
        self.within > 0
    }

    /// The page that was begun comes again, whole.
    pub fn restart_page(&mut self) {
        self.within = 0;
    }

    /// Bytes of its lists of pages.
    ///
    /// ```
    /// use farreach_proto::plan::{Pages, Plan};
    ///
    /// let pages = Pages::contiguous(1000, 64);
    /// let plan = Plan::new(64, (pages.clone(), 64_000), (pages, 64_000))?;
    /// assert_eq!(plan.memory(), 2 * 4 * 1000);
    /// # Ok::<(), farreach_proto::plan::PlanError>(())
    /// ```
    pub fn memory(&self) -> usize {
        (self.source.indices.capacity() + self.destination.indices.capacity()) * size_of::<u32>()
    }

    /// Nothing more is asked for.
    pub fn abort(&mut self) {
        (self.place, self.within) = (self.source.indices.len(), 0);
    }

    /// The bytes of a page.
    pub fn page_len(&self) -> u64 {
        self.page_len
    }

    /// Pages of the whole transfer.
    pub fn pages(&self) -> usize {
        self.source.indices.len()
    }

    /// Pages that are not in an operation yet, or not wholly.
    pub fn pages_left(&self) -> usize {
        self.source.indices.len() - self.place
    }

    /// The next bytes of a side. Every page was checked, so that it has them, and no number is too large.
    fn extent(&self, pages: &Pages, len: u64) -> Extent {
        let index = u64::from(pages.indices[self.place]);
        Extent { offset: pages.offset + index * pages.stride + self.within, len }
    }
}

/// Whether a range joins the last one, or there is room for one more.
fn fits_in(extents: &[Extent], next: Extent, max: usize) -> bool {
    extents.len() < max || extents.last().is_some_and(|last| last.end() == next.offset)
}

fn append(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.end() == next.offset => last.len += next.len,
        _ => extents.push(next),
    }
}
