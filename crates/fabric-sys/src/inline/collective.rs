//! Collective operations: `fi_collective(3)`.

use std::ffi::{c_int, c_void};

use crate::bindings::{
    fi_addr_t, fi_av_set_attr, fi_collective_addr, fi_collective_attr, fi_collective_op, fi_datatype, fi_op,
    fi_ops_av, fi_ops_collective, fi_ops_domain, fid_av, fid_av_set, fid_domain, fid_ep, fid_mc,
};
use crate::constants::{FI_COLLECTIVE, FI_ENOSYS};

inline! {
    /// Creates a set of addresses: `fi_av_set(3)`.
    fn fi_av_set(
        av: *mut fid_av,
        attr: *mut fi_av_set_attr,
        set: *mut *mut fid_av_set,
        context: *mut c_void,
    ) -> c_int => checked av.ops.av_set in fi_ops_av;

    /// Adds the addresses of another set: `fi_av_set(3)`.
    fn fi_av_set_union(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int => dst.ops.set_union;

    /// Keeps the addresses that are also in another set: `fi_av_set(3)`.
    fn fi_av_set_intersect(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int => dst.ops.intersect;

    /// Removes the addresses that are in another set: `fi_av_set(3)`.
    fn fi_av_set_diff(dst: *mut fid_av_set, src: *const fid_av_set) -> c_int => dst.ops.diff;

    /// Adds one address: `fi_av_set(3)`.
    fn fi_av_set_insert(set: *mut fid_av_set, addr: fi_addr_t) -> c_int => set.ops.insert;

    /// Removes one address: `fi_av_set(3)`.
    fn fi_av_set_remove(set: *mut fid_av_set, addr: fi_addr_t) -> c_int => set.ops.remove;

    /// Returns the address of the whole set: `fi_av_set(3)`.
    fn fi_av_set_addr(set: *mut fid_av_set, coll_addr: *mut fi_addr_t) -> c_int => set.ops.addr;

    /// Completes when all members have called it: `fi_collective(3)`.
    fn fi_barrier(ep: *mut fid_ep, coll_addr: fi_addr_t, context: *mut c_void) -> isize
        => ep.collective.barrier;

    /// Sends one member's data to all: `fi_collective(3)`.
    fn fi_broadcast(
        ep: *mut fid_ep,
        buf: *mut c_void,
        count: usize,
        desc: *mut c_void,
        coll_addr: fi_addr_t,
        root_addr: fi_addr_t,
        datatype: fi_datatype,
        flags: u64,
        context: *mut c_void,
    ) -> isize => ep.collective.broadcast;

    /// Sends a part of each member's data to each: `fi_collective(3)`.
    fn fi_alltoall(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        coll_addr: fi_addr_t,
        datatype: fi_datatype,
        flags: u64,
        context: *mut c_void,
    ) -> isize => ep.collective.alltoall;

    /// Reduces all members' data, with the result at all: `fi_collective(3)`.
    fn fi_allreduce(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        coll_addr: fi_addr_t,
        datatype: fi_datatype,
        op: fi_op,
        flags: u64,
        context: *mut c_void,
    ) -> isize => ep.collective.allreduce;

    /// Sends all members' data to all: `fi_collective(3)`.
    fn fi_allgather(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        coll_addr: fi_addr_t,
        datatype: fi_datatype,
        flags: u64,
        context: *mut c_void,
    ) -> isize => ep.collective.allgather;

    /// Reduces all members' data, with a part of the result at each: `fi_collective(3)`.
    fn fi_reduce_scatter(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        coll_addr: fi_addr_t,
        datatype: fi_datatype,
        op: fi_op,
        flags: u64,
        context: *mut c_void,
    ) -> isize => ep.collective.reduce_scatter;

    /// Reduces all members' data, with the result at one: `fi_collective(3)`.
    fn fi_reduce(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        coll_addr: fi_addr_t,
        root_addr: fi_addr_t,
        datatype: fi_datatype,
        op: fi_op,
        flags: u64,
        context: *mut c_void,
    ) -> isize => ep.collective.reduce;

    /// Sends a part of one member's data to each: `fi_collective(3)`.
    fn fi_scatter(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        coll_addr: fi_addr_t,
        root_addr: fi_addr_t,
        datatype: fi_datatype,
        flags: u64,
        context: *mut c_void,
    ) -> isize => ep.collective.scatter;

    /// Sends all members' data to one: `fi_collective(3)`.
    fn fi_gather(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        coll_addr: fi_addr_t,
        root_addr: fi_addr_t,
        datatype: fi_datatype,
        flags: u64,
        context: *mut c_void,
    ) -> isize => ep.collective.gather;

    /// Returns whether the domain has this operation, with its properties: `fi_collective(3)`.
    fn fi_query_collective(
        domain: *mut fid_domain,
        coll: fi_collective_op,
        attr: *mut fi_collective_attr,
        flags: u64,
    ) -> c_int => checked domain.ops.query_collective in fi_ops_domain;
}

/// As [`fi_barrier`], with flags: `fi_collective(3)`.
///
/// # Safety
///
/// As [`fi_barrier`].
#[inline]
pub unsafe fn fi_barrier2(ep: *mut fid_ep, coll_addr: fi_addr_t, flags: u64, context: *mut c_void) -> isize {
    if flags == 0 {
        // SAFETY: the contract is that of the caller.
        return unsafe { fi_barrier(ep, coll_addr, context) };
    }
    // SAFETY: the caller guarantees that the endpoint is live, and its table states its own length.
    match unsafe { checked_entry!(ep, collective, fi_ops_collective, barrier2) } {
        // SAFETY: the contract is that of the caller.
        Some(function) => unsafe { function(ep, coll_addr, flags, context) },
        None => -FI_ENOSYS as isize,
    }
}

/// Joins a group that is a set of addresses: `fi_collective(3)`.
///
/// # Safety
///
/// As [`fi_join`](super::fi_join); `set` is live.
#[inline]
pub unsafe fn fi_join_collective(
    ep: *mut fid_ep,
    coll_addr: fi_addr_t,
    set: *const fid_av_set,
    flags: u64,
    mc: *mut *mut fid_mc,
    context: *mut c_void,
) -> c_int {
    let addr = fi_collective_addr { set, coll_addr };
    // SAFETY: with FI_COLLECTIVE the address is this structure; the caller guarantees the rest.
    unsafe { super::fi_join(ep, (&raw const addr).cast(), flags | FI_COLLECTIVE, mc, context) }
}
