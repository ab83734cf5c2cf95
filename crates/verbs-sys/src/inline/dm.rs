//! On-chip memory: `ibv_alloc_dm(3)`.

use std::ffi::{c_int, c_uint, c_void};

use super::through_context;
use crate::bindings::*;

through_context! {
    /// `ibv_alloc_dm(3)`: allocates memory on the device.
    fn ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm: context => alloc_dm;

    /// `ibv_free_dm(3)`
    fn ibv_free_dm(dm: *mut ibv_dm) -> c_int: (*dm).context => free_dm;

    /// `ibv_reg_dm_mr(3)`: registers memory on the device. Offsets are relative to its beginning.
    fn ibv_reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: c_uint) -> *mut ibv_mr:
        (*pd).context => reg_dm_mr;
}

/// `ibv_memcpy_to_dm(3)`: copies from the host into the device.
///
/// # Safety
///
/// The contract is that of the C function: `dm` lives, `host_addr` is valid for reading `length`
/// bytes.
#[inline]
pub unsafe fn ibv_memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the caller guarantees that the device memory lives.
    match unsafe { (*dm).memcpy_to_dm } {
        // SAFETY: the entry is the provider's own. The caller guarantees the rest.
        Some(copy) => unsafe { copy(dm, dm_offset, host_addr, length) },
        None => libc::EOPNOTSUPP,
    }
}

/// `ibv_memcpy_from_dm(3)`: copies from the device to the host.
///
/// # Safety
///
/// The contract is that of the C function: `dm` lives, `host_addr` is valid for writing `length`
/// bytes.
#[inline]
pub unsafe fn ibv_memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the caller guarantees that the device memory lives.
    match unsafe { (*dm).memcpy_from_dm } {
        // SAFETY: the entry is the provider's own. The caller guarantees the rest.
        Some(copy) => unsafe { copy(host_addr, dm, dm_offset, length) },
        None => libc::EOPNOTSUPP,
    }
}
