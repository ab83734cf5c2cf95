//! The connection manager's inline functions. Those of `rdma_verbs.h` are left out: each renames an `ibv_*` call for one
//! queue pair at a time, and some wait without a deadline.

use libc::sockaddr;

use crate::bindings::*;

/// `rdma_get_local_addr(3)`: the address that the id is bound to, inside of the id.
///
/// # Safety
///
/// `id` points to a live id.
#[inline]
pub unsafe fn rdma_get_local_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the id lives; no reference is made.
    unsafe { (&raw mut (*id).route.addr.__bindgen_anon_1).cast() }
}

/// `rdma_get_peer_addr(3)`: the address of the other side, inside of the id.
///
/// # Safety
///
/// `id` points to a live id.
#[inline]
pub unsafe fn rdma_get_peer_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the id lives; no reference is made.
    unsafe { (&raw mut (*id).route.addr.__bindgen_anon_2).cast() }
}
