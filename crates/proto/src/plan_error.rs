//! Reasons for which a transfer cannot be planned.

/// A side of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The memory that bytes are read from.
    Source,
    /// The memory that bytes are written to.
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

/// Reasons for which pages cannot be moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The page length is 0.
    #[error("the page length is 0 bytes")]
    EmptyPage,
    /// The two sides have different numbers of pages.
    #[error("the source has {source_count} pages and the destination {destination_count}")]
    Counts {
        /// The number of source pages.
        source_count: usize,
        /// The number of destination pages.
        destination_count: usize,
    },
    /// A page ends beyond its memory.
    #[error("page {index} of the {side} ends beyond its {memory_len} bytes")]
    OutOfBounds {
        /// The side of the page.
        side: Side,
        /// The index of the page.
        index: u32,
        /// The length of that memory in bytes.
        memory_len: u64,
    },
    /// Pages overlap.
    #[error("pages of the {side} overlap: they have {page_len} bytes and a stride of {stride}")]
    Overlap {
        /// The side of the pages.
        side: Side,
        /// The stride in bytes.
        stride: u64,
        /// The page length in bytes.
        page_len: u64,
    },
    /// A page would be written twice, in no defined order.
    #[error("page {index} of the destination occurs twice")]
    Repeated {
        /// The index of the page.
        index: u32,
    },
    /// A segment has no bytes.
    #[error("segment {segment} has no bytes")]
    EmptySegment {
        /// The index of the segment.
        segment: usize,
    },
    /// A segment ends beyond its region of the peer's memory.
    #[error("segment {segment} ends beyond the {region_len} bytes of the peer's memory")]
    SegmentOutOfBounds {
        /// The index of the segment.
        segment: usize,
        /// The length of the region in bytes.
        region_len: u64,
    },
    /// A byte would be written by two segments, in no defined order.
    #[error("segments {first} and {second} overlap at the destination")]
    SegmentsOverlap {
        /// The index of one segment.
        first: usize,
        /// The index of the other one.
        second: usize,
    },
}
