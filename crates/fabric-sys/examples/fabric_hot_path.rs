//! Two functions around the most frequent inline functions, for `tests/assembly.rs` to check their
//! machine code.

use std::ffi::c_void;
use std::hint::black_box;

use farreach_fabric_sys::{fi_cq_read, fi_msg_rma, fi_writemsg, fid_cq, fid_ep};

/// # Safety
///
/// As `fi_writemsg`.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn hot_fi_writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: the contract is that of the caller.
    unsafe { fi_writemsg(ep, msg, flags) }
}

/// # Safety
///
/// As `fi_cq_read`.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn hot_fi_cq_read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: the contract is that of the caller.
    unsafe { fi_cq_read(cq, buf, count) }
}

fn main() {
    // Nothing runs here; this only keeps the functions from being removed.
    black_box(hot_fi_writemsg as *const ());
    black_box(hot_fi_cq_read as *const ());
}
