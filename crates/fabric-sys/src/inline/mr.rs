//! Memory regions: `fi_mr(3)`.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::iovec;

use crate::bindings::{
    FI_ENABLE, FI_GET_RAW_MR, FI_MAP_RAW_MR, FI_REFRESH, FI_UNMAP_KEY, fi_mr_attr, fid, fid_domain, fid_mr,
};
use crate::since_2::fi_mr_attr_2;

inline! {
    /// Registers a buffer: `fi_mr(3)`.
    fn fi_mr_reg(
        domain: *mut fid_domain,
        buf: *const c_void,
        len: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        flags: u64,
        mr: *mut *mut fid_mr,
        context: *mut c_void,
    ) -> c_int => &domain.fid, mr.reg;

    /// Registers several buffers as one region: `fi_mr(3)`.
    fn fi_mr_regv(
        domain: *mut fid_domain,
        iov: *const iovec,
        count: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        flags: u64,
        mr: *mut *mut fid_mr,
        context: *mut c_void,
    ) -> c_int => &domain.fid, mr.regv;

    /// Registers the memory that a structure describes: `fi_mr(3)`. See
    /// [`fi_mr_attr_2`](crate::fi_mr_attr_2) for the structure to pass.
    fn fi_mr_regattr(
        domain: *mut fid_domain,
        attr: *const fi_mr_attr,
        flags: u64,
        mr: *mut *mut fid_mr,
    ) -> c_int => &domain.fid, mr.regattr;

    /// Binds a region to an endpoint or counter: `fi_mr(3)`.
    fn fi_mr_bind(mr: *mut fid_mr, bfid: *mut fid, flags: u64) -> c_int => &mr.fid.bind;
}

/// Returns the descriptor with which local buffers of this region are posted: `fi_mr(3)`.
///
/// # Safety
///
/// `mr` is live.
#[inline]
pub unsafe fn fi_mr_desc(mr: *mut fid_mr) -> *mut c_void {
    // SAFETY: the caller guarantees that the region is live.
    unsafe { (*mr).mem_desc }
}

/// Returns the key with which a peer reaches this region, or `FI_KEY_NOTAVAIL`: `fi_mr(3)`.
///
/// # Safety
///
/// `mr` is live.
#[inline]
pub unsafe fn fi_mr_key(mr: *mut fid_mr) -> u64 {
    // SAFETY: the caller guarantees that the region is live.
    unsafe { (*mr).key }
}

/// Reads the key of a region if it is longer than 64 bits: `fi_mr(3)`.
///
/// # Safety
///
/// `mr` is live; `raw_key` has room for `*key_size` bytes.
#[inline]
pub unsafe fn fi_mr_raw_attr(
    mr: *mut fid_mr,
    base_addr: *mut u64,
    raw_key: *mut u8,
    key_size: *mut usize,
    flags: u64,
) -> c_int {
    let mut attr = crate::bindings::fi_mr_raw_attr { flags, base_addr, raw_key, key_size };
    // SAFETY: FI_GET_RAW_MR takes this structure; the caller guarantees the rest.
    unsafe { super::fi_control(&raw mut (*mr).fid, FI_GET_RAW_MR as c_int, (&raw mut attr).cast()) }
}

/// Turns a peer's long key into one of 64 bits: `fi_mr(3)`.
///
/// # Safety
///
/// `domain` is live; `raw_key` has `key_size` bytes.
#[inline]
pub unsafe fn fi_mr_map_raw(
    domain: *mut fid_domain,
    base_addr: u64,
    raw_key: *mut u8,
    key_size: usize,
    key: *mut u64,
    flags: u64,
) -> c_int {
    let mut map = crate::bindings::fi_mr_map_raw { flags, base_addr, raw_key, key_size, key };
    // SAFETY: FI_MAP_RAW_MR takes this structure; the caller guarantees the rest.
    unsafe { super::fi_control(&raw mut (*domain).fid, FI_MAP_RAW_MR as c_int, (&raw mut map).cast()) }
}

/// Releases a key that [`fi_mr_map_raw`] returned: `fi_mr(3)`.
///
/// # Safety
///
/// `domain` is live and `key` came from it.
#[inline]
pub unsafe fn fi_mr_unmap_key(domain: *mut fid_domain, key: u64) -> c_int {
    let mut key = key;
    // SAFETY: FI_UNMAP_KEY takes a key; the caller guarantees that the domain is live.
    unsafe { super::fi_control(&raw mut (*domain).fid, FI_UNMAP_KEY as c_int, (&raw mut key).cast()) }
}

/// Tells the provider that pages behind a region have changed: `fi_mr(3)`.
///
/// # Safety
///
/// `mr` is live; `iov` has `count` elements.
#[inline]
pub unsafe fn fi_mr_refresh(mr: *mut fid_mr, iov: *const iovec, count: usize, flags: u64) -> c_int {
    // A provider of 2.x reads a longer structure: fi_mr_modify with the larger fi_mr_attr, and
    // zeros in the new fields.
    #[repr(C)]
    struct Modify {
        flags: u64,
        attr: fi_mr_attr_2,
    }
    // SAFETY: the structure consists of integers and pointers, for which zero is valid.
    let mut modify: Modify = unsafe { std::mem::zeroed() };
    modify.flags = flags;
    modify.attr.base.mr_iov = iov;
    modify.attr.base.iov_count = count;
    // SAFETY: FI_REFRESH takes this structure; the caller guarantees the rest.
    unsafe { super::fi_control(&raw mut (*mr).fid, FI_REFRESH as c_int, (&raw mut modify).cast()) }
}

/// Makes a region usable after binding: `fi_mr(3)`.
///
/// # Safety
///
/// `mr` is live.
#[inline]
pub unsafe fn fi_mr_enable(mr: *mut fid_mr) -> c_int {
    // SAFETY: the caller guarantees that the region is live; FI_ENABLE takes no argument.
    unsafe { super::fi_control(&raw mut (*mr).fid, FI_ENABLE as c_int, ptr::null_mut()) }
}
