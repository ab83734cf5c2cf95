//! The functions of librdmacm on an id, and the fields of an id: one method for each.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::{NonNull, null_mut};
use std::sync::MutexGuard;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Rdmacm, SymbolMissing};

use super::super::parameters::{RawParameters, pointer};
use crate::address::{self, RawAddress};
use crate::device::text;

/// The result of a C function: 0, or another value with `errno` set.
type Answer = Result<c_int, SymbolMissing>;

/// An id inside the gate of its channel.
///
/// Invariant: while this lives, the C id lives, and this thread holds the gate of the channel that
/// the id is on. So no other thread accesses the id meanwhile. Only [`Id`](super::Id) creates one.
///
/// A method is safe if its function requires no more than that: the other arguments are numbers, or
/// are borrowed for the call and valid by their type.
pub(in crate::cm) struct Entered<'a> {
    pub(super) lib: &'static Rdmacm,
    pub(super) id: NonNull<sys::rdma_cm_id>,
    pub(super) _gate: &'a MutexGuard<'a, ()>,
}

impl Entered<'_> {
    pub(in crate::cm) fn bind_addr(&self, address: &mut RawAddress) -> Answer {
        // SAFETY: `Entered`: the id lives, inside its gate. A `RawAddress` is as long as its family
        // requires.
        unsafe { self.lib.rdma_bind_addr(self.id.as_ptr(), address.as_mut_ptr()) }
    }

    pub(in crate::cm) fn resolve_addr(
        &self,
        source: Option<&mut RawAddress>,
        destination: &mut RawAddress,
        timeout_ms: c_int,
    ) -> Answer {
        let source = source.map_or(null_mut(), RawAddress::as_mut_ptr);
        // SAFETY: `Entered`: the id lives, inside its gate. A `RawAddress` is as long as its family
        // requires; the source may be null.
        unsafe { self.lib.rdma_resolve_addr(self.id.as_ptr(), source, destination.as_mut_ptr(), timeout_ms) }
    }

    pub(in crate::cm) fn listen(&self, backlog: c_int) -> Answer {
        // SAFETY: `Entered`: the id lives, inside its gate.
        unsafe { self.lib.rdma_listen(self.id.as_ptr(), backlog) }
    }

    /// Rejects a request. The caller has checked the length: bytes beyond 255 would not be sent as
    /// given.
    pub(in crate::cm) fn reject(&self, private_data: &[u8]) -> Answer {
        let len = private_data.len() as u8;
        // SAFETY: `Entered`: the id lives, inside its gate. `len` is at most the number of bytes.
        unsafe { self.lib.rdma_reject(self.id.as_ptr(), pointer(private_data), len) }
    }

    pub(in crate::cm) fn establish(&self) -> Answer {
        // SAFETY: `Entered`: the id lives, inside its gate. It has no queue pair that the library
        // would modify.
        unsafe { self.lib.rdma_establish(self.id.as_ptr()) }
    }

    pub(in crate::cm) fn notify(&self, event: sys::ibv_event_type) -> Answer {
        // SAFETY: `Entered`: the id lives, inside its gate.
        unsafe { self.lib.rdma_notify(self.id.as_ptr(), event) }
    }

    pub(in crate::cm) fn write_event(&self, status: c_int, argument: u64) -> Answer {
        // SAFETY: `Entered`: the id lives, inside its gate.
        unsafe { self.lib.rdma_write_cm_event(self.id.as_ptr(), sys::RDMA_CM_EVENT_USER, status, argument) }
    }

    pub(in crate::cm) fn leave_multicast(&self, group: &mut RawAddress) -> Answer {
        // SAFETY: `Entered`: the id lives, inside its gate. A `RawAddress` is as long as its family
        // requires. All events are acknowledged, so the call does not wait.
        unsafe { self.lib.rdma_leave_multicast(self.id.as_ptr(), group.as_mut_ptr()) }
    }

    /// Sets an option of the level `RDMA_OPTION_ID`.
    pub(in crate::cm) fn set_option(&self, option: u32, value: &mut [u8]) -> Answer {
        let (level, value, len) = (sys::RDMA_OPTION_ID as c_int, value.as_mut_ptr().cast(), value.len());
        // SAFETY: `Entered`: the id lives, inside its gate. The kernel copies `len` bytes from
        // `value`. The library does not read it, so its alignment does not matter.
        unsafe { self.lib.rdma_set_option(self.id.as_ptr(), level, option as c_int, value, len) }
    }

    pub(in crate::cm) fn set_local_ece(&self, ece: &mut sys::ibv_ece) -> Answer {
        // SAFETY: `Entered`: the id lives, inside its gate.
        unsafe { self.lib.rdma_set_local_ece(self.id.as_ptr(), ece) }
    }

    pub(in crate::cm) fn get_remote_ece(&self, ece: &mut sys::ibv_ece) -> Answer {
        // SAFETY: `Entered`: the id lives, inside its gate.
        unsafe { self.lib.rdma_get_remote_ece(self.id.as_ptr(), ece) }
    }

    pub(in crate::cm) fn init_qp_attr(&self, attributes: &mut sys::ibv_qp_attr, mask: &mut c_int) -> Answer {
        // SAFETY: `Entered`: the id lives, inside its gate.
        unsafe { self.lib.rdma_init_qp_attr(self.id.as_ptr(), attributes, mask) }
    }

    pub(in crate::cm) fn local_address(&self) -> Option<SocketAddr> {
        // SAFETY: `Entered`: the id lives, and no other thread changes it. Its address has room for
        // the largest family.
        unsafe { address::read(sys::rdma_get_local_addr(self.id.as_ptr())) }
    }

    /// Returns the peer's address. Binding fills it with zeroes, which are filtered out.
    pub(in crate::cm) fn peer_address(&self) -> Option<SocketAddr> {
        // SAFETY: `Entered`: the id lives, and no other thread changes it. Its address has room for
        // the largest family.
        let peer = unsafe { address::read(sys::rdma_get_peer_addr(self.id.as_ptr())) };
        peer.filter(|peer| !peer.ip().is_unspecified())
    }

    /// Returns the device's port, or 0.
    pub(in crate::cm) fn port(&self) -> u8 {
        // SAFETY: `Entered`: the id lives, and no other thread changes it.
        unsafe { (*self.id.as_ptr()).port_num }
    }

    /// Returns the addresses and the paths.
    pub(in crate::cm) fn route(&self) -> (sys::rdma_ib_addr, Vec<sys::ibv_sa_path_rec>) {
        // SAFETY: `Entered`: the id lives, and no other thread changes it. The union of the
        // addresses has only this field. `path_rec` is null, or points to `num_paths` paths.
        unsafe {
            let route = &raw const (*self.id.as_ptr()).route;
            let count = usize::try_from((*route).num_paths).unwrap_or(0);
            let paths = match (*route).path_rec {
                start if start.is_null() => Vec::new(),
                start => std::slice::from_raw_parts(start, count).to_vec(),
            };
            ((*route).addr.addr.ibaddr, paths)
        }
    }

    /// Returns the id with its device, if it has one.
    pub(in crate::cm) fn on_device(&self) -> Option<OnDevice<'_>> {
        // SAFETY: `Entered`: the id lives, and no other thread changes it. The context of an id is
        // open, and keeps its device.
        let device =
            unsafe { NonNull::new((*self.id.as_ptr()).verbs).map(|context| (*context.as_ptr()).device) };
        Some(OnDevice { id: self, device: NonNull::new(device?)? })
    }

    /// Returns a description of the id for users.
    pub(in crate::cm) fn describe(&self) -> String {
        match (self.peer_address(), self.local_address()) {
            (Some(peer), _) => format!("the connection with {peer}"),
            (None, Some(local)) => format!("the id at {local}"),
            (None, None) => "an unbound id".to_owned(),
        }
    }
}

/// An [`Entered`] id that has a device. Several functions read the device without checking for
/// null.
///
/// Invariant: `device` is the device of the id, which never loses it.
pub(in crate::cm) struct OnDevice<'a> {
    id: &'a Entered<'a>,
    device: NonNull<sys::ibv_device>,
}

impl OnDevice<'_> {
    /// Returns the device, by the pointer that libibverbs uses too.
    pub(in crate::cm) fn device(&self) -> *mut sys::ibv_device {
        self.device.as_ptr()
    }

    pub(in crate::cm) fn device_name(&self) -> String {
        // SAFETY: the context of the id, which is `Entered`, is open while the id lives, and keeps
        // its device listed. The library writes the name before it lists a device.
        let name = unsafe { (*self.device.as_ptr()).name };
        text(&name).to_string_lossy().into_owned()
    }

    pub(in crate::cm) fn resolve_route(&self, timeout_ms: c_int) -> Answer {
        // SAFETY: `Entered` and `OnDevice`: the id lives, inside its gate, and has the device that
        // the function reads.
        unsafe { self.id.lib.rdma_resolve_route(self.id.id.as_ptr(), timeout_ms) }
    }

    pub(in crate::cm) fn connect(&self, parameters: &mut RawParameters<'_>) -> Answer {
        // SAFETY: `Entered` and `OnDevice`: the id lives, inside its gate, and has the device whose
        // limits the function reads. `RawParameters` borrows the private data.
        unsafe { self.id.lib.rdma_connect(self.id.id.as_ptr(), parameters.as_mut_ptr()) }
    }

    pub(in crate::cm) fn accept(&self, parameters: &mut RawParameters<'_>) -> Answer {
        // SAFETY: `Entered` and `OnDevice`: the id lives, inside its gate, and has the device whose
        // limits the function reads. `RawParameters` borrows the private data.
        unsafe { self.id.lib.rdma_accept(self.id.id.as_ptr(), parameters.as_mut_ptr()) }
    }

    pub(in crate::cm) fn disconnect(&self) -> Answer {
        // SAFETY: `Entered` and `OnDevice`: the id lives, inside its gate, and has the device whose
        // transport the function reads.
        unsafe { self.id.lib.rdma_disconnect(self.id.id.as_ptr()) }
    }

    pub(in crate::cm) fn join_multicast(&self, group: &mut RawAddress) -> Answer {
        // SAFETY: `Entered` and `OnDevice`: the id lives, inside its gate, and has a device. A
        // `RawAddress` is as long as its family requires. The context pointer of the group's events
        // is null and never dereferenced.
        unsafe { self.id.lib.rdma_join_multicast(self.id.id.as_ptr(), group.as_mut_ptr(), null_mut()) }
    }

    /// Joins as a sender only.
    pub(in crate::cm) fn join_multicast_ex(&self, group: &mut RawAddress) -> Answer {
        let mut attributes = sys::rdma_cm_join_mc_attr_ex {
            comp_mask: sys::RDMA_CM_JOIN_MC_ATTR_ADDRESS | sys::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
            join_flags: sys::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
            addr: group.as_mut_ptr(),
        };
        // SAFETY: `Entered` and `OnDevice`: the id lives, inside its gate, and has a device. The
        // attributes point to `group`, which is borrowed and as long as its family requires.
        unsafe { self.id.lib.rdma_join_multicast_ex(self.id.id.as_ptr(), &raw mut attributes, null_mut()) }
    }
}
