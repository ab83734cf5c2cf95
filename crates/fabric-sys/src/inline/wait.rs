//! Waiting on several queues: `fi_poll(3)`.

use std::ffi::{c_int, c_void};

use crate::bindings::{fi_poll_attr, fi_wait_attr, fid, fid_domain, fid_fabric, fid_poll, fid_wait};

inline! {
    /// Returns whether it is safe to sleep on the wait objects of these queues: `fi_poll(3)`.
    fn fi_trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int => fabric.ops.trywait;

    /// Opens a wait set: `fi_poll(3)`. Deprecated in 2.x.
    fn fi_wait_open(fabric: *mut fid_fabric, attr: *mut fi_wait_attr, waitset: *mut *mut fid_wait) -> c_int
        => fabric.ops.wait_open;

    /// Waits on a wait set: `fi_poll(3)`. Deprecated in 2.x.
    fn fi_wait(waitset: *mut fid_wait, timeout: c_int) -> c_int => waitset.ops.wait;

    /// Opens a poll set: `fi_poll(3)`. Deprecated in 2.x.
    fn fi_poll_open(domain: *mut fid_domain, attr: *mut fi_poll_attr, pollset: *mut *mut fid_poll) -> c_int
        => domain.ops.poll_open;

    /// Makes progress on every queue and counter of a poll set: `fi_poll(3)`. Deprecated in 2.x.
    fn fi_poll(pollset: *mut fid_poll, context: *mut *mut c_void, count: c_int) -> c_int => pollset.ops.poll;

    /// Adds a queue or counter to a poll set: `fi_poll(3)`. Deprecated in 2.x.
    fn fi_poll_add(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int => pollset.ops.poll_add;

    /// Removes a queue or counter from a poll set: `fi_poll(3)`. Deprecated in 2.x.
    fn fi_poll_del(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int => pollset.ops.poll_del;
}
