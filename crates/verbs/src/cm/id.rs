//! Ids: one end of a connection, or a listener.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Rdmacm, SymbolMissing};

use super::address::{self, RawAddress};
use super::channel::{self, EventChannel, last_errno};
use super::contexts::Contexts;
use super::error::Error;
use super::parameters::{CmParameters, pointer, private_data_len};
use super::port_space::PortSpace;
use super::resolution::Resolution;
use super::wait::milliseconds_until;
use crate::context::Context;

/// One end of a connection, as a socket is of TCP's; or a listener, or a member of multicast groups.
///
/// It does not own the queue pair: that is yours, made on [`context`](Self::context), and is only told where to connect to
/// ([`init_qp`](Self::init_qp), [`ready_qp`](Self::ready_qp)). Every step is asked for here and answered by an event on its channel.
/// [`Connector`](super::Connector) and [`Listener`](super::Listener) do all steps in their order.
///
/// Cheap to clone, and equal to its clones. It is destroyed when the last clone, and the last event of it, is gone: its
/// connection ends then, and a request that was not answered is rejected. Ids and channels may be dropped in any order.
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
pub struct CmId(Arc<Inner>);

impl CmId {
    /// Binds it to a local address: `rdma_bind_addr(3)`. Port 0 lets the kernel choose one.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, local: SocketAddr) -> Result<(), Error> {
        let mut raw = RawAddress::new(local);
        let said = self.call("rdma_bind_addr", |lib, id| {
            // SAFETY: the id lives, its channel's gate is entered; the address is one of IP.
            unsafe { lib.rdma_bind_addr(id, raw.as_mut_ptr()) }
        });
        // An unbound id has no better name than the address that it was refused.
        said.map_err(|error| match error {
            Error::Call { operation, errno, .. } => Error::call(operation, local.to_string(), errno.0),
            other => other,
        })
    }

    /// Looks for a path to the resolved address: `rdma_resolve_route(3)`.
    ///
    /// A route-resolved or route-error event answers, at the deadline at the latest.
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, deadline: Instant) -> Result<(), Error> {
        let timeout_ms = milliseconds_until(deadline).unwrap_or(1);
        self.call_on_device("rdma_resolve_route", |lib, id| {
            // SAFETY: the id lives, its channel's gate is entered; it has a device, which the function reads.
            unsafe { lib.rdma_resolve_route(id, timeout_ms) }
        })
    }

    /// Waits for requests to the bound address, `backlog` of them at most untaken: `rdma_listen(3)`. Further ones get no answer,
    /// and their kernel asks again every few seconds.
    ///
    /// Each comes as a connect request: [`CmEvent::into_request`](super::CmEvent::into_request).
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u16) -> Result<(), Error> {
        self.call("rdma_listen", |lib, id| {
            // SAFETY: the id lives, its channel's gate is entered.
            unsafe { lib.rdma_listen(id, backlog.max(1).into()) }
        })
    }

    /// Asks the other side: `rdma_connect(3)`.
    ///
    /// A connect response answers, or, for datagrams and iWARP, established; otherwise rejected, unreachable or connect error.
    /// Private data fits up to [`PortSpace::connect_data_max`].
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, parameters: &CmParameters) -> Result<(), Error> {
        let mut raw = parameters.to_raw("rdma_connect", self.port_space().connect_data_max())?;
        self.call_on_device("rdma_connect", |lib, id| {
            // SAFETY: the id lives, its channel's gate is entered; it has a device, whose limits the function reads; the private
            // data outlives the call.
            unsafe { lib.rdma_connect(id, &raw mut raw) }
        })
    }

    /// Says yes to the request that the id came with: `rdma_accept(3)`. Established answers when the other side has agreed.
    ///
    /// The queue pair must be [ready](Self::ready_qp). Private data fits up to [`PortSpace::accept_data_max`].
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, parameters: &CmParameters) -> Result<(), Error> {
        let mut raw = parameters.to_raw("rdma_accept", self.port_space().accept_data_max())?;
        self.call_on_device("rdma_accept", |lib, id| {
            // SAFETY: as for connecting.
            unsafe { lib.rdma_accept(id, &raw mut raw) }
        })
    }

    /// Says no to the request that the id came with: `rdma_reject(3)`. Private data fits up to [`PortSpace::reject_data_max`].
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        let len = private_data_len("rdma_reject", private_data, self.port_space().reject_data_max())?;
        self.call("rdma_reject", |lib, id| {
            // SAFETY: the id lives, its channel's gate is entered; the data is readable for its length.
            unsafe { lib.rdma_reject(id, pointer(private_data), len) }
        })
    }

    /// After a connect response, and when the queue pair is ready: tells the other side so, `rdma_establish(3)`. No event
    /// follows on this side.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), Error> {
        self.call("rdma_establish", |lib, id| {
            // SAFETY: the id lives, its channel's gate is entered; it owns no queue pair.
            unsafe { lib.rdma_establish(id) }
        })
    }

    /// Tells that a message came before the established event did: `rdma_notify(3)` with `IBV_EVENT_COMM_EST`.
    #[doc(alias = "rdma_notify")]
    pub fn notify_established(&self) -> Result<(), Error> {
        self.call("rdma_notify", |lib, id| {
            // SAFETY: the id lives, its channel's gate is entered.
            unsafe { lib.rdma_notify(id, sys::IBV_EVENT_COMM_EST) }
        })
    }

    /// Ends the connection: `rdma_disconnect(3)`. Both sides get a disconnected event, later a timewait exit. The side that is told
    /// disconnects as well, which answers the first.
    ///
    /// The queue pair is yours and stays as it is: move it to the error state to flush what is posted.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), Error> {
        self.call_on_device("rdma_disconnect", |lib, id| {
            // SAFETY: the id lives, its channel's gate is entered.
            unsafe { lib.rdma_disconnect(id) }
        })
    }

    /// Moves it to another channel, with the events that are waiting: `rdma_migrate_id(3)`.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, to: &EventChannel) -> Result<(), Error> {
        let mut channel = self.channel();
        let from = Arc::clone(&channel);
        let to = to.inner();
        // Both gates, each once, in an order that is the same for all.
        let (first, second) = if Arc::as_ptr(&from) <= Arc::as_ptr(to) { (&from, to) } else { (to, &from) };
        let gates = (first.lock(), (!Arc::ptr_eq(first, second)).then(|| second.lock()));
        // SAFETY: the id and the channel live and both gates are entered. All events are acknowledged: it does not wait.
        let status = unsafe { self.0.lib.rdma_migrate_id(self.as_ptr(), to.as_ptr()) }?;
        if status != 0 {
            let errno = last_errno();
            // SAFETY: the id lives, and its channel's gate is still entered.
            return Err(Error::call("rdma_migrate_id", unsafe { describe(self.as_ptr()) }, errno));
        }
        *channel = Arc::clone(to);
        // The gates before the channel left, which may end here.
        drop(gates);
        Ok(())
    }

    /// Puts an event of the program's own on the id's channel: `rdma_write_cm_event(3)`. It wakes who waits there.
    ///
    /// Needs rdma-core 60 and a kernel of its time.
    #[doc(alias = "rdma_write_cm_event")]
    pub fn write_event(&self, status: i32, argument: u64) -> Result<(), Error> {
        self.call("rdma_write_cm_event", |lib, id| {
            // SAFETY: the id lives, its channel's gate is entered.
            unsafe { lib.rdma_write_cm_event(id, sys::RDMA_CM_EVENT_USER, status, argument) }
        })
    }

    /// The port space that it was made in.
    pub fn port_space(&self) -> PortSpace {
        self.0.port_space
    }

    /// The local address and port: `rdma_get_local_addr(3)`, `rdma_get_src_port(3)`.
    #[doc(alias = "rdma_get_local_addr")]
    #[doc(alias = "rdma_get_src_port")]
    pub fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: the id lives and the gate is entered; its address is inside of it.
        self.locked(|id| unsafe { address::read(sys::rdma_get_local_addr(id)) })
    }

    /// The other side's address and port: `rdma_get_peer_addr(3)`, `rdma_get_dst_port(3)`.
    #[doc(alias = "rdma_get_peer_addr")]
    #[doc(alias = "rdma_get_dst_port")]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        self.locked(|id| unsafe { peer(id) })
    }

    /// The device, by name; none before the address is resolved, or when it is bound to any address.
    pub fn device_name(&self) -> Option<String> {
        self.locked(|id| {
            let device = NonNull::new(device(id))?;
            // SAFETY: the device lives as long as the id; its name ends with a NUL.
            let name = unsafe { CStr::from_ptr((&raw const (*device.as_ptr()).name).cast()) };
            Some(name.to_string_lossy().into_owned())
        })
    }

    /// The device's port, counted from 1; none where there is no device.
    pub fn port(&self) -> Option<u8> {
        // SAFETY: the id lives and the gate is entered.
        self.locked(|id| unsafe { (*id).port_num }).into_option()
    }

    /// The device, open: where its queue pair is to be made.
    ///
    /// Ids that were made on one channel share it, and so do all requests of one listener: one protection domain serves
    /// all their connections over a device.
    pub fn context(&self) -> Result<Context, Error> {
        match self.locked(device) {
            device if device.is_null() => Err(Error::NoDevice { operation: "ibv_open_device" }),
            device => self.0.contexts.open(device, self),
        }
    }

    /// Lets go of the device, which has been removed: no id opens it again, and it can go when all are gone.
    pub(super) fn forget_device(&self) {
        self.0.contexts.forget(self.locked(device));
    }

    pub(super) fn contexts(&self) -> &Arc<Contexts> {
        &self.0.contexts
    }

    /// Calls the library on the id, inside the gate of its channel.
    pub(super) fn call(
        &self,
        operation: &'static str,
        function: impl FnOnce(&Rdmacm, *mut sys::rdma_cm_id) -> Result<c_int, SymbolMissing>,
    ) -> Result<(), Error> {
        self.locked(|id| match function(self.0.lib, id)? {
            0 => Ok(()),
            _ => {
                let errno = last_errno();
                // SAFETY: the id lives and the gate is entered.
                Err(Error::call(operation, unsafe { describe(id) }, errno))
            }
        })
    }

    /// As [`call`](Self::call), for the functions that read the id's device without looking whether there is one.
    pub(super) fn call_on_device(
        &self,
        operation: &'static str,
        function: impl FnOnce(&Rdmacm, *mut sys::rdma_cm_id) -> Result<c_int, SymbolMissing>,
    ) -> Result<(), Error> {
        if self.locked(device).is_null() {
            return Err(Error::NoDevice { operation });
        }
        // It stays: an id never loses its device.
        self.call(operation, function)
    }

    /// Reads the id inside the gate of its channel.
    pub(super) fn locked<T>(&self, read: impl FnOnce(*mut sys::rdma_cm_id) -> T) -> T {
        let channel = self.channel();
        let _gate = channel.lock();
        read(self.as_ptr())
    }

    /// The multicast groups that it has joined.
    pub(super) fn groups(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.0.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address that is being asked for, if one is.
    pub(super) fn resolution(&self) -> MutexGuard<'_, Option<Resolution>> {
        self.0.resolution.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn channel(&self) -> MutexGuard<'_, Arc<channel::Inner>> {
        self.0.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn as_ptr(&self) -> *mut sys::rdma_cm_id {
        self.0.id.as_ptr()
    }
}

impl fmt::Display for CmId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the id lives and the gate is entered.
        f.pad(&self.locked(|id| unsafe { describe(id) }))
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

/// The C id. Its `context` is a weak pointer to here, which finds the id of an event.
struct Inner {
    lib: &'static Rdmacm,
    id: NonNull<sys::rdma_cm_id>,
    port_space: PortSpace,
    /// Locked before the gate of the channel in it, and never inside one.
    channel: Mutex<Arc<channel::Inner>>,
    contexts: Arc<Contexts>,
    groups: Mutex<Vec<SocketAddr>>,
    /// The address that is being asked for. Locked for a moment, also inside the gate.
    resolution: Mutex<Option<Resolution>>,
}

// SAFETY: the library takes an id from any thread, and the gate of its channel lets one in at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Makes a C id one of ours.
///
/// # Safety
///
/// The id is new, on this channel, and nobody else's; nothing was asked of it, or the channel's gate is entered.
pub(super) unsafe fn adopt(
    channel: &Arc<channel::Inner>,
    id: NonNull<sys::rdma_cm_id>,
    port_space: PortSpace,
    contexts: &Arc<Contexts>,
) -> CmId {
    let inner = Arc::new(Inner {
        lib: channel.lib,
        id,
        port_space,
        channel: Mutex::new(Arc::clone(channel)),
        contexts: Arc::clone(contexts),
        groups: Mutex::default(),
        resolution: Mutex::default(),
    });
    let context = Arc::downgrade(&inner).into_raw();
    // SAFETY: nobody reads the field meanwhile: no event of the id is being read.
    unsafe { (*id.as_ptr()).context = context.cast_mut().cast::<c_void>() };
    CmId(inner)
}

/// Whose C id it is; none when its owner is about to destroy it.
///
/// # Safety
///
/// The id was adopted and is not destroyed, and the gate of its channel is entered.
pub(super) unsafe fn find(id: *mut sys::rdma_cm_id) -> Option<CmId> {
    // SAFETY: the context of an adopted id is a weak pointer, which is given up only after the id was destroyed.
    let owner = ManuallyDrop::new(unsafe { Weak::from_raw((*id).context.cast::<Inner>().cast_const()) });
    owner.upgrade().map(CmId)
}

impl Drop for Inner {
    #[doc(alias = "rdma_destroy_id")]
    fn drop(&mut self) {
        let channel = self.channel.get_mut().unwrap_or_else(PoisonError::into_inner);
        let groups = self.groups.get_mut().unwrap_or_else(PoisonError::into_inner);
        let gate = channel.lock();
        let id = self.id.as_ptr();
        for group in groups.drain(..) {
            // Destroying leaves the groups too, and forgets to free what librdmacm noted of them.
            // SAFETY: the id lives, the gate is entered, and every event is acknowledged: it does not wait.
            let _ = unsafe { self.lib.rdma_leave_multicast(id, RawAddress::new(group).as_mut_ptr()) };
        }
        // SAFETY: the id lives and nobody else uses it.
        let context = unsafe { (*id).context };
        // SAFETY: the gate is entered, and every event of the id is acknowledged: it does not wait. Nobody names it any more.
        let status = unsafe { self.lib.rdma_destroy_id(id) };
        drop(gate);
        // Otherwise it lives on, and events may still look its owner up.
        if status == Ok(0) {
            // SAFETY: the pointer was made when the id was adopted, and went with it.
            drop(unsafe { Weak::from_raw(context.cast::<Self>().cast_const()) });
        }
    }
}

/// The id's device, or null.
fn device(id: *mut sys::rdma_cm_id) -> *mut sys::ibv_device {
    // SAFETY: the id lives and the gate of its channel is entered; a context has a device.
    unsafe { NonNull::new((*id).verbs).map_or(null_mut(), |context| (*context.as_ptr()).device) }
}

/// The other side's address. Binding fills it with one of zeroes.
///
/// # Safety
///
/// The id lives, and the gate of its channel is entered.
unsafe fn peer(id: *mut sys::rdma_cm_id) -> Option<SocketAddr> {
    // SAFETY: passed on to the caller; the address is inside of the id.
    unsafe { address::read(sys::rdma_get_peer_addr(id)) }.filter(|peer| !peer.ip().is_unspecified())
}

/// The id as a person names it.
///
/// # Safety
///
/// The id lives, and the gate of its channel is entered.
unsafe fn describe(id: *mut sys::rdma_cm_id) -> String {
    // SAFETY: passed on to the caller.
    let (local, peer) = unsafe { (address::read(sys::rdma_get_local_addr(id)), peer(id)) };
    match (peer, local) {
        (Some(peer), _) => format!("the connection with {peer}"),
        (None, Some(local)) => format!("the id at {local}"),
        (None, None) => "an unbound id".to_owned(),
    }
}

/// Numbers that are 0 where there is none.
trait IntoOption: Sized {
    fn into_option(self) -> Option<Self>;
}

impl IntoOption for u8 {
    fn into_option(self) -> Option<Self> {
        (self != 0).then_some(self)
    }
}
