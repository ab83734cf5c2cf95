//! Events of rails.

use farreach_memory::Buffers;

use crate::{KeyId, LinkKey, RailError, RequestError};

/// An event of a rail.
#[derive(Debug)]
pub enum Event<'a> {
    /// A work request is completed. Its buffers are free, whether it succeeded or failed.
    Completed {
        /// The tag that it was posted with.
        tag: u64,
        /// Its buffers.
        buffers: Buffers,
        /// The result. An error says what can no longer be used. A rail whose operations are
        /// [ordered](crate::Limits::is_ordered) has errors of links only: requests after one that
        /// fails may count its pages.
        outcome: Result<(), RequestError>,
    },
    /// A peer has written with an immediate, and the bytes have arrived.
    Immediate {
        /// The link over which it came, if it is [known](crate::Properties::immediates_name_link).
        link: Option<LinkKey>,
        /// The immediate.
        bits: u32,
    },
    /// A message has arrived. The rail makes room for the next one.
    Message {
        /// The link over which it came, if it is known.
        link: Option<LinkKey>,
        /// Its content.
        bytes: &'a [u8],
    },
    /// A key is [bound](crate::Rail::bind_key) to a link, or cannot be bound.
    KeyBound {
        /// The link.
        link: LinkKey,
        /// The tag that the binding was asked for with.
        tag: u64,
        /// The address of the memory and the key, for the peer; or the reason. After a failure, the
        /// link can no longer be used and must be closed.
        bound: Result<(u64, u64), RailError>,
    },
    /// It is proven that no operation of a peer lands any more with a key that was
    /// [ended](crate::Rail::end_key), where ended keys are
    /// [reported](crate::EndedKeys::Reported).
    KeyEnded {
        /// The key.
        key: KeyId,
    },
    /// A link has failed, although no work request on it could report that.
    LinkDown {
        /// The link.
        link: LinkKey,
        /// The reason.
        reason: RailError,
    },
}
