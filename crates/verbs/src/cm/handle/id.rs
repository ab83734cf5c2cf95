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

/// A C id, and what is known of it. It is destroyed when this is dropped.
///
/// Invariant: the C id lives, is on the channel in `channel`, and its `context` is a weak pointer to here, by which the id of an
/// event is found.
pub(in crate::cm) struct Id {
    lib: &'static Rdmacm,
    id: NonNull<sys::rdma_cm_id>,
    /// Locked before the gate of the channel in it, and never inside one.
    channel: Mutex<Arc<Channel>>,
    pub(in crate::cm) port_space: PortSpace,
    pub(in crate::cm) contexts: Arc<Contexts>,
    /// The multicast groups that it has joined.
    pub(in crate::cm) groups: Mutex<Vec<SocketAddr>>,
    /// The address that is being asked for. Locked for a moment, also inside the gate.
    pub(in crate::cm) resolution: Mutex<Option<Resolution>>,
}

// SAFETY: librdmacm takes an id from any thread, and the pointer is used by one at a time: inside the gate.
unsafe impl Send for Id {}
// SAFETY: the same: whoever shares it gets to the C id by `enter` alone, which locks the gate.
unsafe impl Sync for Id {}

impl Id {
    /// Makes a C id one of ours.
    ///
    /// # Safety
    ///
    /// The id is new, on this channel, and nobody else's. Either the channel's gate is entered, or nothing was asked of the id yet.
    pub(super) unsafe fn adopt(
        channel: &Arc<Channel>,
        id: NonNull<sys::rdma_cm_id>,
        port_space: PortSpace,
        contexts: &Arc<Contexts>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|weak: &Weak<Self>| {
            // SAFETY: the id lives, and nobody reads the field meanwhile: the caller is inside the gate, or the id has no event yet.
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

    /// Whose C id it is; none when its owner is about to destroy it.
    ///
    /// # Safety
    ///
    /// The id was adopted and is not destroyed, and the gate of its channel is entered.
    pub(super) unsafe fn find(id: *mut sys::rdma_cm_id) -> Option<Arc<Self>> {
        // SAFETY: the context of an adopted id is a weak pointer, which `drop` gives up only after the id was destroyed. It stays the
        // id's: this copy is not dropped.
        let owner = ManuallyDrop::new(unsafe { Weak::from_raw((*id).context.cast::<Self>().cast_const()) });
        owner.upgrade()
    }

    /// Enters the gate of its channel.
    pub(in crate::cm) fn enter<T>(&self, run: impl FnOnce(&Entered<'_>) -> T) -> T {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = channel.lock();
        run(&self.entered(&gate))
    }

    /// `gate` is that of the channel that it is on.
    fn entered<'a>(&self, gate: &'a MutexGuard<'a, ()>) -> Entered<'a> {
        Entered { lib: self.lib, id: self.id, _gate: gate }
    }

    /// Moves it to another channel. Where that fails, `failed` is told inside the gate.
    pub(in crate::cm) fn migrate<E: From<SymbolMissing>>(
        &self,
        to: &Arc<Channel>,
        failed: impl FnOnce(&Entered<'_>) -> E,
    ) -> Result<(), E> {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let from = Arc::clone(&channel);
        // Both gates, each once, in an order that is the same for all.
        let (first, second) = if Arc::as_ptr(&from) <= Arc::as_ptr(to) { (&from, to) } else { (to, &from) };
        let gates = (first.lock(), (!Arc::ptr_eq(first, second)).then(|| second.lock()));
        // SAFETY: `self` is a live id and `to` a live channel; `gates` are those of both channels. All events are acknowledged, so that
        // it does not wait.
        let status: c_int = unsafe { self.lib.rdma_migrate_id(self.id.as_ptr(), to.as_ptr()) }?;
        if status != 0 {
            let (first_gate, second_gate) = &gates;
            // That of the channel that it is still on: the first, unless the second is another's and this one's.
            let gate = second_gate.as_ref().filter(|_| Arc::ptr_eq(second, &from)).unwrap_or(first_gate);
            return Err(failed(&self.entered(gate)));
        }
        *channel = Arc::clone(to);
        // The gates before the channel left, which may end here.
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
            // Destroying leaves the groups too, and forgets to free what librdmacm noted of them.
            let _ = self.entered(&gate).leave_multicast(&mut RawAddress::new(group));
        }
        let id = self.id.as_ptr();
        // SAFETY: the id lives until the second line, and its gate is entered. Nobody names it any more: whoever has the id of an event
        // holds an `Arc` of this, and all events are acknowledged, so that it does not wait.
        let (context, status) = unsafe { ((*id).context, self.lib.rdma_destroy_id(id)) };
        drop(gate);
        // Otherwise it lives on, and events may still look its owner up.
        if status == Ok(0) {
            // SAFETY: `adopt` made the pointer, and the id that it went to is gone.
            drop(unsafe { Weak::from_raw(context.cast::<Self>().cast_const()) });
        }
    }
}
