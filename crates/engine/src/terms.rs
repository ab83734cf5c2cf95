//! The priority and the deadline that a handle of a peer gives to its transfers.

use std::time::Duration;

use farreach_proto::priority::Priority;

/// The terms of transfers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terms {
    pub(crate) priority: Priority,
    /// The time from the start of a transfer to its deadline.
    pub(crate) deadline_after: Option<Duration>,
}
