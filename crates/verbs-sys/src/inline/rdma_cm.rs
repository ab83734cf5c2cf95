//! The inline functions of the connection manager. Those of `rdma_verbs.h` are omitted: each wraps
//! an `ibv_*` call for one queue pair, and some wait without a deadline.

use libc::sockaddr;

use crate::bindings::*;

/// `rdma_get_local_addr(3)`: returns a pointer to the local address inside the id.
///
/// # Safety
///
/// `id` points to a live id.
#[inline]
pub unsafe fn rdma_get_local_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller guarantees that the id lives. No reference is made.
    unsafe { (&raw mut (*id).route.addr.__bindgen_anon_1).cast() }
}

/// `rdma_get_peer_addr(3)`: returns a pointer to the peer's address inside the id.
///
/// # Safety
///
/// `id` points to a live id.
#[inline]
pub unsafe fn rdma_get_peer_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller guarantees that the id lives. No reference is made.
    unsafe { (&raw mut (*id).route.addr.__bindgen_anon_2).cast() }
}
