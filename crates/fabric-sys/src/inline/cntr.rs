//! Counters: `fi_cntr(3)`.

use std::ffi::{c_int, c_void};

use crate::bindings::{fi_cntr_attr, fi_ops_cntr, fid_cntr, fid_domain};

inline! {
    /// Opens a counter: `fi_cntr(3)`.
    fn fi_cntr_open(
        domain: *mut fid_domain,
        attr: *mut fi_cntr_attr,
        cntr: *mut *mut fid_cntr,
        context: *mut c_void,
    ) -> c_int => domain.ops.cntr_open;

    /// Returns how many operations have completed: `fi_cntr(3)`.
    fn fi_cntr_read(cntr: *mut fid_cntr) -> u64 => cntr.ops.read;

    /// Returns how many operations have failed: `fi_cntr(3)`.
    fn fi_cntr_readerr(cntr: *mut fid_cntr) -> u64 => cntr.ops.readerr;

    /// Adds to the completed operations: `fi_cntr(3)`.
    fn fi_cntr_add(cntr: *mut fid_cntr, value: u64) -> c_int => cntr.ops.add;

    /// Adds to the failed operations: `fi_cntr(3)`.
    fn fi_cntr_adderr(cntr: *mut fid_cntr, value: u64) -> c_int => checked cntr.ops.adderr in fi_ops_cntr;

    /// Sets the number of completed operations: `fi_cntr(3)`.
    fn fi_cntr_set(cntr: *mut fid_cntr, value: u64) -> c_int => cntr.ops.set;

    /// Sets the number of failed operations: `fi_cntr(3)`.
    fn fi_cntr_seterr(cntr: *mut fid_cntr, value: u64) -> c_int => checked cntr.ops.seterr in fi_ops_cntr;

    /// Waits until so many operations have completed, or one has failed, or `timeout` ms are over:
    /// `fi_cntr(3)`.
    fn fi_cntr_wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int => cntr.ops.wait;
}
