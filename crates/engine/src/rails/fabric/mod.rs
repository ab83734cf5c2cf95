//! Rails over libfabric: one reliable-datagram endpoint for all peers ([`FabricRail`]), or one for
//! each link ([`IsolatedRail`]).
//!
//! ```no_run
//! use farreach_rail::{PeerKey, Rail};
//! use farreach::rails::fabric::{FabricRail, FabricSettings};
//!
//! let mut rail = FabricRail::open_named("tcp", None, &FabricSettings::default())?;
//! let (link, end) = rail.open_link(PeerKey(0))?;
//! println!("{}: {} bytes for the other side of {link:?}", rail.properties().name, end.len());
//! # Ok::<(), farreach_rail::RailError>(())
//! ```
//!
//! # What it does
//!
//! A link is a peer in the endpoint's address vector, and costs next to nothing. Therefore a link
//! does not end by itself: operations in flight on a closed link complete when the library is done
//! with them, or by a [reset](Rail::reset), which closes the endpoint for all links.
//!
//! Not every provider can be a rail. The target must refuse a wrong or ended key; otherwise a peer
//! reaches memory that it was not granted. Closing the endpoint must end operations that peers have
//! begun; otherwise nothing ever proves that they have stopped. libfabric's shm does neither.

mod end;
mod failure;
mod groups;
mod isolated;
mod links;
mod offers;
mod post;
mod properties;
mod resources;
mod settings;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farreach_fabric::{CompletionQueue, Domain, Error, Fabric, Info, MrMode, Profile};
use farreach_memory::{Buffers, Exposed, Memory};
use farreach_rail::{Event, Key, KeyId, LinkKey, PeerKey, Properties, Rail, RailError, Refusal, WorkRequest};

use crate::Rights;

pub use isolated::IsolatedRail;
pub(super) use offers::best;
pub use offers::{is_provider, offers};
pub use settings::FabricSettings;

use post::Waiters;
use resources::Resources;

/// A rail over libfabric.
///
/// ```no_run
/// use farreach_rail::Rail;
/// use farreach::rails::fabric::{FabricRail, FabricSettings, offers};
///
/// let settings = FabricSettings::default();
/// for info in offers(&settings)? {
///     let rail = FabricRail::open(&info, &settings)?;
///     println!("{}: {:?}", rail.properties().name, rail.properties().limits);
/// }
/// # Ok::<(), farreach_rail::RailError>(())
/// ```
#[derive(Debug)]
pub struct FabricRail {
    cq: CompletionQueue,
    /// All state that a completion changes. It is apart from the queue, which is borrowed while its
    /// events are handled.
    rail: Resources,
}

impl FabricRail {
    /// Opens the domain of an offer, and an endpoint in it. [`offers`] returns the offers that can
    /// be opened.
    pub fn open(info: &Info, settings: &FabricSettings) -> Result<Self, RailError> {
        if let Some(cause) = unfit(&Profile::of(info), info.mr_mode()) {
            let fix = "use tcp or a card; `farreach devices` lists the rails of this host";
            return Err(RailError::new(format!("open a rail over {}", info.provider()), cause, fix));
        }
        let refused = |error| failure::of_error(format!("open a rail over {}", info.provider()), &error);
        let domain = Fabric::open(info).and_then(|fabric| fabric.open_domain(info)).map_err(refused)?;
        Self::in_domain(&domain, settings).map_err(refused)
    }

    /// Opens an endpoint in a domain.
    fn in_domain(domain: &Domain, settings: &FabricSettings) -> Result<Self, Error> {
        let cq = domain.open_cq()?;
        let rail = Resources::open(domain, &cq, settings)?;
        Ok(Self { cq, rail })
    }

    /// Opens a rail by the name of its provider: `tcp`, `efa`, or the full name, such as
    /// `tcp;ofi_rxm`. `bind` is the local address to use, if the provider has IP addresses; it
    /// distinguishes several rails of one host.
    pub fn open_named(
        name: &str,
        bind: Option<IpAddr>,
        settings: &FabricSettings,
    ) -> Result<Self, RailError> {
        let settings = FabricSettings { providers: vec![name.to_owned()], bind, ..settings.clone() };
        let info = best(name, &settings)?;
        Self::open(&info, &settings)
    }

    /// Returns the number of unattributed errors since the rail was opened.
    pub fn unattributed(&self) -> u64 {
        self.rail.unattributed.count
    }
}

/// Returns why a provider with this profile cannot be a rail, if it cannot.
fn unfit(profile: &Profile, mr_mode: MrMode) -> Option<&'static str> {
    match (profile.keys_enforced, profile.close_stops_peers) {
        // Its domain is spent by a reset, and the next one needs the same registrations and keys.
        (true, true) if profile.close_leaves_connections && mr_mode.intersects(MADE_ANEW) => {
            Some("a reset ends its domain, and a new domain would not keep registrations and keys")
        }
        (true, true) => None,
        (false, _) => Some(
            "it is not known to refuse wrong or ended keys, so a peer could access memory that it was \
             not granted",
        ),
        (true, false) => Some("closing its endpoint is not known to stop operations that peers have started"),
    }
}

/// Properties that a new domain would not keep: registrations of all memory, or keys that peers
/// know.
const MADE_ANEW: MrMode = MrMode::LOCAL.union(MrMode::PROV_KEY);

impl Rail for FabricRail {
    fn properties(&self) -> &Properties {
        &self.rail.properties
    }

    fn open_link(&mut self, _peer: PeerKey) -> Result<(LinkKey, Vec<u8>), RailError> {
        self.rail.open_link()
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), RailError> {
        self.rail.connect(link, peer_end)
    }

    fn close_link(&mut self, link: LinkKey) {
        self.rail.links.close(link);
    }

    fn reset(&mut self) -> Result<(), RailError> {
        self.rail.reset(&mut self.cq)
    }

    fn register(&mut self, memory: &Memory) -> Result<(), RailError> {
        self.rail.register(memory)
    }

    fn make_key(&mut self, _peer: PeerKey, memory: &Arc<Exposed>, rights: Rights) -> Result<Key, RailError> {
        self.rail.make_key(memory, rights)
    }

    fn end_key(&mut self, key: KeyId) -> Result<(), RailError> {
        self.rail.end_key(key)
    }

    #[inline]
    fn post(
        &mut self,
        link: LinkKey,
        tag: u64,
        request: WorkRequest<'_>,
        buffers: Buffers,
    ) -> Result<(), (Refusal, Buffers)> {
        self.rail.post(link, tag, request, buffers)
    }

    fn flush(&mut self) {
        self.rail.post_waiting(Waiters::All);
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, RailError> {
        let mut count = self.rail.tell_returned(sink);
        // Before the poll: a message needs a buffer that is posted.
        self.rail.make_room();
        let mut poller = self.cq.poller();
        let events = poller.poll().map_err(|error| self.rail.refused("poll", &error))?;
        for event in events {
            count += self.rail.tell(event, sink);
        }
        if let Some(groups) = &mut self.rail.groups {
            // Only such polls count as idle: an event may be followed by another write.
            if count == 0 {
                groups.polled_nothing();
            }
            self.rail.post_waiting(Waiters::Due);
        }
        Ok(count)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.wait_fd()
    }

    fn may_sleep(&mut self) -> Result<bool, RailError> {
        // Writes that wait for their group would wait for the whole sleep.
        let is_idle = !self.rail.has_something_to_tell() && !self.rail.has_something_to_post();
        if !is_idle || self.cq.wait_fd().is_none() {
            return Ok(false);
        }
        self.cq.may_sleep().map_err(|error| self.rail.refused("wait", &error))
    }

    fn holds_too_much(&mut self) -> bool {
        self.rail.holds_too_much()
    }

    fn in_flight(&self) -> usize {
        self.rail.in_flight()
    }
}

#[cfg(test)]
mod tests {
    use farreach_fabric::Protocol;

    use super::*;

    #[test]
    fn a_rail_refuses_dead_keys_and_stops_peers_when_it_ends() {
        let is_fit = |protocol| unfit(&Profile::of_protocol(protocol), MrMode::empty()).is_none();
        assert!([Protocol::Xnet, Protocol::Rxm, Protocol::Efa].into_iter().all(is_fit));
        assert!(![Protocol::Shm, Protocol::Sm2, Protocol::Other(999)].into_iter().any(is_fit));
        let mut goes_on = Profile::of_protocol(Protocol::Xnet);
        goes_on.close_stops_peers = false;
        assert!(unfit(&goes_on, MrMode::empty()).is_some());
        let is_renewed_with = |mr_mode| unfit(&Profile::of_protocol(Protocol::Xnet), mr_mode).is_none();
        assert!(is_renewed_with(MrMode::VIRT_ADDR));
        assert!(!is_renewed_with(MrMode::LOCAL) && !is_renewed_with(MrMode::PROV_KEY));
        assert!(unfit(&Profile::of_protocol(Protocol::Efa), MADE_ANEW).is_none(), "a reset keeps its domain");
    }
}
