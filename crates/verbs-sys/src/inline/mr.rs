//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};

use farreach_dylib::SymbolMissing;

use super::through_context;
use crate::bindings::*;
use crate::{IBV_ACCESS_OPTIONAL_RANGE, Ibverbs, ibv_advise_mr_advice};

/// `ibv_reg_mr(3)`: registers memory.
///
/// Flags in [`IBV_ACCESS_OPTIONAL_RANGE`] go through `ibv_reg_mr_iova2`, which leaves them out where the kernel does not know
/// them. Without such flags the oldest function serves.
///
/// # Safety
///
/// The contract is that of the C function: `pd` lives and the memory stays mapped while the region does.
pub unsafe fn ibv_reg_mr(
    lib: &Ibverbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> Result<*mut ibv_mr, SymbolMissing> {
    if access & IBV_ACCESS_OPTIONAL_RANGE == 0 {
        // SAFETY: passed on to the caller.
        unsafe { lib.ibv_reg_mr(pd, addr, length, access as c_int) }
    } else {
        // SAFETY: passed on to the caller; an address of the region's own is what ibv_reg_mr uses.
        unsafe { lib.ibv_reg_mr_iova2(pd, addr, length, addr.expose_provenance() as u64, access) }
    }
}

/// `ibv_reg_mr_iova(3)`: registers memory under remote addresses that begin at `iova`.
///
/// Flags in [`IBV_ACCESS_OPTIONAL_RANGE`] are treated as by [`ibv_reg_mr`].
///
/// # Safety
///
/// The contract is that of the C function: `pd` lives and the memory stays mapped while the region does.
pub unsafe fn ibv_reg_mr_iova(
    lib: &Ibverbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr, SymbolMissing> {
    if access & IBV_ACCESS_OPTIONAL_RANGE == 0 {
        // SAFETY: passed on to the caller.
        unsafe { lib.ibv_reg_mr_iova(pd, addr, length, iova, access as c_int) }
    } else {
        // SAFETY: passed on to the caller.
        unsafe { lib.ibv_reg_mr_iova2(pd, addr, length, iova, access) }
    }
}

through_context! {
    /// `ibv_advise_mr(3)`: announces which ranges of on-demand regions will be used.
    fn ibv_advise_mr(
        pd: *mut ibv_pd,
        advice: ibv_advise_mr_advice,
        flags: u32,
        sg_list: *mut ibv_sge,
        num_sge: u32,
    ) -> c_int: (*pd).context => advise_mr;

    /// `ibv_alloc_null_mr(3)`: a region that swallows writes and reads as zeroes.
    fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr: (*pd).context => alloc_null_mr;
}
