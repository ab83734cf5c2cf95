//! The machine's own end of a rail.

use super::PeerKey;
use super::numbers::NumberMap;
use super::peer::{Link, Phase};
use crate::provider::{LinkKey, Properties, Provider};

/// A rail of this side's, with the links over it.
#[derive(Debug)]
pub(super) struct Rail {
    /// Out only while it is polled.
    provider: Option<Box<dyn Provider>>,
    properties: Properties,
    /// Whose each link is; also of closed ones, as long as something of them is in flight.
    pub(super) links: NumberMap<LinkKey, (PeerKey, usize)>,
    /// How often it was reset.
    pub(super) generation: u64,
    /// Since when it is about to be reset: nothing is posted to it until then.
    pub(super) resetting_since: Option<u64>,
    /// Whether nothing of it wakes anybody.
    pub(super) is_blind: bool,
    /// Why it is of no use any more.
    pub(super) dead: Option<String>,
}

impl Rail {
    pub(super) fn new(provider: Box<dyn Provider>) -> Self {
        Self {
            properties: provider.properties().clone(),
            is_blind: provider.wait_fd().is_none(),
            provider: Some(provider),
            links: NumberMap::default(),
            generation: 0,
            resetting_since: None,
            dead: None,
        }
    }

    pub(super) fn provider(&mut self) -> &mut dyn Provider {
        self.provider.as_deref_mut().expect("it is out only while it is polled")
    }

    /// Whether a link over it may have one more request in flight.
    pub(super) fn has_room(&self, link: &Link) -> bool {
        link.in_flight < self.properties.window
    }

    /// Whether a link over it is in use.
    pub(super) fn is_ready(&self, link: &Link) -> bool {
        link.phase == Phase::Ready && self.resetting_since.is_none()
    }

    /// Whether something of ours is under way on it.
    pub(super) fn is_busy(&self) -> bool {
        self.dead.is_none() && self.provider.as_ref().is_some_and(|provider| provider.in_flight() > 0)
    }

    pub(super) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(super) fn take(&mut self) -> Box<dyn Provider> {
        self.provider.take().expect("it is out only while it is polled")
    }

    pub(super) fn put_back(&mut self, provider: Box<dyn Provider>) {
        self.provider = Some(provider);
    }
}
