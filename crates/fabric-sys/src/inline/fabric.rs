//! Functions of every object, and their tables: `fi_fabric(3)`.

use std::ffi::{c_char, c_int, c_void};

use crate::bindings::{FI_ALIAS, FI_GET_VAL, FI_SET_VAL, FI_TC_DSCP, fi_fid_var, fi_ops, fid};

inline! {
    /// Closes an object of any class: `fi_close(3)`. It fails with `-FI_EBUSY` while others still
    /// use the object.
    fn fi_close(fid: *mut fid) -> c_int => fid.ops.close;

    /// Sends a command to an object: `fi_control(3)`.
    fn fi_control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int => fid.ops.control;

    /// Opens a provider's own table of functions: `fi_open_ops(3)`.
    fn fi_open_ops(
        fid: *mut fid,
        name: *const c_char,
        flags: u64,
        ops: *mut *mut c_void,
        context: *mut c_void,
    ) -> c_int => fid.ops.ops_open;

    /// Installs functions of the caller in an object: `fi_set_ops(3)`.
    fn fi_set_ops(
        fid: *mut fid,
        name: *const c_char,
        flags: u64,
        ops: *mut c_void,
        context: *mut c_void,
    ) -> c_int => checked fid.ops.ops_set in fi_ops;
}

/// Creates an alias of an object, with flags of its own: `fi_alias(3)`.
///
/// # Safety
///
/// `object` is live; `alias_fid` is valid for writing a pointer.
#[inline]
pub unsafe fn fi_alias(object: *mut fid, alias_fid: *mut *mut fid, flags: u64) -> c_int {
    let mut alias = crate::bindings::fi_alias { fid: alias_fid, flags };
    // SAFETY: FI_ALIAS takes this structure, and the caller guarantees that the object is live.
    unsafe { fi_control(object, FI_ALIAS as c_int, (&raw mut alias).cast()) }
}

/// Reads a value of an object by its name: `fi_control(3)`.
///
/// # Safety
///
/// `object` is live; `val` is valid for writing a value of the named type.
#[inline]
pub unsafe fn fi_get_val(object: *mut fid, name: c_int, val: *mut c_void) -> c_int {
    let mut var = fi_fid_var { name, val };
    // SAFETY: FI_GET_VAL takes this structure, and the caller guarantees object and value.
    unsafe { fi_control(object, FI_GET_VAL as c_int, (&raw mut var).cast()) }
}

/// Sets a value of an object by its name: `fi_control(3)`.
///
/// # Safety
///
/// `object` is live; `val` holds a value of the named type.
#[inline]
pub unsafe fn fi_set_val(object: *mut fid, name: c_int, val: *mut c_void) -> c_int {
    let mut var = fi_fid_var { name, val };
    // SAFETY: FI_SET_VAL takes this structure, and the caller guarantees object and value.
    unsafe { fi_control(object, FI_SET_VAL as c_int, (&raw mut var).cast()) }
}

/// Returns the traffic class of a DSCP value: `fi_endpoint(3)`.
#[inline]
pub const fn fi_tc_dscp_set(dscp: u8) -> u32 {
    dscp as u32 | FI_TC_DSCP
}

/// Returns the DSCP value of a traffic class, or 0: `fi_endpoint(3)`.
#[inline]
pub const fn fi_tc_dscp_get(tclass: u32) -> u8 {
    if tclass & FI_TC_DSCP != 0 { tclass as u8 } else { 0 }
}
