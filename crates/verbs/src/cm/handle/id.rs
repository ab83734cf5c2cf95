//! The C id.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Rdmacm, SymbolMissing};

use super::super::contexts::Contexts;
use super::super::port_space::PortSpace;
use super::super::resolution::Resolution;
use super::{Channel, Entered};
use crate::address::RawAddress;

/// A C id and its state. It is destroyed on drop.
///
/// Invariant: the C id lives, is on the channel in `channel`, and its `context` is a weak pointer
/// to this `Id`, by which the owner of an event is found.
pub(in crate::cm) struct Id {
    lib: &'static Rdmacm,
    id: NonNull<sys::rdma_cm_id>,
    /// Lock order: this lock before the gate of the channel in it; never inside a gate.
    channel: Mutex<Arc<Channel>>,
    pub(in crate::cm) port_space: PortSpace,
    pub(in crate::cm) contexts: Arc<Contexts>,
    /// The multicast groups that it has joined.
    pub(in crate::cm) groups: Mutex<Vec<SocketAddr>>,
    /// The pending address resolution. It is locked briefly, also inside the gate.
    pub(in crate::cm) resolution: Mutex<Option<Resolution>>,
}

// SAFETY: librdmacm accepts an id from any thread, and the pointer is used by one thread at a time,
// inside the gate.
unsafe impl Send for Id {}
// SAFETY: shared access to the C id goes through `enter` only, which locks the gate.
unsafe impl Sync for Id {}

impl Id {
    /// Takes ownership of a C id.
    ///
    /// # Safety
    ///
    /// The id is new, on this channel, and has no other owner. Either the channel's gate is held,
    /// or no operation was started on the id yet.
    pub(super) unsafe fn adopt(
        channel: &Arc<Channel>,
        id: NonNull<sys::rdma_cm_id>,
        port_space: PortSpace,
        contexts: &Arc<Contexts>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|weak: &Weak<Self>| {
            // SAFETY: the id lives, and nothing reads the field meanwhile: the caller holds the
            // gate, or the id has no event yet.
            unsafe { (*id.as_ptr()).context = weak.clone().into_raw().cast_mut().cast() };
            Self {
                lib: channel.lib,
                id,
                channel: Mutex::new(Arc::clone(channel)),
                port_space,
                contexts: Arc::clone(contexts),
                groups: Mutex::default(),
                resolution: Mutex::default(),
            }
        })
    }

    /// Returns the owner of a C id, or `None` if the owner is being dropped.
    ///
    /// # Safety
    ///
    /// The id was adopted and is not destroyed, and the gate of its channel is held.
    pub(super) unsafe fn find(id: *mut sys::rdma_cm_id) -> Option<Arc<Self>> {
        // SAFETY: the context of an adopted id is a weak pointer, which `drop` releases only after
        // the id was destroyed. It still belongs to the id, so this copy is not dropped.
        let owner = ManuallyDrop::new(unsafe { Weak::from_raw((*id).context.cast::<Self>().cast_const()) });
        owner.upgrade()
    }

    /// Enters the gate of the id's channel.
    pub(in crate::cm) fn enter<T>(&self, run: impl FnOnce(&Entered<'_>) -> T) -> T {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = channel.lock();
        run(&self.entered(&gate))
    }

    /// Makes an `Entered` id. `gate` must be that of the channel that the id is on.
    fn entered<'a>(&self, gate: &'a MutexGuard<'a, ()>) -> Entered<'a> {
        Entered { lib: self.lib, id: self.id, _gate: gate }
    }

    /// Moves the id to another channel. On failure, calls `failed` inside the gate.
    pub(in crate::cm) fn migrate<E: From<SymbolMissing>>(
        &self,
        to: &Arc<Channel>,
        failed: impl FnOnce(&Entered<'_>) -> E,
    ) -> Result<(), E> {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let from = Arc::clone(&channel);
        // Locks both gates, each once, ordered by address so that two migrations cannot deadlock.
        let (first, second) = if Arc::as_ptr(&from) <= Arc::as_ptr(to) { (&from, to) } else { (to, &from) };
        let gates = (first.lock(), (!Arc::ptr_eq(first, second)).then(|| second.lock()));
        // SAFETY: `self` is a live id and `to` a live channel, and `gates` holds the gates of both
        // channels. All events are acknowledged, so the call does not wait.
        let status: c_int = unsafe { self.lib.rdma_migrate_id(self.id.as_ptr(), to.as_ptr()) }?;
        if status != 0 {
            let (first_gate, second_gate) = &gates;
            // The gate of the channel that the id is still on: the second if that is `from`,
            // otherwise the first.
            let gate = second_gate.as_ref().filter(|_| Arc::ptr_eq(second, &from)).unwrap_or(first_gate);
            return Err(failed(&self.entered(gate)));
        }
        *channel = Arc::clone(to);
        // The gates are released before `from`, which may be destroyed here.
        drop(gates);
        Ok(())
    }
}

impl Drop for Id {
    #[doc(alias = "rdma_destroy_id")]
    fn drop(&mut self) {
        let groups = std::mem::take(self.groups.get_mut().unwrap_or_else(PoisonError::into_inner));
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = channel.lock();
        for group in groups {
            // Destroying an id leaves its groups too, but leaks librdmacm's records of them.
            let _ = self.entered(&gate).leave_multicast(&mut RawAddress::new(group));
        }
        let id = self.id.as_ptr();
        // SAFETY: the id lives until `rdma_destroy_id`, and its gate is held. Nothing else uses it:
        // an event's holder has an `Arc` of this `Id`, and all events are acknowledged, so the call
        // does not wait.
        let (context, status) = unsafe { ((*id).context, self.lib.rdma_destroy_id(id)) };
        drop(gate);
        // If the id was not destroyed, events may still look up its owner.
        if status == Ok(0) {
            // SAFETY: `adopt` made the pointer, and the id that held it is gone.
            drop(unsafe { Weak::from_raw(context.cast::<Self>().cast_const()) });
        }
    }
}
