//! A rail over libfabric: one endpoint of reliable datagrams, for all peers.
//!
//! ```no_run
//! use farreach::provider::Provider;
//! use farreach::provider::fabric::{FabricProvider, ProviderSettings};
//!
//! // SAFETY: nothing is posted.
//! let mut rail = unsafe { FabricProvider::open_named("tcp", None, &ProviderSettings::default()) }?;
//! let (link, end) = rail.open_link()?;
//! println!("{}: {} bytes for the other side of {link:?}", rail.properties().name, end.len());
//! # Ok::<(), farreach::provider::ProviderError>(())
//! ```
//!
//! # What it does
//!
//! A link is a peer in the endpoint's address vector, and costs next to nothing. So links do not end by themselves: what is in flight on one
//! that is closed comes back when the library is done with it, or by a [reset](Provider::reset), which closes the endpoint for all.
//!
//! A write without bytes becomes one of a byte, to a place that each rail exposes for that purpose and tells with its end of a link.
//!
//! # What it relies on
//!
//! A library that does not enforce keys takes a request's target by its word, and a key that was ended proves less than one would like. So
//! whoever posts keeps two rules, which the engine does: a target lies inside of what the peer has granted, until the peer was told that the
//! request is done; and memory that was concealed is not used otherwise before what [`Properties::dead_keys`] leaves open is known.

mod end;
mod failure;
mod landing;
mod leftovers;
mod links;
mod offers;
mod post;
mod posted;
mod properties;
mod rail;
mod settings;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farreach_fabric::{CompletionQueue, Fabric, Info, Protocol};
use farreach_memory::{Exposed, Memory};

use crate::Rights;
use crate::provider::{
    Event, Exposure, ExposureId, LinkKey, Properties, Provider, ProviderError, Refused, Request,
};

pub use offers::{is_provider, offers};
pub use settings::ProviderSettings;

use rail::Rail;

/// A rail over libfabric.
///
/// ```no_run
/// use farreach::provider::Provider;
/// use farreach::provider::fabric::{FabricProvider, ProviderSettings, offers};
///
/// let settings = ProviderSettings::default();
/// for info in offers(&settings)? {
///     // SAFETY: nothing is posted.
///     let rail = unsafe { FabricProvider::open(&info, &settings) }?;
///     println!("{}: {:?}", rail.properties().name, rail.properties().limits);
/// }
/// # Ok::<(), farreach::provider::ProviderError>(())
/// ```
#[derive(Debug)]
pub struct FabricProvider {
    cq: CompletionQueue,
    /// All that a completion changes.
    rail: Rail,
}

impl FabricProvider {
    /// Opens the domain of an offer, and an endpoint in it. [`offers`] has those that can be opened.
    ///
    /// # Safety
    ///
    /// Whoever uses it keeps the two rules of [the module](self#what-it-relies-on).
    pub unsafe fn open(info: &Info, settings: &ProviderSettings) -> Result<Self, ProviderError> {
        if info.protocol() == Protocol::Shm {
            leftovers::clear()?;
        }
        let refused = |error| failure::of_error(format!("open a rail over {}", info.provider()), &error);
        let domain = Fabric::open(info).and_then(|fabric| fabric.open_domain(info)).map_err(refused)?;
        let cq = domain.open_cq().map_err(refused)?;
        let rail = Rail::open(&domain, &cq, settings).map_err(refused)?;
        Ok(Self { cq, rail })
    }

    /// Opens a rail by its provider's name: `tcp`, `shm`, `efa`, or in full, as `tcp;ofi_rxm`. `bind` is the local address to be at, where
    /// the provider has such addresses, so that several rails of one host are told apart.
    ///
    /// # Safety
    ///
    /// As for [`open`](Self::open).
    pub unsafe fn open_named(
        name: &str,
        bind: Option<IpAddr>,
        settings: &ProviderSettings,
    ) -> Result<Self, ProviderError> {
        let settings = ProviderSettings { providers: vec![name.to_owned()], bind, ..settings.clone() };
        let info = offers::best(name, &settings)?;
        // SAFETY: passed on to the caller.
        unsafe { Self::open(&info, &settings) }
    }

    /// How many errors came that are no request's, since it was opened.
    pub fn strays(&self) -> u64 {
        self.rail.strays.count
    }

    /// The last of them. Whose fault it is, the library does not say.
    pub fn last_stray(&self) -> Option<&ProviderError> {
        self.rail.strays.last.as_ref()
    }
}

impl Provider for FabricProvider {
    fn properties(&self) -> &Properties {
        &self.rail.properties
    }

    fn open_link(&mut self) -> Result<(LinkKey, Vec<u8>), ProviderError> {
        self.rail.open_link()
    }

    fn connect(&mut self, link: LinkKey, peer_end: &[u8]) -> Result<(), ProviderError> {
        self.rail.connect(link, peer_end)
    }

    fn close_link(&mut self, link: LinkKey) {
        self.rail.links.close(link);
    }

    fn reset(&mut self) -> Result<(), ProviderError> {
        self.rail.reset(&mut self.cq)
    }

    fn register(&mut self, memory: &Memory) -> Result<(), ProviderError> {
        self.rail.register(memory)
    }

    fn expose(&mut self, memory: &Arc<Exposed>, rights: Rights) -> Result<Exposure, ProviderError> {
        self.rail.expose(memory, rights)
    }

    fn conceal(&mut self, exposure: ExposureId) -> Result<(), ProviderError> {
        self.rail.conceal(exposure)
    }

    #[inline]
    fn post(&mut self, link: LinkKey, tag: u64, request: Request) -> Result<(), Refused> {
        self.rail.post(link, tag, request)
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event<'_>)) -> Result<usize, ProviderError> {
        let mut count = self.rail.tell_returned(sink);
        self.rail.make_room();
        let mut poller = self.cq.poller();
        let events = poller.poll().map_err(|error| self.rail.refused("poll", &error))?;
        for event in events {
            count += self.rail.tell(event, sink);
        }
        Ok(count)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.cq.wait_fd()
    }

    fn may_sleep(&mut self) -> Result<bool, ProviderError> {
        if self.rail.has_something_to_tell() || self.cq.wait_fd().is_none() {
            return Ok(false);
        }
        self.cq.may_sleep().map_err(|error| self.rail.refused("wait", &error))
    }

    fn in_flight(&self) -> usize {
        self.rail.in_flight()
    }
}
