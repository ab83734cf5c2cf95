//! The messages between client and server: a version, and one of these, in postcard's encoding.

use serde::{Deserialize, Serialize};

/// The version, which both sides must have.
pub(crate) const VERSION: u8 = 1;

/// The maximum length of a message in bytes: a request with [`PAGES_MAX`](crate::plan::PAGES_MAX)
/// pages, with a margin.
pub(crate) const SIZE_MAX: usize = 64 << 10;

/// The number of regions of a client.
pub(crate) const REGIONS: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The client's first message: its address, and its memory.
    Connect { version: u8, address: Vec<u8>, regions: [Region; REGIONS] },
    /// The server's answer: the client's number.
    Welcome { client: u32 },
    /// Asks to fill these pages of both regions.
    Fill { client: u32, fill: Fill },
    /// The request is accepted: `told` of the writes carry its number as immediate data.
    Accepted { number: u32, told: u32 },
    /// The request is refused, and nothing was written.
    Refused { number: u32, reason: String },
    /// The client is done, and its memory may be freed.
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
    /// The client's number for it, which is the immediate data.
    pub(crate) number: u32,
    /// The seed of the random bytes.
    pub(crate) seed: u64,
    pub(crate) page_size: u64,
    /// The pages in each region, by index.
    pub(crate) pages: Vec<u32>,
}

impl Message {
    /// Encodes it. Returns the number of bytes.
    pub(crate) fn encode(&self, into: &mut [u8]) -> Option<usize> {
        postcard::to_slice(self, into).ok().map(|bytes| bytes.len())
    }

    /// Decodes a message. Returns `None` if the bytes are not exactly one.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => Some(message),
            _ => None,
        }
    }
}
