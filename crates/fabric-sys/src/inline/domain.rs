//! Domains: `fi_domain(3)`.

use std::ffi::{c_int, c_void};

use crate::bindings::{fi_info, fi_ops_fabric, fid, fid_domain, fid_fabric};
use crate::constants::FI_ENOSYS;

inline! {
    /// Opens a domain of a fabric: `fi_domain(3)`.
    fn fi_domain(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        domain: *mut *mut fid_domain,
        context: *mut c_void,
    ) -> c_int => fabric.ops.domain;

    /// Binds an event queue, or a registration cache, to a domain: `fi_domain(3)`.
    fn fi_domain_bind(domain: *mut fid_domain, fid: *mut fid, flags: u64) -> c_int => &domain.fid.bind;
}

/// As [`fi_domain`], with flags: `fi_domain(3)`.
///
/// # Safety
///
/// As [`fi_domain`].
#[inline]
pub unsafe fn fi_domain2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags == 0 {
        // SAFETY: the contract is that of the caller.
        return unsafe { fi_domain(fabric, info, domain, context) };
    }
    // SAFETY: the caller guarantees that the fabric is live, and its table states its own length.
    match unsafe { checked_entry!(fabric, ops, fi_ops_fabric, domain2) } {
        // SAFETY: the contract is that of the caller.
        Some(function) => unsafe { function(fabric, info, domain, flags, context) },
        None => -FI_ENOSYS,
    }
}
