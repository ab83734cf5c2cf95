//! Events of a link.

use farreach_memory::Buffers;

use crate::error::{LinkError, OperationError};

/// An event of a link.
#[derive(Debug)]
pub enum Event<'a> {
    /// An operation is complete. Its buffers are free, whether it succeeded or failed.
    Completed {
        /// The tag that it was posted with.
        tag: u64,
        /// Its buffers.
        buffers: Buffers,
        /// The result. A write that succeeded has landed.
        outcome: Result<(), OperationError>,
    },
    /// The peer has written with an immediate, and all bytes are there.
    Immediate(u32),
    /// A message has arrived.
    Message(&'a [u8]),
    /// It is proven that the peer does not use a grant any more.
    GrantEnded {
        /// The key of the grant.
        key: u64,
    },
    /// The link has ended. Grants may end later.
    Down(LinkError),
}
