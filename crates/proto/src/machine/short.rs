//! Short transfers that a rail performs within the call that asks for them.
//!
//! A rail whose operations are copies of this process can complete a short one at once. Such a
//! transfer passes no queue and is never in flight: the rail performs it, and the machine accounts it
//! afterwards. If anything is queued, or the rail does not perform it, nothing has happened, and the
//! transfer is [submitted](Machine::submit) as any other.

use std::sync::Arc;

use super::transfer::GrantedRange;
use super::{Direction, GrantRange, Machine, PeerKey};
use crate::counter::{CounterId, Immediate};
use crate::ids::GrantId;
use crate::plan::Extent;
use crate::priority::Priority;
use crate::rail::{LinkKey, RemoteSegment, WorkRequest};
use crate::stats::TransferStats;
use crate::time::Time;

/// A transfer of one page.
#[derive(Debug, Clone, Copy)]
pub struct ShortTransfer {
    /// The peer.
    pub peer: PeerKey,
    /// The direction.
    pub direction: Direction,
    /// The page in the memory of this side.
    pub own: Extent,
    /// The page in the range of the grant, with as many bytes.
    pub remote: Extent,
    /// The peer's grant.
    pub grant: GrantId,
    /// The offset in the grant of the range that the page lies within.
    pub base: u64,
    /// The length of that range in bytes.
    pub len: u64,
    /// The peer's counter that counts the page.
    pub counter: Option<CounterId>,
    /// It is performed only if nothing of this priority, or of one that goes first, is queued or in
    /// flight.
    pub priority: Priority,
    /// The time after which it is refused.
    pub deadline: Option<Time>,
}

/// The work request of a [`ShortTransfer`].
#[derive(Debug)]
pub struct ShortRequest {
    /// The rail.
    pub rail: usize,
    /// This side's end of the link.
    pub link: LinkKey,
    /// The operation.
    pub request: WorkRequest<'static>,
    /// The index among the peer's links.
    index: usize,
    immediate: Option<Immediate>,
    began_at: Time,
}

impl Machine {
    /// Returns the work request of a transfer that its rail may perform at once. Returns `None` if
    /// something is queued before it, or if the transfer is not possible.
    pub fn short_request(&mut self, new: &ShortTransfer, now: Time) -> Option<ShortRequest> {
        self.now = now;
        // Control work comes before each post: the link may be about to be closed.
        if self.has_control() || !self.turns.are_over(new.priority) {
            return None;
        }
        // It is refused where others are.
        if new.deadline.is_some_and(|deadline| deadline <= now) {
            return None;
        }
        let ShortTransfer { peer: key, direction, remote, grant, base, counter, .. } = *new;
        let peer = self.peers.get(key).filter(|peer| !peer.is_lost())?;
        let range = GrantRange { grant, base, len: new.len };
        let range = GrantedRange { direction, range, counter };
        let granted = peer.granted_for(&range, now).ok().filter(|_| within(remote, new.len))?;
        let index = peer.transfers.pick_short(remote.len, granted.scope(), new.priority)?;
        let link = &peer.links[index];
        let rail = &self.rails[link.rail()];
        if remote.len > rail.properties().performs_max || !rail.is_ready(link) {
            return None;
        }
        // If anything is missing here, the transfer is submitted, and waits or fails there.
        let (address, key) = granted.key_over(index, link)?;
        let address = address.checked_add(base)?.checked_add(remote.offset)?;
        let target = RemoteSegment { address, key, len: remote.len };
        let immediate = match counter {
            None => None,
            Some(counter) => Some(Immediate::new(counter, 1)?),
        };
        let request = match (direction, immediate) {
            (Direction::Read, _) => WorkRequest::Read { target },
            (Direction::Write, None) => WorkRequest::Write { target, immediate: None },
            (Direction::Write, Some(immediate)) => {
                let named = peer.counters.immediate_on(link.id(), immediate, link.needs_names())?;
                WorkRequest::Write { target, immediate: Some(named.to_bits()) }
            }
        };
        Some(ShortRequest { rail: link.rail(), link: link.key()?, request, index, immediate, began_at: now })
    }

    /// Accounts a transfer that its rail has performed. Returns its statistics.
    pub fn handle_performed(
        &mut self,
        new: &ShortTransfer,
        performed: &ShortRequest,
        now: Time,
    ) -> TransferStats {
        let ShortRequest { index, immediate, began_at, .. } = *performed;
        let peer = &mut self.peers[new.peer];
        let link = &mut peer.links[index];
        // As if it had been posted, so that the link is known to move.
        link.took_one(began_at);
        link.completed(true, now);
        peer.transfers.performed(index, new.own.len, immediate);
        let rails = peer.links.iter().map(|link| Arc::clone(self.rails[link.rail()].name()));
        let mut stats = TransferStats::begin(1, rails, began_at);
        let share = &mut stats.links[index];
        (share.link, share.operations, share.bytes) = (peer.links[index].id().0, 1, new.own.len);
        share.immediates = u64::from(immediate.is_some());
        // The bytes are in the memory of the peer when the rail returns.
        stats.delivered = new.own.len;
        stats.end(now);
        stats
    }
}

fn within(extent: Extent, len: u64) -> bool {
    extent.offset.checked_add(extent.len).is_some_and(|end| end <= len)
}
