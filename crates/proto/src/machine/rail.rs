//! The machine's state of a rail.

use super::PeerKey;
use super::id_map::IdMap;
use super::peer::{Link, Phase};
use std::sync::Arc;

use crate::rail::{LinkKey, Properties, RailError, Scope};
use crate::time::Time;

/// Describes a rail to the machine.
#[derive(Debug, Clone)]
pub struct RailInfo {
    /// Its properties.
    pub properties: Properties,
    /// `true` if it cannot wake a sleeping driver.
    pub must_be_polled: bool,
}

/// A rail of this side, with the links over it.
#[derive(Debug)]
pub(super) struct RailState {
    properties: Properties,
    /// The name in `properties`, for the statistics of transfers.
    name: Arc<str>,
    /// The owner of each link. Contains closed links, too, as long as operations of them are in
    /// flight.
    links: IdMap<LinkKey, (PeerKey, usize)>,
    /// The number of resets.
    generation: u64,
    life: Life,
    /// The number of work requests in flight, including those of closed links.
    in_flight: usize,
    /// `true` if it cannot wake a sleeping driver.
    must_be_polled: bool,
}

/// The state of a rail.
#[derive(Debug)]
enum Life {
    Alive,
    /// A reset is due: nothing is posted until then.
    ResetAsked {
        since: Time,
    },
    /// The reset is in progress.
    Resetting,
    /// The rail can no longer be used.
    Dead(RailError),
}

impl RailState {
    pub(super) fn new(info: RailInfo) -> Self {
        Self {
            name: info.properties.name.as_str().into(),
            properties: info.properties,
            must_be_polled: info.must_be_polled,
            links: IdMap::default(),
            generation: 0,
            life: Life::Alive,
            in_flight: 0,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    #[inline]
    pub(super) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(super) fn scope(&self) -> Scope {
        self.properties.scope
    }

    /// Returns `true` if a link over it may have one more work request in flight.
    #[inline]
    pub(super) fn has_room(&self, link: &Link) -> bool {
        // Pages keep to a smaller window in their outbox, so messages find room beside them.
        link.in_flight() < self.properties.window
    }

    /// Returns `true` if a link over it is in use.
    pub(super) fn is_ready(&self, link: &Link) -> bool {
        // The reset waits for what is in flight, so nothing is added to it.
        link.phase() == Phase::Ready && !self.is_resetting()
    }

    /// Returns the peer of a link, and the index among the peer's links.
    pub(super) fn owner(&self, link: LinkKey) -> Option<(PeerKey, usize)> {
        self.links.get(&link).copied()
    }

    pub(super) fn add_link(&mut self, link: LinkKey, peer: PeerKey, index: usize) {
        self.links.insert(link, (peer, index));
    }

    pub(super) fn remove_link(&mut self, link: Option<LinkKey>) {
        if let Some(link) = link {
            self.links.remove(&link);
        }
    }

    /// Iterates over its links, with their peers and the indices among their links.
    pub(super) fn links(&self) -> impl Iterator<Item = (LinkKey, (PeerKey, usize))> {
        self.links.iter().map(|(link, owner)| (*link, *owner))
    }

    /// Returns the number of work requests in flight, including those of closed links.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Returns the number of resets.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns `true` if a reset is in progress or due.
    pub(super) fn is_resetting(&self) -> bool {
        matches!(self.life, Life::ResetAsked { .. } | Life::Resetting)
    }

    /// Returns the error for which the rail can no longer be used.
    pub(super) fn death(&self) -> Option<&RailError> {
        match &self.life {
            Life::Dead(error) => Some(error),
            _ => None,
        }
    }

    /// Returns `true` if links can be created over it.
    pub(super) fn is_usable(&self) -> bool {
        matches!(self.life, Life::Alive)
    }

    /// Asks for a reset. Returns `true` if none was asked for before.
    pub(super) fn ask_reset(&mut self, now: Time) -> bool {
        // Several links of a rail, and several peers, have the same reason at the same time.
        let is_new = self.is_usable();
        if is_new {
            self.life = Life::ResetAsked { since: now };
        }
        is_new
    }

    /// Returns the time since which a reset is due that has not begun.
    pub(super) fn reset_asked_at(&self) -> Option<Time> {
        match self.life {
            Life::ResetAsked { since } => Some(since),
            _ => None,
        }
    }

    pub(super) fn begin_reset(&mut self) {
        self.life = Life::Resetting;
    }

    /// Ends a reset, successful or not.
    pub(super) fn end_reset(&mut self, reset: Result<(), RailError>) {
        self.life = match reset {
            Ok(()) => {
                // Whoever waits for a proof compares it with the number at its beginning.
                self.generation += 1;
                Life::Alive
            }
            // Operations that cannot be stopped could land at any time: the rail is never used again.
            Err(error) => Life::Dead(error),
        };
    }

    #[inline]
    pub(super) fn took_one(&mut self) {
        self.in_flight += 1;
    }

    #[inline]
    pub(super) fn completed(&mut self) {
        debug_assert!(self.in_flight > 0, "a completion of more than was posted");
        self.in_flight -= 1;
    }

    /// Returns `true` if it cannot wake a sleeping driver.
    #[inline]
    pub(super) fn must_be_polled(&self) -> bool {
        self.must_be_polled
    }

    /// Returns `true` if the driver must poll for operations in flight.
    pub(super) fn is_looked_at(&self) -> bool {
        // What a dead rail had in flight never completes, and would be polled for without end.
        self.must_be_polled && self.death().is_none() && self.in_flight > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::properties;

    fn rail() -> RailState {
        RailState::new(RailInfo { properties: properties(), must_be_polled: true })
    }

    #[test]
    fn a_reset_is_asked_for_once_and_makes_another_generation() {
        let mut rail = rail();
        assert!(rail.ask_reset(Time(5)) && !rail.ask_reset(Time(6)));
        assert_eq!((rail.reset_asked_at(), rail.is_usable()), (Some(Time(5)), false));
        rail.begin_reset();
        assert_eq!((rail.reset_asked_at(), rail.is_resetting()), (None, true));
        rail.end_reset(Ok(()));
        assert_eq!((rail.generation(), rail.is_usable(), rail.is_resetting()), (1, true, false));
    }

    #[test]
    fn one_that_cannot_be_reset_is_dead_for_good() {
        let mut rail = rail();
        rail.took_one();
        assert!(rail.is_looked_at());
        rail.ask_reset(Time(5));
        rail.end_reset(Err(RailError::new("reset", "it is gone", "nothing")));
        assert!(rail.death().is_some() && !rail.is_usable() && !rail.is_resetting());
        assert!(!rail.ask_reset(Time(6)) && !rail.is_looked_at() && rail.generation() == 0);
    }

    #[test]
    fn links_are_known_by_their_keys() {
        let mut rail = rail();
        rail.add_link(LinkKey(3), PeerKey(1), 2);
        assert_eq!((rail.owner(LinkKey(3)), rail.owner(LinkKey(4))), (Some((PeerKey(1), 2)), None));
        rail.remove_link(None);
        rail.remove_link(Some(LinkKey(3)));
        assert_eq!(rail.link_count(), 0);
    }
}
