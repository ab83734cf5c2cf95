//! Rails that cannot wake anybody: one has to look.
//!
//! Nobody looks for ever. A side that has something under way on such a rail, or has heard of something there, looks for a while, and
//! then sleeps as if the rail were not there. Whoever posts to it tells the other side so by a frame, which wakes it: when it begins,
//! and again and again while something is under way.

use std::time::Duration;

use super::{Machine, PeerKey};
use crate::wire::Frame;

/// How long a side looks after it has heard of something. It is longer than [`TELL_EVERY`] by more than a busy machine delays a thread;
/// what comes later all the same is found at the next heartbeat.
const LOOK_FOR: u64 = 60_000_000;

/// How often the other side is told.
const TELL_EVERY: u64 = 20_000_000;

impl Machine {
    /// For how long nothing has come or gone on rails that cannot wake anybody; none where nothing is expected there, so that one may
    /// sleep.
    pub fn quiet_for(&self, now: u64) -> Option<Duration> {
        let is_expecting = now < self.look_until || self.is_any_polled_busy();
        is_expecting.then(|| Duration::from_nanos(now.saturating_sub(self.moved_at)))
    }

    fn is_any_polled_busy(&self) -> bool {
        let is_busy =
            |rail: &super::RailState| rail.must_be_polled && rail.dead.is_none() && rail.in_flight > 0;
        self.rails.iter().any(is_busy)
    }

    /// Something has come over a rail.
    pub fn moved(&mut self, rail: usize) {
        if self.rails[rail].must_be_polled {
            self.moved_at = self.now;
            self.look_until = self.now + LOOK_FOR;
        }
    }

    /// The peer has something for us.
    pub(super) fn on_look(&mut self) {
        self.moved_at = self.now;
        self.look_until = self.now + LOOK_FOR;
    }

    /// Something was posted to a rail.
    #[inline]
    pub(super) fn posted_to(&mut self, key: PeerKey, rail: usize) {
        self.rails[rail].in_flight += 1;
        if self.rails[rail].must_be_polled {
            self.moved_at = self.now;
            self.tell_to_look(key, rail);
        }
    }

    /// Something is under way on a rail: the peer is to look.
    pub(super) fn tell_to_look(&mut self, key: PeerKey, rail: usize) {
        if !self.rails[rail].must_be_polled {
            return;
        }
        let now = self.now;
        let Some(peer) = self.peer(key).filter(|peer| !peer.is_lost()) else { return };
        if peer.told_to_look_at.is_none_or(|told| now >= told + TELL_EVERY) {
            peer.told_to_look_at = Some(now);
            self.send(key, Frame::Look);
        }
    }
}
