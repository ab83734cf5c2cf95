//! The machine's own end of a rail.

use super::PeerKey;
use super::id_map::IdMap;
use super::peer::{Link, Phase};
use crate::rail::{LinkKey, Properties, RailError};

/// A rail, as the machine is told of it.
#[derive(Debug, Clone)]
pub struct RailInfo {
    /// What it is and can do.
    pub properties: Properties,
    /// Whether nothing of it wakes anybody.
    pub must_be_polled: bool,
}

/// A rail of this side's, with the links over it.
#[derive(Debug)]
pub(super) struct RailState {
    properties: Properties,
    /// Whose each link is; also of closed ones, as long as something of them is in flight.
    pub(super) links: IdMap<LinkKey, (PeerKey, usize)>,
    /// How often it was reset.
    pub(super) generation: u64,
    /// Since when it is about to be reset: nothing is posted to it until then.
    pub(super) resetting_since: Option<u64>,
    /// Whether it is being reset.
    pub(super) is_resetting: bool,
    /// Requests that it has, also of closed links.
    pub(super) in_flight: usize,
    /// Whether nothing of it wakes anybody.
    pub(super) must_be_polled: bool,
    /// Why it is of no use any more.
    pub(super) dead: Option<RailError>,
}

impl RailState {
    pub(super) fn new(info: RailInfo) -> Self {
        Self {
            properties: info.properties,
            must_be_polled: info.must_be_polled,
            links: IdMap::default(),
            generation: 0,
            resetting_since: None,
            is_resetting: false,
            in_flight: 0,
            dead: None,
        }
    }

    /// Whether a link over it may have one more request in flight.
    pub(super) fn has_room(&self, link: &Link) -> bool {
        link.in_flight() < self.properties.window
    }

    /// Whether a link over it is in use.
    pub(super) fn is_ready(&self, link: &Link) -> bool {
        link.phase() == Phase::Ready && self.resetting_since.is_none()
    }

    pub(super) fn properties(&self) -> &Properties {
        &self.properties
    }
}
