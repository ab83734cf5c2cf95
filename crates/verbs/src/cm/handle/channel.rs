//! The C event channel.

use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Rdmacm, SymbolMissing};

use super::super::contexts::Contexts;
use super::super::error::Error;
use super::super::event::{EventKind, Told};
use super::super::port_space::PortSpace;
use super::{Id, event, last_errno};

/// A C event channel. It is destroyed when no clone of the `Arc` and no id on it is left.
///
/// Invariant: the C object lives, and all its ids are [`Id`]s, each of which holds this channel.
pub(in crate::cm) struct Channel {
    pub(super) lib: &'static Rdmacm,
    channel: NonNull<sys::rdma_event_channel>,
    gate: Mutex<()>,
    contexts: Arc<Contexts>,
}

// SAFETY: librdmacm accepts a channel from any thread. The state that it does not lock itself, that
// of the ids, is accessed only inside the gate.
unsafe impl Send for Channel {}
// SAFETY: as for `Send`; the gate serialises concurrent threads.
unsafe impl Sync for Channel {}

/// The result of getting an event.
pub(in crate::cm) enum Taken {
    Nothing,
    Event {
        told: Told,
        id: Arc<Id>,
        /// The listening id, for a connect request.
        listener: Option<Arc<Id>>,
    },
    /// An event of an id that is gone. A connect request comes with its new id, whose drop rejects
    /// the request.
    Orphan(Option<Arc<Id>>),
}

impl Channel {
    /// Opens a channel. Returns `None` with `errno` set if the library fails.
    pub(in crate::cm) fn open(
        lib: &'static Rdmacm,
        contexts: Arc<Contexts>,
    ) -> Result<Option<Arc<Self>>, SymbolMissing> {
        // SAFETY: the function takes no arguments.
        let channel = unsafe { lib.rdma_create_event_channel() }?;
        let own = |channel| Arc::new(Self { lib, channel, gate: Mutex::new(()), contexts });
        Ok(NonNull::new(channel).map(own))
    }

    /// Creates an id on this channel.
    pub(in crate::cm) fn create_id(self: &Arc<Self>, port_space: PortSpace) -> Result<Arc<Id>, Error> {
        let mut id = null_mut();
        // SAFETY: `self` is a live channel, and `id` is a local variable.
        let status = unsafe {
            self.lib.rdma_create_id(self.channel.as_ptr(), &raw mut id, null_mut(), port_space.raw())
        }?;
        match NonNull::new(id) {
            // SAFETY: the call above created the id on this channel. No operation was started on
            // it, so no event of it can exist yet.
            Some(id) if status == 0 => Ok(unsafe { Id::adopt(self, id, port_space, &self.contexts) }),
            _ => Err(Error::call("rdma_create_id", "the event channel", last_errno())),
        }
    }

    /// Returns the descriptor, which is readable while events are pending.
    pub(in crate::cm) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the library opens the descriptor with the channel, does not change the field, and
        // closes the descriptor with the channel, which lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Enters the gate.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        // The gate protects no Rust data, so a panic while it was held left nothing inconsistent.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn as_ptr(&self) -> *mut sys::rdma_event_channel {
        self.channel.as_ptr()
    }

    /// Gets an event, copies it and acknowledges it. It does not wait if the descriptor is
    /// non-blocking.
    ///
    /// The caller must drop the result outside of the gate: dropping an id enters it.
    pub(in crate::cm) fn take(self: &Arc<Self>) -> Result<Taken, Error> {
        let _gate = self.lock();
        let mut event = null_mut();
        // SAFETY: `self` is a live channel whose gate is held, and `event` is a local variable.
        let status = unsafe { self.lib.rdma_get_cm_event(self.channel.as_ptr(), &raw mut event) }?;
        let errno = last_errno();
        let Some(event) = NonNull::new(event).filter(|_| status == 0) else {
            return match errno {
                libc::EAGAIN | libc::EINTR => Ok(Taken::Nothing),
                errno => Err(Error::call("rdma_get_cm_event", "the event channel", errno)),
            };
        };
        // SAFETY: the call above returned the event of this channel, whose gate `_gate` holds. The
        // event is copied by `read`, then acknowledged once, and not used afterwards.
        let taken = unsafe {
            let taken = self.read(event.as_ref(), errno);
            // A library that has rdma_get_cm_event has this function too.
            let _ = self.lib.rdma_ack_cm_event(event.as_ptr());
            taken
        };
        Ok(taken)
    }

    /// Copies an event. It drops no id.
    ///
    /// # Safety
    ///
    /// The event belongs to this channel and is not acknowledged, and the gate is held.
    unsafe fn read(self: &Arc<Self>, event: &sys::rdma_cm_event, errno: i32) -> Taken {
        let is_request = event.event == sys::RDMA_CM_EVENT_CONNECT_REQUEST;
        let owner = if is_request { event.listen_id } else { event.id };
        // SAFETY: until an event is acknowledged, the ids that it names are not destroyed. Each of
        // them is an `Id` of this channel, except the new id of a request, which is not the owner.
        // The queue pair type of the owner determines the valid union field of the event.
        let (told, owner) = unsafe {
            let is_datagram = (*owner).qp_type == sys::IBV_QPT_UD;
            (event::read(event, is_datagram, errno), Id::find(owner))
        };
        if told.kind != EventKind::ConnectRequest {
            return match owner {
                Some(id) => Taken::Event { told, id, listener: None },
                None => Taken::Orphan(None),
            };
        }
        let Some(id) = NonNull::new(event.id) else { return Taken::Orphan(owner) };
        let (port_space, contexts) = match &owner {
            Some(listener) => (listener.port_space, &listener.contexts),
            None => (PortSpace::Tcp, &self.contexts),
        };
        // SAFETY: the library created the id for this request, on the listener's channel, which is
        // this one, and reports it once. The gate is held.
        let id = unsafe { Id::adopt(self, id, port_space, contexts) };
        match owner {
            Some(listener) => Taken::Event { told, id, listener: Some(listener) },
            None => Taken::Orphan(Some(id)),
        }
    }
}

impl Drop for Channel {
    #[doc(alias = "rdma_destroy_event_channel")]
    fn drop(&mut self) {
        // SAFETY: each id on the channel is an `Id`, which holds the channel. So no id is left, and
        // `drop` has the only reference.
        let _ = unsafe { self.lib.rdma_destroy_event_channel(self.channel.as_ptr()) };
    }
}
