//! Construction of endpoints.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use farreach_fabric_sys as sys;

use super::atomics::{Atomics, Operands};
use super::slots::Slots;
use super::{Endpoint, Limits, Open, kept};
use crate::handle::{Bound, Handle};
use crate::{Address, AddressVector, Capabilities, CompletionQueue, Domain, EndpointType, Error};

/// The maximum number of operations of one endpoint in flight. More have no benefit.
const DEPTH_MAX: usize = 1 << 16;

/// Builds an [`Endpoint`].
///
/// ```no_run
/// # use farreach_fabric::Domain;
/// use farreach_fabric::EndpointBuilder;
///
/// # fn open(domain: &Domain) -> Result<(), farreach_fabric::Error> {
/// let (cq, av) = (domain.open_cq()?, domain.open_av()?);
/// let endpoint = EndpointBuilder::new(&cq, &av).transmit_depth(64).receive_depth(16).build(domain)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct EndpointBuilder {
    transmit_cq: CompletionQueue,
    receive_cq: CompletionQueue,
    av: AddressVector,
    transmit_depth: Option<usize>,
    receive_depth: Option<usize>,
}

impl EndpointBuilder {
    /// Creates a builder of an endpoint that completes to this queue, and communicates with the
    /// peers of this address vector.
    pub fn new(cq: &CompletionQueue, av: &AddressVector) -> Self {
        Self {
            transmit_cq: cq.clone(),
            receive_cq: cq.clone(),
            av: av.clone(),
            transmit_depth: None,
            receive_depth: None,
        }
    }

    /// Sets a separate queue for receives, and for peers' writes with immediate data.
    pub fn receive_cq(mut self, cq: &CompletionQueue) -> Self {
        self.receive_cq = cq.clone();
        self
    }

    /// Sets the maximum number of transmitted operations in flight. The default, and the maximum,
    /// is that of the offer.
    pub fn transmit_depth(mut self, depth: usize) -> Self {
        self.transmit_depth = Some(depth);
        self
    }

    /// Sets the maximum number of posted receives. The default, and the maximum, is that of the
    /// offer.
    pub fn receive_depth(mut self, depth: usize) -> Self {
        self.receive_depth = Some(depth);
        self
    }

    /// Opens, binds and enables the endpoint: `fi_endpoint(3)`.
    #[doc(alias = "fi_endpoint")]
    #[doc(alias = "fi_ep_bind")]
    #[doc(alias = "fi_enable")]
    pub fn build(self, domain: &Domain) -> Result<Endpoint, Error> {
        self.check(domain)?;
        let info = domain.info();
        let nothing = domain.allocate(1)?;
        let (transmit_cq, receive_cq, av) = (self.transmit_cq, self.receive_cq, self.av);
        domain.endpoint_opened()?;
        // SAFETY: the handle is stored in an `Open`, which only `Open::close` ends. That first
        // marks both queues, so that no thread prepares to sleep on them any more, and the domain,
        // so that no thread makes progress on it. It is called only for endpoints that `kept`
        // releases, if endpoints access each other, and that `Domain::endpoint_left` releases.
        let ep = unsafe {
            Handle::<sys::fid_ep>::open(Bound { transmit_cq, receive_cq, av, domain: domain.clone() })
        };
        let ep = ep.inspect_err(|_| super::let_go(domain, domain.endpoint_not_opened()))?;

        let depth = |asked: Option<usize>, offered: usize| {
            let most = offered.clamp(1, DEPTH_MAX);
            asked.unwrap_or(most).clamp(1, most) as u32
        };
        let transmit = Arc::new(Slots::new(depth(self.transmit_depth, info.transmit_queue_size())));
        let receive = Arc::new(Slots::new(depth(self.receive_depth, info.receive_queue_size())));
        if domain.profile().siblings_look_in {
            kept::opened();
        }
        ep.parents().transmit_cq.registry().add(&transmit);
        ep.parents().receive_cq.registry().add(&receive);
        let mut endpoint = Endpoint {
            open: ManuallyDrop::new(Open {
                ep,
                transmit,
                receive,
                atomics: Atomics::default(),
                operands: None,
                nothing,
                address: Address::new(info.address_format(), Vec::new()),
                limits: Limits::of(domain),
            }),
        };
        // From here on, a failure closes the endpoint.
        let open = &mut *endpoint.open;
        if domain.profile().siblings_look_in {
            // It was counted before, so that none is closed from now on. Enabling accesses every
            // endpoint of this process that the vector names.
            open.av().find(kept::was_closed).map_or(Ok(()), |address| Err(open.av().refused(&address)))?;
        }
        open.ep.bind_and_enable()?;
        open.address = Address::new(info.address_format(), open.ep.name()?);
        open.atomics = Atomics::of(&open.ep);
        if open.atomics.any() {
            open.operands = Some(Operands::new(domain, open.transmit.depth())?);
        }
        Ok(endpoint)
    }

    fn check(&self, domain: &Domain) -> Result<(), Error> {
        let kind = domain.info().endpoint_type();
        if kind != EndpointType::ReliableDatagram {
            return Err(Error::Unsupported {
                what: format!("endpoints of the type {kind}"),
                why: "this crate supports only reliable datagrams".to_owned(),
            });
        }
        let is_ours = |of: &Domain| of == domain;
        if !is_ours(self.transmit_cq.domain()) || !is_ours(self.receive_cq.domain()) {
            return Err(Error::NotOfThis { object: "completion queue", of: "domain" });
        }
        if !is_ours(self.av.domain()) {
            return Err(Error::NotOfThis { object: "address vector", of: "domain" });
        }
        Ok(())
    }
}

impl Limits {
    fn of(domain: &Domain) -> Self {
        let info = domain.info();
        Self {
            message_max: info.message_size_max(),
            inject_max: info.inject_size(),
            transmit_buffers_max: info.transmit_buffers_max().min(super::list::BUFFERS_MAX),
            receive_buffers_max: info.receive_buffers_max().min(super::list::BUFFERS_MAX),
            remote_parts_max: info.remote_ranges_max(),
            immediate_bytes: info.immediate_size(),
            needs_local_keys: domain.needs_local_keys(),
            keys_enforced: domain.profile().keys_enforced,
            keys_enforced_word: u64::from(domain.profile().keys_enforced),
            one_sided_mask: if info.capabilities().contains(Capabilities::RMA) { u64::MAX } else { 0 },
            delivers: domain.delivers(),
        }
    }
}
