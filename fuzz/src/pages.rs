//! Page maps: every page within its memory, and moved once.

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Unstructured};
use farreach_proto::plan::{Extent, Limits, Operation, Pages, Plan};

#[derive(Debug, Arbitrary)]
struct Input {
    page_len: Number,
    source: Side,
    destination: Side,
    /// The limits of links, which take turns.
    links: [Link; 2],
    is_reading: bool,
    /// Begin the current page again after this many operations.
    restarts_after: u8,
}

/// Small numbers are far more often interesting than others.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Number {
    Small(u8),
    Middle(u16),
    Any(u64),
    FromTop(u8),
}

impl Number {
    fn get(self) -> u64 {
        match self {
            Self::Small(number) => number.into(),
            Self::Middle(number) => number.into(),
            Self::Any(number) => number,
            Self::FromTop(number) => u64::MAX - u64::from(number),
        }
    }
}

#[derive(Debug, Arbitrary)]
struct Side {
    memory_len: Number,
    stride: Number,
    offset: Number,
    indices: Vec<Index>,
}

#[derive(Debug, Arbitrary)]
enum Index {
    Near(u8),
    Any(u32),
}

#[derive(Debug, Arbitrary)]
struct Link {
    bytes: Number,
    pieces: u8,
    targets: u8,
    pages: u16,
    is_ordered: bool,
}

impl Side {
    fn pages(&self) -> (Pages, u64) {
        let index = |index: &Index| match *index {
            Index::Near(index) => index.into(),
            Index::Any(index) => index,
        };
        let indices = self.indices.iter().map(index).collect();
        let pages = Pages { indices, stride: self.stride.get(), offset: self.offset.get() };
        (pages, self.memory_len.get())
    }
}

impl Link {
    fn limits(&self) -> Limits {
        Limits {
            bytes: self.bytes.get(),
            pieces: self.pieces.into(),
            targets: self.targets.into(),
            pages: self.pages.into(),
            is_ordered: self.is_ordered,
        }
    }
}

/// More operations than this are not looked at: a page of 2^64 bytes has as many.
const OPERATIONS_MAX: usize = 2000;

pub(crate) fn run(input: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(input)) else { return };
    let (page_len, source, destination) =
        (input.page_len.get(), input.source.pages(), input.destination.pages());
    let create = if input.is_reading { Plan::reading } else { Plan::new };
    let Ok(mut plan) = create(page_len, source.clone(), destination.clone()) else { return };
    let (local, remote) = if input.is_reading { (destination, source) } else { (source, destination) };
    assert_eq!(plan.pages(), local.0.indices.len());
    let limits: Vec<Limits> = input.links.iter().map(Link::limits).filter(Limits::is_usable).collect();
    if limits.is_empty() {
        return;
    }
    let (mut operation, mut moved, mut pages, mut link) = (Operation::default(), Moved::default(), 0, 0);
    for turn in 0..OPERATIONS_MAX {
        // The rest of a page follows over the same link.
        if !plan.is_in_page() {
            link = turn % limits.len();
        }
        let of_link = &limits[link];
        let left = plan.pages_left();
        if !plan.next(of_link, &mut operation) {
            assert!(plan.pages_left() == 0, "nothing is left");
            assert_eq!(pages, local.0.indices.len());
            moved.check_whole(page_len, &local.0, &remote.0);
            return;
        }
        check(&operation, of_link, page_len, (local.1, remote.1));
        assert_eq!(left - plan.pages_left(), operation.pages as usize);
        if input.restarts_after > 0 && turn % usize::from(input.restarts_after) == 0 && plan.is_in_page() {
            // The page is moved again, from its beginning: its bytes do not count twice.
            plan.restart_page();
            moved.is_repeated = true;
        }
        let of_other = &limits[(turn + 1) % limits.len()];
        // Links that move a few bytes at a time would need as many parts.
        if operation.bytes / of_other.bytes < 100 {
            let parts = operation.clone().split(of_other);
            assert_eq!(parts.iter().map(|part| part.bytes).sum::<u64>(), operation.bytes);
            assert_eq!(parts.iter().map(|part| part.pages).sum::<u32>(), operation.pages);
        }
        pages += operation.pages as usize;
        moved.add(&operation);
    }
    plan.abort();
    assert!(!plan.next(&limits[0], &mut operation));
}

/// Checks an operation against the limits of its link and the memory of both sides.
fn check(operation: &Operation, limits: &Limits, page_len: u64, (local_len, remote_len): (u64, u64)) {
    let sum = |extents: &[Extent]| extents.iter().map(|extent| extent.len).sum::<u64>();
    assert_eq!((sum(&operation.pieces), sum(&operation.targets)), (operation.bytes, operation.bytes));
    // A link without order cannot split a page, and refuses what exceeds its limits.
    if limits.is_ordered || operation.bytes <= limits.bytes {
        assert!(operation.bytes <= limits.bytes && operation.pages <= limits.pages);
    } else {
        assert_eq!(operation.bytes, page_len);
    }
    assert!(operation.pieces.len() <= limits.pieces && operation.targets.len() <= limits.targets);
    for (extents, len) in [(&operation.pieces, local_len), (&operation.targets, remote_len)] {
        let is_within = |extent: &Extent| extent.offset.checked_add(extent.len).is_some_and(|end| end <= len);
        assert!(extents.iter().all(|extent| extent.len > 0 && is_within(extent)));
    }
}

/// The bytes that were moved: by remote offset, the local offset and the length.
#[derive(Default)]
struct Moved {
    ranges: BTreeMap<u64, (u64, u64)>,
    is_repeated: bool,
}

impl Moved {
    fn add(&mut self, operation: &Operation) {
        let (mut pieces, mut targets) = (operation.pieces.iter(), operation.targets.iter());
        let (mut piece, mut target) = (pieces.next().copied(), targets.next().copied());
        while let (Some(from), Some(to)) = (&mut piece, &mut target) {
            let len = from.len.min(to.len);
            self.ranges.insert(to.offset, (from.offset, len));
            for extent in [&mut *from, to] {
                (extent.offset, extent.len) = (extent.offset + len, extent.len - len);
            }
            if piece.is_some_and(|piece| piece.len == 0) {
                piece = pieces.next().copied();
            }
            if target.is_some_and(|target| target.len == 0) {
                target = targets.next().copied();
            }
        }
    }

    /// Checks that each page was moved from its place to its place.
    fn check_whole(&self, page_len: u64, local: &Pages, remote: &Pages) {
        // Reads may take a page of the peer twice, which the map by remote offset does not show.
        let mut places: Vec<u64> =
            (0..remote.indices.len()).filter_map(|place| remote.start(place)).collect();
        places.sort_unstable();
        if self.is_repeated || places.windows(2).any(|pair| pair[0] == pair[1]) {
            return;
        }
        for place in 0..local.indices.len() {
            let (from, to) = (local.start(place).expect("checked"), remote.start(place).expect("checked"));
            let mut done = 0;
            while done < page_len {
                let at = to + done;
                let (start, (local_start, len)) = self.ranges.range(..=at).next_back().expect("it was moved");
                let skipped = at - start;
                assert!(skipped < *len && local_start + skipped == from + done, "page {place}, byte {done}");
                done += len - skipped;
            }
        }
    }
}
