//! Endpoints: `fi_endpoint(3)`.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::bindings::{
    FI_ENABLE, fi_info, fi_ops_domain, fi_rx_attr, fi_tx_attr, fid, fid_domain, fid_ep, fid_fabric, fid_pep,
    fid_stx, fid_t,
};
use crate::constants::FI_ENOSYS;

inline! {
    /// Opens a listening endpoint: `fi_endpoint(3)`.
    fn fi_passive_ep(
        fabric: *mut fid_fabric,
        info: *mut fi_info,
        pep: *mut *mut fid_pep,
        context: *mut c_void,
    ) -> c_int => fabric.ops.passive_ep;

    /// Opens an endpoint: `fi_endpoint(3)`.
    fn fi_endpoint(
        domain: *mut fid_domain,
        info: *mut fi_info,
        ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int => domain.ops.endpoint;

    /// Opens an endpoint with several contexts: `fi_endpoint(3)`.
    fn fi_scalable_ep(
        domain: *mut fid_domain,
        info: *mut fi_info,
        sep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int => domain.ops.scalable_ep;

    /// Binds a queue, counter, address vector or shared context to an endpoint: `fi_endpoint(3)`.
    fn fi_ep_bind(ep: *mut fid_ep, bfid: *mut fid, flags: u64) -> c_int => &ep.fid.bind;

    /// Binds an event queue to a passive endpoint: `fi_endpoint(3)`.
    fn fi_pep_bind(pep: *mut fid_pep, bfid: *mut fid, flags: u64) -> c_int => &pep.fid.bind;

    /// Binds an address vector to a scalable endpoint: `fi_endpoint(3)`.
    fn fi_scalable_ep_bind(sep: *mut fid_ep, bfid: *mut fid, flags: u64) -> c_int => &sep.fid.bind;

    /// Asks to cancel one operation, named by its context: `fi_endpoint(3)`. Its completion still
    /// comes.
    fn fi_cancel(fid: fid_t, context: *mut c_void) -> isize => fid as fid_ep, ops.cancel;

    /// Sets an option of an endpoint: `fi_endpoint(3)`.
    fn fi_setopt(fid: fid_t, level: c_int, optname: c_int, optval: *const c_void, optlen: usize) -> c_int
        => fid as fid_ep, ops.setopt;

    /// Reads an option of an endpoint: `fi_endpoint(3)`.
    fn fi_getopt(fid: fid_t, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut usize) -> c_int
        => fid as fid_ep, ops.getopt;

    /// Opens a transmit context of a scalable endpoint: `fi_endpoint(3)`.
    fn fi_tx_context(
        ep: *mut fid_ep,
        index: c_int,
        attr: *mut fi_tx_attr,
        tx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int => ep.ops.tx_ctx;

    /// Opens a receive context of a scalable endpoint: `fi_endpoint(3)`.
    fn fi_rx_context(
        ep: *mut fid_ep,
        index: c_int,
        attr: *mut fi_rx_attr,
        rx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int => ep.ops.rx_ctx;

    /// Returns how many receives can still be posted: `fi_endpoint(3)`. Deprecated by libfabric.
    fn fi_rx_size_left(ep: *mut fid_ep) -> isize => ep.ops.rx_size_left;

    /// Returns how many operations can still be posted: `fi_endpoint(3)`. Deprecated by libfabric.
    fn fi_tx_size_left(ep: *mut fid_ep) -> isize => ep.ops.tx_size_left;

    /// Opens a shared transmit context: `fi_endpoint(3)`.
    fn fi_stx_context(
        domain: *mut fid_domain,
        attr: *mut fi_tx_attr,
        stx: *mut *mut fid_stx,
        context: *mut c_void,
    ) -> c_int => domain.ops.stx_ctx;

    /// Opens a shared receive context: `fi_endpoint(3)`.
    fn fi_srx_context(
        domain: *mut fid_domain,
        attr: *mut fi_rx_attr,
        rx_ep: *mut *mut fid_ep,
        context: *mut c_void,
    ) -> c_int => domain.ops.srx_ctx;
}

/// As [`fi_endpoint`], with flags: `fi_endpoint(3)`.
///
/// # Safety
///
/// As [`fi_endpoint`].
#[inline]
pub unsafe fn fi_endpoint2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags == 0 {
        // SAFETY: the contract is that of the caller.
        return unsafe { fi_endpoint(domain, info, ep, context) };
    }
    // SAFETY: the caller guarantees that the domain is live, and its table states its own length.
    match unsafe { checked_entry!(domain, ops, fi_ops_domain, endpoint2) } {
        // SAFETY: the contract is that of the caller.
        Some(function) => unsafe { function(domain, info, ep, flags, context) },
        None => -FI_ENOSYS,
    }
}

/// Makes an endpoint ready for transfers: `fi_endpoint(3)`.
///
/// # Safety
///
/// `ep` is live, and everything that it needs is bound to it.
#[inline]
pub unsafe fn fi_enable(ep: *mut fid_ep) -> c_int {
    // SAFETY: the caller guarantees that the endpoint is live; FI_ENABLE takes no argument.
    unsafe { super::fi_control(&raw mut (*ep).fid, FI_ENABLE as c_int, ptr::null_mut()) }
}

/// Creates an alias of an endpoint, with flags of its own: `fi_endpoint(3)`.
///
/// # Safety
///
/// `ep` is live; `alias_ep` is valid for writing a pointer.
#[inline]
pub unsafe fn fi_ep_alias(ep: *mut fid_ep, alias_ep: *mut *mut fid_ep, flags: u64) -> c_int {
    let mut alias = ptr::null_mut();
    // SAFETY: the caller guarantees that the endpoint is live.
    let status = unsafe { super::fi_alias(&raw mut (*ep).fid, &raw mut alias, flags) };
    if status == 0 {
        // SAFETY: the caller guarantees that the place is writable; the alias is an endpoint, which
        // begins with its fid.
        unsafe { *alias_ep = alias.cast() };
    }
    status
}
