//! The deadlines of transfers, by due time.

use std::collections::BTreeSet;

use super::PeerKey;
use crate::outbox::TransferId;
use crate::time::Time;

/// The deadlines of the transfers that have one and have not ended. A step looks at the first one only,
/// so transfers without a deadline cost nothing, and those with one cost a search when they begin and
/// when they end.
#[derive(Debug, Default)]
pub(super) struct Deadlines(BTreeSet<(Time, PeerKey, TransferId)>);

impl Deadlines {
    pub(super) fn add(&mut self, at: Time, peer: PeerKey, transfer: TransferId) {
        self.0.insert((at, peer, transfer));
    }

    /// Removes the deadline of a transfer that has ended.
    pub(super) fn remove(&mut self, at: Time, peer: PeerKey, transfer: TransferId) {
        self.0.remove(&(at, peer, transfer));
    }

    /// Returns `true` if a transfer has this deadline, which has not passed.
    pub(super) fn has(&self, at: Time, peer: PeerKey, transfer: TransferId) -> bool {
        self.0.contains(&(at, peer, transfer))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the first deadline.
    #[inline]
    pub(super) fn next_at(&self) -> Option<Time> {
        self.0.first().map(|(at, ..)| *at)
    }

    /// Removes a deadline that has passed, and returns its transfer.
    #[inline]
    pub(super) fn take_passed(&mut self, now: Time) -> Option<(PeerKey, TransferId)> {
        let (_, peer, transfer) = *self.0.first().filter(|(at, ..)| *at <= now)?;
        self.0.pop_first();
        Some((peer, transfer))
    }
}
