//! What rails tell.

use farreach_memory::Buffers;

use crate::{LinkKey, RailError};

/// What has happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request is done with: its buffers are back, whether it went well or not.
    Completed {
        /// What it was posted with.
        tag: u64,
        /// Its buffers.
        buffers: Buffers,
        /// How it went. After a failure the link that it was posted to is of no use any more, and is to be closed.
        outcome: Result<(), RailError>,
    },
    /// A peer has written with an immediate, and the bytes are there.
    Immediate {
        /// Over which link, where it is [known](crate::Properties::immediates_name_link).
        link: Option<LinkKey>,
        /// The immediate.
        bits: u32,
    },
    /// A message has come. Room for the next one is made by the provider.
    Message {
        /// Over which link, where it is known.
        link: Option<LinkKey>,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A link is of no use any more, though nothing was posted to it that could say so.
    LinkDown {
        /// Which.
        link: LinkKey,
        /// Why.
        reason: RailError,
    },
}
