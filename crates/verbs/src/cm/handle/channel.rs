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

/// A C channel, destroyed when nobody waits on it and no id is on it any more.
///
/// Invariant: the C object lives, and its ids are [`Id`]s, each of which holds this.
pub(in crate::cm) struct Channel {
    pub(super) lib: &'static Rdmacm,
    channel: NonNull<sys::rdma_event_channel>,
    gate: Mutex<()>,
    contexts: Arc<Contexts>,
}

// SAFETY: librdmacm takes a channel from any thread, and what it does not lock itself, its ids, is reached inside the gate.
unsafe impl Send for Channel {}
// SAFETY: the same holds for several threads at once: they take turns at the gate.
unsafe impl Sync for Channel {}

/// What came of asking for an event.
pub(in crate::cm) enum Taken {
    Nothing,
    Event {
        told: Told,
        id: Arc<Id>,
        /// Of a request.
        listener: Option<Arc<Id>>,
    },
    /// Something of an id that is gone; a request to it comes along, and rejects itself by being dropped.
    Orphan(Option<Arc<Id>>),
}

impl Channel {
    /// Opens a channel; none where the library does not, and `errno` says why.
    pub(in crate::cm) fn open(
        lib: &'static Rdmacm,
        contexts: Arc<Contexts>,
    ) -> Result<Option<Arc<Self>>, SymbolMissing> {
        // SAFETY: the function takes nothing that could be wrong.
        let channel = unsafe { lib.rdma_create_event_channel() }?;
        let own = |channel| Arc::new(Self { lib, channel, gate: Mutex::new(()), contexts });
        Ok(NonNull::new(channel).map(own))
    }

    /// Makes an id on this channel.
    pub(in crate::cm) fn create_id(self: &Arc<Self>, port_space: PortSpace) -> Result<Arc<Id>, Error> {
        let mut id = null_mut();
        // SAFETY: `self` is a live channel, and `id` a variable of this function.
        let status = unsafe {
            self.lib.rdma_create_id(self.channel.as_ptr(), &raw mut id, null_mut(), port_space.raw())
        }?;
        match NonNull::new(id) {
            // SAFETY: the call above made the id on this channel. Nothing was asked of it, so that no event can come of it yet.
            Some(id) if status == 0 => Ok(unsafe { Id::adopt(self, id, port_space, &self.contexts) }),
            _ => Err(Error::call("rdma_create_id", "the event channel", last_errno())),
        }
    }

    /// The descriptor, which is readable while there are events.
    pub(in crate::cm) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the library opens the descriptor with the channel, does not change the field, and closes it with the channel, which
        // lives as long as `self`.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Enters the gate.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        // Nothing is left half done: what the gate protects is C's.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn as_ptr(&self) -> *mut sys::rdma_event_channel {
        self.channel.as_ptr()
    }

    /// Gets an event, copies and acknowledges it, without waiting where the descriptor does not block.
    ///
    /// What was taken is the caller's to drop, outside of the gate: dropping an id enters it.
    pub(in crate::cm) fn take(self: &Arc<Self>) -> Result<Taken, Error> {
        let _gate = self.lock();
        let mut event = null_mut();
        // SAFETY: `self` is a live channel whose gate is entered, and `event` a variable of this function.
        let status = unsafe { self.lib.rdma_get_cm_event(self.channel.as_ptr(), &raw mut event) }?;
        let errno = last_errno();
        let Some(event) = NonNull::new(event).filter(|_| status == 0) else {
            return match errno {
                libc::EAGAIN | libc::EINTR => Ok(Taken::Nothing),
                errno => Err(Error::call("rdma_get_cm_event", "the event channel", errno)),
            };
        };
        // SAFETY: the call above gave the event, of this channel, whose gate `_gate` holds. It is read, then acknowledged once, and not
        // used after: `read` copies.
        let taken = unsafe {
            let taken = self.read(event.as_ref(), errno);
            // A library that has rdma_get_cm_event has this too.
            let _ = self.lib.rdma_ack_cm_event(event.as_ptr());
            taken
        };
        Ok(taken)
    }

    /// Copies an event. It drops no id.
    ///
    /// # Safety
    ///
    /// The event is of this channel and not acknowledged, and the gate is entered.
    unsafe fn read(self: &Arc<Self>, event: &sys::rdma_cm_event, errno: i32) -> Taken {
        let is_request = event.event == sys::RDMA_CM_EVENT_CONNECT_REQUEST;
        let owner = if is_request { event.listen_id } else { event.id };
        // SAFETY: an event that is not acknowledged keeps the ids that it names from being destroyed. Each of them is an `Id` of this
        // channel, but for the new one of a request, which is not the owner. What type of queue pair it has tells the event's view.
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
        // SAFETY: the library made the id for this request, on the listener's channel, which is this, and tells of it once. The gate is
        // entered.
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
        // SAFETY: each id on the channel is an `Id`, which holds it: there is none left, and nobody else has the channel.
        let _ = unsafe { self.lib.rdma_destroy_event_channel(self.channel.as_ptr()) };
    }
}
