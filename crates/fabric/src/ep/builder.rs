//! How an endpoint is made.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use farreach_fabric_sys as sys;

use super::atomics::{Atomics, Operands};
use super::slots::Slots;
use super::{Endpoint, Limits, Open, kept};
use crate::handle::Handle;
use crate::{Address, AddressVector, CompletionQueue, Domain, EndpointType, Error};

/// More operations of one endpoint in flight than this help nobody.
const DEPTH_MAX: usize = 1 << 16;

/// Makes an [`Endpoint`].
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
    /// One that completes to this queue, and talks to the peers of this address vector.
    pub fn new(cq: &CompletionQueue, av: &AddressVector) -> Self {
        Self {
            transmit_cq: cq.clone(),
            receive_cq: cq.clone(),
            av: av.clone(),
            transmit_depth: None,
            receive_depth: None,
        }
    }

    /// A queue of its own for receives, and for what peers write with immediate data.
    pub fn receive_cq(mut self, cq: &CompletionQueue) -> Self {
        self.receive_cq = cq.clone();
        self
    }

    /// How many operations that leave may be in flight; by default, and at most, what the offer says.
    pub fn transmit_depth(mut self, depth: usize) -> Self {
        self.transmit_depth = Some(depth);
        self
    }

    /// How many receives may be posted; by default, and at most, what the offer says.
    pub fn receive_depth(mut self, depth: usize) -> Self {
        self.receive_depth = Some(depth);
        self
    }

    /// Opens, binds and enables it: `fi_endpoint(3)`.
    #[doc(alias = "fi_endpoint")]
    #[doc(alias = "fi_ep_bind")]
    #[doc(alias = "fi_enable")]
    pub fn build(self, domain: &Domain) -> Result<Endpoint, Error> {
        self.check(domain)?;
        let (info, library) = (domain.info(), domain.library());
        let nothing = domain.allocate(1)?;
        let raw = info.as_raw_mut();
        // SAFETY: the domain lives, and the offer through the call.
        let open = |ep| unsafe { sys::fi_endpoint(domain.as_raw(), raw, ep, ptr::null_mut()) };
        // SAFETY: the function writes an endpoint where it answers 0, and the domain is one for any thread.
        let ep: Handle<sys::fid_ep> = unsafe { Handle::open(library, "fi_endpoint", open) }?;

        let depth = |asked: Option<usize>, offered: usize| {
            let most = offered.clamp(1, DEPTH_MAX);
            asked.unwrap_or(most).clamp(1, most) as u32
        };
        let transmit = Arc::new(Slots::new(depth(self.transmit_depth, info.transmit_queue_size())));
        let receive = Arc::new(Slots::new(depth(self.receive_depth, info.receive_queue_size())));
        domain.endpoint_opened();
        if domain.profile().siblings_look_in {
            kept::opened();
        }
        self.transmit_cq.registry().add(&transmit);
        self.receive_cq.registry().add(&receive);
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
                transmit_cq: self.transmit_cq,
                receive_cq: self.receive_cq,
                av: self.av,
                domain: domain.clone(),
            }),
        };
        // From here on a failure closes what there is.
        let open = &mut *endpoint.open;
        open.bind_and_enable()?;
        open.address = open.name()?;
        open.atomics = Atomics::of(&open.ep, domain);
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
                why: "this crate has reliable datagrams only".to_owned(),
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
            delivers: domain.delivers(),
        }
    }
}

impl Open {
    fn bind_and_enable(&self) -> Result<(), Error> {
        let bind = |fid: *mut sys::fid, flags: u64| {
            // SAFETY: both objects live, the bound one longer than the endpoint, which holds it.
            match unsafe { sys::fi_ep_bind(self.ep.as_ptr(), fid, flags) } {
                0 => Ok(()),
                status => Err(self.domain.library().error("fi_ep_bind", status)),
            }
        };
        bind(self.av.fid(), 0)?;
        // Every operation has a completion: it is what brings the buffers back.
        if self.transmit_cq == self.receive_cq {
            bind(self.transmit_cq.fid(), sys::FI_TRANSMIT | sys::FI_RECV)?;
        } else {
            bind(self.transmit_cq.fid(), sys::FI_TRANSMIT)?;
            bind(self.receive_cq.fid(), sys::FI_RECV)?;
        }
        // SAFETY: the endpoint lives, and has all bound to it that it needs.
        match unsafe { sys::fi_enable(self.ep.as_ptr()) } {
            0 => Ok(()),
            status => Err(self.domain.library().error("fi_enable", status)),
        }
    }

    /// `fi_getname(3)`
    fn name(&self) -> Result<Address, Error> {
        let mut bytes = vec![0_u8; Address::BYTES_MAX];
        let mut len = bytes.len();
        let room: *mut c_void = bytes.as_mut_ptr().cast();
        // SAFETY: the endpoint lives, and there is room for so many bytes.
        match unsafe { sys::fi_getname(self.ep.fid(), room, &raw mut len) } {
            0 => {
                bytes.truncate(len);
                Ok(Address::new(self.domain.info().address_format(), bytes))
            }
            status => Err(self.domain.library().error("fi_getname", status)),
        }
    }
}
