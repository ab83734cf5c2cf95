//! Endpoints: reliable datagrams.

mod atomics;
mod builder;
mod inject;
mod kept;
mod list;
#[cfg(all(loom, test))]
mod model;
mod parts;
mod post;
pub(crate) mod slots;
mod sync;

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use farreach_fabric_sys as sys;
use farreach_memory::{Buffers, Slice};

use crate::handle::{Bound, Handle};
use crate::leak::{self, Kind};
use crate::{Address, AddressVector, CompletionQueue, Domain, Error, OperationKind};

pub use atomics::Atomics;
pub use builder::EndpointBuilder;
pub(crate) use kept::{moving, unless_closed};

use atomics::Operands;
use slots::{InFlight, Slots};

/// An endpoint that can communicate with any peer of its address vector: `fi_endpoint(3)`.
///
/// A posted request owns its buffers, and the completion returns them. Dropping or
/// [closing](Self::close) the endpoint ends operations in flight.
///
/// ```no_run
/// # use farreach_fabric::Domain;
/// use farreach_fabric::{EndpointBuilder, ReceiveRequest};
///
/// # fn open(domain: &Domain) -> Result<(), farreach_fabric::Error> {
/// let (cq, av) = (domain.open_cq()?, domain.open_av()?);
/// let endpoint = EndpointBuilder::new(&cq, &av).build(domain)?;
/// println!("{}", endpoint.address().to_hex());
/// endpoint.post_receive(ReceiveRequest::new(domain.allocate(8192)?)).expect("there is room");
/// # Ok(())
/// # }
/// ```
#[doc(alias = "fid_ep")]
pub struct Endpoint {
    /// Taken when the endpoint is closed or dropped.
    open: ManuallyDrop<Open>,
}

/// The content of an endpoint: everything that the provider may use while it is open. Only
/// [`close`](Self::close) releases or leaks it.
pub(crate) struct Open {
    ep: Handle<sys::fid_ep>,
    transmit: Arc<Slots>,
    receive: Arc<Slots>,
    atomics: Atomics,
    operands: Option<Operands>,
    /// The buffer of operations without bytes, because some providers require one.
    nothing: Slice,
    address: Address,
    limits: Limits,
}

/// The limits that are checked on every post, copied from the offer.
#[derive(Debug, Clone, Copy)]
struct Limits {
    message_max: usize,
    inject_max: usize,
    transmit_buffers_max: usize,
    receive_buffers_max: usize,
    remote_parts_max: usize,
    immediate_bytes: usize,
    needs_local_keys: bool,
    keys_enforced: bool,
    /// As `keys_enforced`, as a word that is not 0, which is cheaper to combine.
    keys_enforced_word: u64,
    /// All bits set if there are one-sided operations, otherwise 0: libfabric's functions would
    /// call through a null pointer.
    one_sided_mask: u64,
    delivers: bool,
}

/// An operation that was in flight when its endpoint was closed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Returned {
    /// The number that the caller gave it.
    pub tag: u64,
    /// The kind of the operation.
    pub kind: OperationKind,
    /// Its buffers. It is unknown whether any part of the operation was done.
    pub buffers: Buffers,
}

impl Endpoint {
    #[inline(always)]
    fn open(&self) -> &Open {
        &self.open
    }

    /// Returns its address, for peers: `fi_getname(3)`.
    #[doc(alias = "fi_getname")]
    pub fn address(&self) -> &Address {
        &self.open().address
    }

    /// Returns the domain that it is in.
    pub fn domain(&self) -> &Domain {
        self.open().domain()
    }

    /// Returns the address vector of its peers.
    pub fn av(&self) -> &AddressVector {
        self.open().av()
    }

    /// Returns the queue of completions of transmitted operations.
    pub fn transmit_cq(&self) -> &CompletionQueue {
        &self.open().ep.parents().transmit_cq
    }

    /// Returns the queue of completions of receives, and of peers' writes with immediate data.
    pub fn receive_cq(&self) -> &CompletionQueue {
        &self.open().ep.parents().receive_cq
    }

    /// Returns the atomic operations that it supports.
    pub fn atomics(&self) -> Atomics {
        self.open().atomics
    }

    /// Returns the number of transmitted operations in flight.
    pub fn transmits_in_flight(&self) -> usize {
        self.open().transmit.in_flight()
    }

    /// Returns the maximum number of transmitted operations in flight.
    pub fn transmit_depth(&self) -> usize {
        self.open().transmit.depth()
    }

    /// Returns the number of posted receives.
    pub fn receives_in_flight(&self) -> usize {
        self.open().receive.in_flight()
    }

    /// Returns the C object. It lives as long as this value.
    pub fn as_raw(&self) -> *mut sys::fid_ep {
        self.open().ep.as_ptr()
    }

    /// Closes it, and returns the operations that were in flight: `fi_close(3)`.
    ///
    /// The close is the proof that the provider has stopped. If it fails, the endpoint and
    /// everything in flight are leaked and counted. So are buffers that a peer may still read or
    /// write: [`Profile::close_stops_peers`](crate::Profile::close_stops_peers).
    ///
    /// If endpoints of one process access each other's memory
    /// ([`Profile::siblings_look_in`](crate::Profile::siblings_look_in)) and another one is open,
    /// the result is [`Error::InUse`]: the endpoint is closed, with its operations in flight, when
    /// the last of them is gone. The same applies if closing one leaves
    /// [connections](crate::Profile::close_leaves_connections) and another one of the domain is
    /// open; the domain is [spent](Domain::is_spent) with the last.
    #[doc(alias = "fi_close")]
    pub fn close(self) -> Result<Vec<Returned>, Error> {
        let mut endpoint = ManuallyDrop::new(self);
        // SAFETY: it is taken once: the endpoint was moved into this function, and in a
        // `ManuallyDrop` its drop, which also takes it, does not run.
        let open = unsafe { ManuallyDrop::take(&mut endpoint.open) };
        let domain = open.domain().clone();
        let mut closable = domain.endpoint_left(open);
        let Some(open) = closable.pop() else {
            return Err(Error::InUse { object: "endpoint", by: "other endpoints of its domain" });
        };
        let_go(&domain, closable);
        if !domain.profile().siblings_look_in {
            return open.close();
        }
        let Some((open, others)) = kept::last(open) else {
            return Err(Error::InUse { object: "endpoint", by: "other endpoints of this process" });
        };
        let _alone = kept::closing();
        close_all(others);
        open.close()
    }
}

impl Open {
    #[inline]
    fn domain(&self) -> &Domain {
        &self.ep.parents().domain
    }

    #[inline]
    fn av(&self) -> &AddressVector {
        &self.ep.parents().av
    }

    fn close(self) -> Result<Vec<Returned>, Error> {
        let Bound { transmit_cq, receive_cq, domain, .. } = self.ep.parents().clone();
        transmit_cq.before_close_of_endpoint();
        receive_cq.before_close_of_endpoint();
        domain.spend();
        if let Err(error) = self.ep.close() {
            // The provider may still use all of it.
            std::mem::forget((self.transmit, self.receive, self.operands, self.nothing));
            return Err(error);
        }
        domain.endpoint_closed();
        let are_peers_stopped = domain.profile().close_stops_peers;
        let (mut returned, mut is_any_kept) = (Vec::new(), false);
        for (slots, cq) in [(&self.transmit, transmit_cq), (&self.receive, receive_cq)] {
            cq.registry().retire(slots);
            for operation in slots.take_all() {
                let InFlight { tag, kind, buffers, .. } = operation;
                // This side fills a receive. For all other operations a peer may still act on its
                // own: copy sent or written bytes out of the buffers, or the answer into them.
                if !are_peers_stopped && kind != OperationKind::Receive {
                    leak::count(Kind::Operation);
                    std::mem::forget(buffers);
                    is_any_kept = true;
                    continue;
                }
                returned.push(Returned { tag, kind, buffers });
            }
        }
        if is_any_kept {
            // A leaked operation also uses these: its operands, or the one-byte buffer if it has
            // none of its own.
            std::mem::forget((self.operands, self.nothing));
        }
        Ok(returned)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: it is taken once: a drop runs once, and not if `close` has taken it.
        let open = unsafe { ManuallyDrop::take(&mut self.open) };
        let domain = open.domain().clone();
        let closable = domain.endpoint_left(open);
        let_go(&domain, closable);
    }
}

/// Closes unused endpoints of a domain. If others of this process access them, they are closed when
/// no other is open.
fn let_go(domain: &Domain, endpoints: Vec<Open>) {
    if !domain.profile().siblings_look_in {
        return close_all(endpoints);
    }
    for open in endpoints {
        let closable = kept::dropped(open);
        let _alone = kept::closing();
        close_all(closable);
    }
}

fn close_all(endpoints: impl IntoIterator<Item = Open>) {
    for open in endpoints {
        // Failures are counted, and the objects are kept.
        let _ = open.close();
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.address())
            .field("transmits_in_flight", &self.transmits_in_flight())
            .field("receives_in_flight", &self.receives_in_flight())
            .finish_non_exhaustive()
    }
}
