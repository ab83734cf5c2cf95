//! Completion queues: `fi_cq(3)`.

use std::ffi::{c_char, c_int, c_void};

use crate::bindings::{fi_addr_t, fi_cq_attr, fi_cq_err_entry, fid_cq, fid_domain};

inline! {
    /// Opens a completion queue: `fi_cq(3)`.
    fn fi_cq_open(
        domain: *mut fid_domain,
        attr: *mut fi_cq_attr,
        cq: *mut *mut fid_cq,
        context: *mut c_void,
    ) -> c_int => domain.ops.cq_open;

    /// Takes completions, in the format of the queue, without waiting: `fi_cq(3)`.
    fn fi_cq_read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize => cq.ops.read;

    /// As [`fi_cq_read`], with the source address of each: `fi_cq(3)`.
    fn fi_cq_readfrom(cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t) -> isize
        => cq.ops.readfrom;

    /// Takes the error at the head of the queue: `fi_cq(3)`. See
    /// [`fi_cq_err_entry_2`](crate::fi_cq_err_entry_2) for the structure to pass.
    fn fi_cq_readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize => cq.ops.readerr;

    /// As [`fi_cq_read`], waiting up to `timeout` ms: `fi_cq(3)`.
    fn fi_cq_sread(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        cond: *const c_void,
        timeout: c_int,
    ) -> isize => cq.ops.sread;

    /// As [`fi_cq_readfrom`], waiting up to `timeout` ms: `fi_cq(3)`.
    fn fi_cq_sreadfrom(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        src_addr: *mut fi_addr_t,
        cond: *const c_void,
        timeout: c_int,
    ) -> isize => cq.ops.sreadfrom;

    /// Wakes a thread that waits in [`fi_cq_sread`]: `fi_cq(3)`.
    fn fi_cq_signal(cq: *mut fid_cq) -> c_int => cq.ops.signal;

    /// Returns the text of a provider's error: `fi_cq(3)`.
    fn fi_cq_strerror(
        cq: *mut fid_cq,
        prov_errno: c_int,
        err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char => cq.ops.strerror;
}
