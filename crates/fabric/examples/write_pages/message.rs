//! What the two say to each other: a version, and one of these, in postcard's encoding.

use serde::{Deserialize, Serialize};

/// Both sides must have the same.
pub(crate) const VERSION: u8 = 1;

/// The most that a message has: a request that names [`PAGES_MAX`](crate::plan::PAGES_MAX) pages, with room to spare.
pub(crate) const SIZE_MAX: usize = 64 << 10;

/// The regions of a client.
pub(crate) const REGIONS: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The client's first word: where it is, and its memory.
    Connect { version: u8, address: Vec<u8>, regions: [Region; REGIONS] },
    /// The server knows the client now, by this number.
    Welcome { client: u32 },
    /// Fill these pages of both regions.
    Fill { client: u32, fill: Fill },
    /// It will be done: so many of the writes carry the request's number as immediate data.
    Accepted { number: u32, told: u32 },
    /// It will not be done, and nothing was written.
    Refused { number: u32, reason: String },
    /// The client needs nothing more, and its memory may go.
    Goodbye { client: u32 },
}

/// Memory that the server may write to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Region {
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) key: u64,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fill {
    /// The client's number for it, which the immediate data is.
    pub(crate) number: u32,
    /// Where the random bytes begin.
    pub(crate) seed: u64,
    pub(crate) page_size: u64,
    /// Which pages, in each region: counted in pages from its beginning.
    pub(crate) pages: Vec<u32>,
}

impl Message {
    /// Writes it down; how many bytes it took.
    pub(crate) fn encode(&self, into: &mut [u8]) -> Option<usize> {
        postcard::to_slice(self, into).ok().map(|bytes| bytes.len())
    }

    /// Reads one; nothing where it is none, or not all of it is.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => Some(message),
            _ => None,
        }
    }
}
