//! Memory regions.

use std::ffi::{c_int, c_uint, c_void};

use farreach_dylib::SymbolMissing;

use super::through_context;
use crate::bindings::*;
use crate::{IBV_ACCESS_OPTIONAL_RANGE, Ibverbs, ibv_advise_mr_advice};

/// `ibv_reg_mr(3)`: registers memory.
///
/// Flags in [`IBV_ACCESS_OPTIONAL_RANGE`] are passed to `ibv_reg_mr_iova2`, which ignores those
/// that the kernel does not know. Without such flags, the oldest function is sufficient.
///
/// # Safety
///
/// The contract is that of the C function: `pd` lives and the memory stays mapped while the region
/// does.
pub unsafe fn ibv_reg_mr(
    lib: &Ibverbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
) -> Result<*mut ibv_mr, SymbolMissing> {
    if access & IBV_ACCESS_OPTIONAL_RANGE == 0 {
        // SAFETY: the caller upholds the contract of the function.
        unsafe { lib.ibv_reg_mr(pd, addr, length, access as c_int) }
    } else {
        // SAFETY: the caller upholds the contract of the function. The region's own address is the
        // one that `ibv_reg_mr` uses.
        unsafe { lib.ibv_reg_mr_iova2(pd, addr, length, addr.expose_provenance() as u64, access) }
    }
}

/// `ibv_reg_mr_iova(3)`: registers memory under remote addresses that begin at `iova`.
///
/// Flags in [`IBV_ACCESS_OPTIONAL_RANGE`] are treated as in [`ibv_reg_mr`].
///
/// # Safety
///
/// The contract is that of the C function: `pd` lives and the memory stays mapped while the region
/// does.
pub unsafe fn ibv_reg_mr_iova(
    lib: &Ibverbs,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> Result<*mut ibv_mr, SymbolMissing> {
    if access & IBV_ACCESS_OPTIONAL_RANGE == 0 {
        // SAFETY: the caller upholds the contract of the function.
        unsafe { lib.ibv_reg_mr_iova(pd, addr, length, iova, access as c_int) }
    } else {
        // SAFETY: the caller upholds the contract of the function.
        unsafe { lib.ibv_reg_mr_iova2(pd, addr, length, iova, access) }
    }
}

through_context! {
    /// `ibv_advise_mr(3)`: announces the ranges of on-demand regions that will be used.
    fn ibv_advise_mr(
        pd: *mut ibv_pd,
        advice: ibv_advise_mr_advice,
        flags: u32,
        sg_list: *mut ibv_sge,
        num_sge: u32,
    ) -> c_int: (*pd).context => advise_mr;

    /// `ibv_alloc_null_mr(3)`: allocates a region that discards writes and reads as zeroes.
    fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr: (*pd).context => alloc_null_mr;
}
