//! Memory windows.

use std::ffi::c_int;

use super::Unsupported;
use crate::bindings::*;

/// `ibv_alloc_mw(3)`: allocates an unbound window.
///
/// # Safety
///
/// The contract is that of the C function: `pd` lives.
#[inline]
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, mw_type: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the protection domain lives and leads to an open context.
    match unsafe { (*(*pd).context).ops.alloc_mw } {
        // SAFETY: the entry is the provider's own. The caller guarantees the rest.
        Some(alloc) => unsafe { alloc(pd, mw_type) },
        None => Unsupported::unsupported(),
    }
}

/// `ibv_dealloc_mw(3)`
///
/// # Safety
///
/// The contract is that of the C function: `mw` lives and is not used again.
#[inline]
pub unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the window lives and leads to an open context.
    match unsafe { (*(*mw).context).ops.dealloc_mw } {
        // SAFETY: the entry is the provider's own. The caller guarantees the rest.
        Some(dealloc) => unsafe { dealloc(mw) },
        None => Unsupported::unsupported(),
    }
}

/// `ibv_bind_mw(3)`: binds a window of type 1 to a part of a region. A window of type 2 is bound by
/// a work request.
///
/// # Safety
///
/// The contract is that of the C function: all objects live.
#[inline]
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller guarantees that the objects live.
    let (info, window) = unsafe { (&(*mw_bind).bind_info, &*mw) };
    if window.type_ != IBV_MW_TYPE_1 {
        return libc::EINVAL;
    }
    if info.mr.is_null() {
        if info.addr != 0 || info.length != 0 {
            return libc::EINVAL;
        }
    // SAFETY: the region is not null, so it lives.
    } else if window.pd != unsafe { (*info.mr).pd } {
        return libc::EPERM;
    }
    // SAFETY: the window leads to an open context.
    match unsafe { (*window.context).ops.bind_mw } {
        // SAFETY: the entry is the provider's own. The caller guarantees the rest.
        Some(bind) => unsafe { bind(qp, mw, mw_bind) },
        None => Unsupported::unsupported(),
    }
}

/// `ibv_inc_rkey(3)`: returns the key with its last 8 bits, which are the window's own,
/// incremented.
#[inline]
pub const fn ibv_inc_rkey(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}
