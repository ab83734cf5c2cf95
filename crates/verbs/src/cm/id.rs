//! Ids: endpoints of connections, and listeners.

use std::ffi::c_int;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::SymbolMissing;

use super::channel::EventChannel;
use super::contexts::Contexts;
use super::error::Error;
use super::handle::{Entered, Id, OnDevice, last_errno};
use super::parameters::{CmParameters, private_data_len};
use super::port_space::PortSpace;
use super::resolution::Resolution;
use super::wait::milliseconds_until;
use crate::address::RawAddress;
use crate::context::Context;

/// An endpoint of a connection, similar to a TCP socket; or a listener, or a member of multicast
/// groups.
///
/// It does not own the queue pair. The caller creates that on [`context`](Self::context), and
/// [`init_qp`](Self::init_qp) and [`ready_qp`](Self::ready_qp) set its peer. Every step is started
/// by a method and answered by an event on the channel. [`Connector`](super::Connector) and
/// [`Listener`](super::Listener) do all steps in order.
///
/// It is cheap to clone, and equal to its clones. It is destroyed when the last clone, and the last
/// event of it, is gone. Its connection ends then, and a request that was not answered is rejected.
/// Ids and channels may be dropped in any order.
///
/// ```no_run
/// use std::time::{Duration, Instant};
/// use farreach_verbs::cm::{EventChannel, EventKind, PortSpace};
///
/// let channel = EventChannel::new()?;
/// let id = channel.create_id(PortSpace::Tcp)?;
/// let deadline = Instant::now() + Duration::from_secs(2);
/// id.resolve_addr(None, "192.0.2.1:18520".parse().unwrap(), deadline)?;
/// assert_eq!(channel.wait_event(deadline)?.kind(), EventKind::AddressResolved);
/// println!("{} leaves by port {:?} of {:?}", id, id.port(), id.device_name());
/// # Ok::<(), farreach_verbs::cm::Error>(())
/// ```
#[doc(alias = "rdma_cm_id")]
#[derive(Clone)]
pub struct CmId(pub(super) Arc<Id>);

impl CmId {
    /// Binds the id to a local address: `rdma_bind_addr(3)`. Port 0 lets the kernel choose one.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, local: SocketAddr) -> Result<(), Error> {
        let mut raw = RawAddress::new(local);
        let said = self.call("rdma_bind_addr", |id| id.bind_addr(&mut raw));
        // An unbound id has no better description than the address that was refused.
        said.map_err(|error| match error {
            Error::Call { operation, errno, .. } => Error::call(operation, local.to_string(), errno.0),
            other => other,
        })
    }

    /// Resolves a route to the resolved address: `rdma_resolve_route(3)`.
    ///
    /// A route-resolved or route-error event answers, by the deadline at the latest.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, deadline: Instant) -> Result<(), Error> {
        let timeout_ms = milliseconds_until(deadline).unwrap_or(1);
        self.call_on_device("rdma_resolve_route", |id| id.resolve_route(timeout_ms))
    }

    /// Listens for requests to the bound address, of which at most `backlog` wait to be taken:
    /// `rdma_listen(3)`. Further ones get no answer, and the peer's kernel repeats them every few
    /// seconds.
    ///
    /// Each arrives as a connect request: [`CmEvent::into_request`](super::CmEvent::into_request).
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u16) -> Result<(), Error> {
        self.call("rdma_listen", |id| id.listen(backlog.max(1).into()))
    }

    /// Requests a connection: `rdma_connect(3)`.
    ///
    /// A connect response answers, or established for datagrams and iWARP; otherwise rejected,
    /// unreachable or connect error. Private data is limited to [`PortSpace::connect_data_max`].
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, parameters: &CmParameters) -> Result<(), Error> {
        let mut raw = parameters.to_raw("rdma_connect", self.port_space().connect_data_max())?;
        self.call_on_device("rdma_connect", |id| id.connect(&mut raw))
    }

    /// Accepts the request of this id: `rdma_accept(3)`. Established follows when the peer has
    /// confirmed.
    ///
    /// The queue pair must be [ready](Self::ready_qp). Private data is limited to
    /// [`PortSpace::accept_data_max`].
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, parameters: &CmParameters) -> Result<(), Error> {
        let mut raw = parameters.to_raw("rdma_accept", self.port_space().accept_data_max())?;
        self.call_on_device("rdma_accept", |id| id.accept(&mut raw))
    }

    /// Rejects the request of this id: `rdma_reject(3)`. Private data is limited to
    /// [`PortSpace::reject_data_max`].
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        private_data_len("rdma_reject", private_data, self.port_space().reject_data_max())?;
        self.call("rdma_reject", |id| id.reject(private_data))
    }

    /// Confirms to the peer that the queue pair is ready, after a connect response:
    /// `rdma_establish(3)`. No event follows on this side.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), Error> {
        self.call("rdma_establish", |id| id.establish())
    }

    /// Reports that a message arrived before the established event: `rdma_notify(3)` with
    /// `IBV_EVENT_COMM_EST`.
    #[doc(alias = "rdma_notify")]
    pub fn notify_established(&self) -> Result<(), Error> {
        self.call("rdma_notify", |id| id.notify(sys::IBV_EVENT_COMM_EST))
    }

    /// Ends the connection: `rdma_disconnect(3)`. Both sides get a disconnected event, and later a
    /// timewait exit. The side that did not disconnect first should disconnect too, which answers
    /// the peer.
    ///
    /// The queue pair keeps its state: move it to the error state to flush its work requests.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), Error> {
        self.call_on_device("rdma_disconnect", |id| id.disconnect())
    }

    /// Moves the id to another channel, with its pending events: `rdma_migrate_id(3)`.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, to: &EventChannel) -> Result<(), Error> {
        self.0.migrate(to.inner(), |id| {
            let errno = last_errno();
            Error::call("rdma_migrate_id", id.describe(), errno)
        })
    }

    /// Puts an event of the program itself on the id's channel: `rdma_write_cm_event(3)`. It wakes
    /// a thread that waits there.
    ///
    /// It needs rdma-core 60 and a kernel of that time.
    #[doc(alias = "rdma_write_cm_event")]
    pub fn write_event(&self, status: i32, argument: u64) -> Result<(), Error> {
        self.call("rdma_write_cm_event", |id| id.write_event(status, argument))
    }

    /// Returns the port space of the id.
    pub fn port_space(&self) -> PortSpace {
        self.0.port_space
    }

    /// Returns the local address and port: `rdma_get_local_addr(3)`, `rdma_get_src_port(3)`.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_src_port")]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.0.enter(|id| id.local_address())
    }

    /// Returns the peer's address and port: `rdma_get_peer_addr(3)`, `rdma_get_dst_port(3)`.
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.0.enter(|id| id.peer_address())
    }

    /// Returns the name of the device. `None` before the address is resolved, or if the id is bound
    /// to any address.
    pub fn device_name(&self) -> Option<String> {
        self.0.enter(|id| Some(id.on_device()?.device_name()))
    }

    /// Returns the device's port, numbered from 1. `None` if the id has no device.
    pub fn port(&self) -> Option<u8> {
        Some(self.0.enter(|id| id.port())).filter(|port| *port != 0)
    }

    /// Returns the open device to create the queue pair on.
    ///
    /// Ids of one channel share the context, and so do all requests of one listener: one protection
    /// domain serves all their connections over a device.
    pub fn context(&self) -> Result<Context, Error> {
        match self.device() {
            Some(device) => self.0.contexts.open(device, self),
            None => Err(Error::NoDevice { operation: "ibv_open_device" }),
        }
    }

    /// Releases the device, which was removed. No id opens it again, and it can be closed when all
    /// its objects are gone.
    pub(super) fn forget_device(&self) {
        if let Some(device) = self.device() {
            self.0.contexts.forget(device);
        }
    }

    /// Returns the device, by the pointer that both libraries use.
    fn device(&self) -> Option<*mut sys::ibv_device> {
        self.0.enter(|id| Some(id.on_device()?.device()))
    }

    pub(super) fn contexts(&self) -> &Arc<Contexts> {
        &self.0.contexts
    }

    /// Calls the library on the id, inside the gate of its channel.
    pub(super) fn call(
        &self,
        operation: &'static str,
        function: impl FnOnce(&Entered<'_>) -> Result<c_int, SymbolMissing>,
    ) -> Result<(), Error> {
        self.0.enter(|id| answered(operation, id, function(id)?))
    }

    /// Like [`call`](Self::call), for functions that read the id's device without checking for
    /// null.
    pub(super) fn call_on_device(
        &self,
        operation: &'static str,
        function: impl FnOnce(&OnDevice<'_>) -> Result<c_int, SymbolMissing>,
    ) -> Result<(), Error> {
        self.0.enter(|id| match id.on_device() {
            Some(on_device) => answered(operation, id, function(&on_device)?),
            None => Err(Error::NoDevice { operation }),
        })
    }

    /// Returns the inner id, which can be entered.
    pub(super) fn inner(&self) -> &Id {
        &self.0
    }

    /// Returns the multicast groups that the id has joined.
    pub(super) fn groups(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.0.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pending address resolution, if any.
    pub(super) fn resolution(&self) -> MutexGuard<'_, Option<Resolution>> {
        self.0.resolution.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts the status of the function that was just called.
fn answered(operation: &'static str, id: &Entered<'_>, status: c_int) -> Result<(), Error> {
    match status {
        0 => Ok(()),
        _ => {
            let errno = last_errno();
            Err(Error::call(operation, id.describe(), errno))
        }
    }
}

impl fmt::Display for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.enter(|id| id.describe()))
    }
}

impl fmt::Debug for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CmId")
            .field("port_space", &self.port_space())
            .field("local", &self.local_address())
            .field("peer", &self.peer_address())
            .finish_non_exhaustive()
    }
}

impl PartialEq for CmId {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CmId {}

impl Hash for CmId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}
