//! Sends messages from regions by the safe API.

use std::ptr::null_mut;

use farreach_verbs_sys as sys;

use super::QueuePair;
use super::list::refusal;
use super::queue::{InFlight, Kept};
use super::start::send_wr;
use crate::cq::WorkKind;
use crate::wr::{Buffers, Extra, Operation, PostError, Refusal, RegionPart, SendFlags};

impl QueuePair {
    /// Posts a message that the device gathers from a region: `ibv_post_send(3)`. The work request
    /// holds the region until it has completed; its owner can use it, but not end it meanwhile. The
    /// completion returns `tag`.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use farreach_verbs::{dm::OnChipRegion, qp::QueuePair};
    /// use farreach_verbs::wr::RegionPart;
    ///
    /// # fn send(qp: &QueuePair, region: &Arc<OnChipRegion>) {
    /// let message = RegionPart::on_chip(region, 0..64).expect("the range is inside");
    /// if let Err(refused) = qp.post_send_from(message, 7) {
    ///     println!("{refused}; {}", refused.reason.fix());
    /// }
    /// # }
    /// ```
    pub fn post_send_from(&self, part: RegionPart, tag: u64) -> Result<(), PostError<RegionPart>> {
        match self.send_from(&part, tag) {
            Ok(()) => Ok(()),
            Err(reason) => Err(PostError { reason, request: part }),
        }
    }

    fn send_from(&self, part: &RegionPart, tag: u64) -> Result<(), Refusal> {
        let mr = part.region().mr();
        if mr.pd().id() != self.domain {
            return Err(Refusal::OtherDomain);
        }
        let Ok(length) = u32::try_from(part.len()) else {
            return Err(Refusal::too_long(part.len(), u32::MAX as usize));
        };
        let (operation, flags, extra) = (Operation::Send, SendFlags::default(), Extra::default());
        self.check(operation, &Buffers::None, flags, &extra, part.len())?;
        let mut poster = self.flight.send().ring.poster();
        let Some(room) = poster.room() else { return Err(self.full()) };
        let mut element = sys::ibv_sge { addr: part.address(), length, lkey: mr.lkey().0 };
        let mut wr = send_wr(self.next_id(&room), operation, flags, &extra, &raw mut element, 1);
        let kept = Kept::Region { _region: part.region().clone() };
        room.push(InFlight { tag, kind: WorkKind::Send, buffers: Buffers::None, kept });
        let mut bad = null_mut();
        // SAFETY: the queue pair lives as long as `self`. The element names bytes of a region of
        // its domain, within the region, as for every `RegionPart`. The ring holds the region, and
        // no reference to the bytes exists: they are the device's memory, or exposed to peers.
        let errno = unsafe { sys::ibv_post_send(self.as_raw(), &raw mut wr, &mut bad) };
        if errno == 0 {
            return Ok(());
        }
        let is_refused = std::ptr::eq(bad, &raw const wr);
        if is_refused {
            // SAFETY: the library names the work request as the one that it refused (`bad`), so no
            // completion of it will come.
            drop(unsafe { poster.take_back() });
        }
        Err(refusal(is_refused, self.failed("ibv_post_send", errno)))
    }
}
