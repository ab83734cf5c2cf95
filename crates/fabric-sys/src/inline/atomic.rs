//! Atomic operations: `fi_atomic(3)`.

use std::ffi::{c_int, c_void};

use crate::bindings::{
    fi_addr_t, fi_atomic_attr, fi_datatype, fi_ioc, fi_msg_atomic, fi_op, fi_ops_domain, fid_domain, fid_ep,
};

inline! {
    /// Posts an atomic operation on remote memory: `fi_atomic(3)`.
    fn fi_atomic(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize => ep.atomic.write;

    /// Posts an atomic operation from several buffers: `fi_atomic(3)`.
    fn fi_atomicv(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize => ep.atomic.writev;

    /// Posts an atomic operation that a structure describes: `fi_atomic(3)`.
    fn fi_atomicmsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize => ep.atomic.writemsg;

    /// Posts an atomic operation from a buffer that is free on return, without a completion:
    /// `fi_atomic(3)`.
    fn fi_inject_atomic(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
    ) -> isize => ep.atomic.inject;

    /// Posts an atomic operation that returns the old value: `fi_atomic(3)`.
    fn fi_fetch_atomic(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize => ep.atomic.readwrite;

    /// As [`fi_fetch_atomic`], with several buffers: `fi_atomic(3)`.
    fn fi_fetch_atomicv(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        desc: *mut *mut c_void,
        count: usize,
        resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize => ep.atomic.readwritev;

    /// As [`fi_fetch_atomic`], described by a structure: `fi_atomic(3)`.
    fn fi_fetch_atomicmsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_atomic,
        resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) -> isize => ep.atomic.readwritemsg;

    /// Posts an atomic compare-and-swap: `fi_atomic(3)`.
    fn fi_compare_atomic(
        ep: *mut fid_ep,
        buf: *const c_void,
        count: usize,
        desc: *mut c_void,
        compare: *const c_void,
        compare_desc: *mut c_void,
        result: *mut c_void,
        result_desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize => ep.atomic.compwrite;

    /// As [`fi_compare_atomic`], with several buffers: `fi_atomic(3)`.
    fn fi_compare_atomicv(
        ep: *mut fid_ep,
        iov: *const fi_ioc,
        desc: *mut *mut c_void,
        count: usize,
        comparev: *const fi_ioc,
        compare_desc: *mut *mut c_void,
        compare_count: usize,
        resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        datatype: fi_datatype,
        op: fi_op,
        context: *mut c_void,
    ) -> isize => ep.atomic.compwritev;

    /// As [`fi_compare_atomic`], described by a structure: `fi_atomic(3)`.
    fn fi_compare_atomicmsg(
        ep: *mut fid_ep,
        msg: *const fi_msg_atomic,
        comparev: *const fi_ioc,
        compare_desc: *mut *mut c_void,
        compare_count: usize,
        resultv: *mut fi_ioc,
        result_desc: *mut *mut c_void,
        result_count: usize,
        flags: u64,
    ) -> isize => ep.atomic.compwritemsg;

    /// Returns whether the endpoint has this operation, and for how many elements at once:
    /// `fi_atomic(3)`.
    fn fi_atomicvalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int
        => ep.atomic.writevalid;

    /// As [`fi_atomicvalid`], for operations that return the old value: `fi_atomic(3)`.
    fn fi_fetch_atomicvalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int
        => ep.atomic.readwritevalid;

    /// As [`fi_atomicvalid`], for operations that compare: `fi_atomic(3)`.
    fn fi_compare_atomicvalid(ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int
        => ep.atomic.compwritevalid;

    /// Returns whether the domain has this operation, with its properties: `fi_atomic(3)`.
    fn fi_query_atomic(
        domain: *mut fid_domain,
        datatype: fi_datatype,
        op: fi_op,
        attr: *mut fi_atomic_attr,
        flags: u64,
    ) -> c_int => checked domain.ops.query_atomic in fi_ops_domain;
}
