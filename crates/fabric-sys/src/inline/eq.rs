//! Event queues: `fi_eq(3)`.

use std::ffi::{c_char, c_int, c_void};

use crate::bindings::{fi_eq_attr, fi_eq_err_entry, fid_eq, fid_fabric};

inline! {
    /// Opens an event queue: `fi_eq(3)`.
    fn fi_eq_open(
        fabric: *mut fid_fabric,
        attr: *mut fi_eq_attr,
        eq: *mut *mut fid_eq,
        context: *mut c_void,
    ) -> c_int => fabric.ops.eq_open;

    /// Takes one event without waiting: `fi_eq(3)`.
    fn fi_eq_read(eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> isize
        => eq.ops.read;

    /// Takes the error at the head of the queue: `fi_eq(3)`.
    fn fi_eq_readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize => eq.ops.readerr;

    /// Puts an event into the queue: `fi_eq(3)`.
    fn fi_eq_write(eq: *mut fid_eq, event: u32, buf: *const c_void, len: usize, flags: u64) -> isize
        => eq.ops.write;

    /// As [`fi_eq_read`], waiting up to `timeout` ms: `fi_eq(3)`.
    fn fi_eq_sread(
        eq: *mut fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        timeout: c_int,
        flags: u64,
    ) -> isize => eq.ops.sread;

    /// Returns the text of a provider's error: `fi_eq(3)`.
    fn fi_eq_strerror(
        eq: *mut fid_eq,
        prov_errno: c_int,
        err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char => eq.ops.strerror;
}
