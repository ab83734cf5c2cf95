//! One-sided reads and writes: `fi_rma(3)`.

use std::ffi::c_void;

use libc::iovec;

use crate::bindings::{fi_addr_t, fi_msg_rma, fid_ep};

inline! {
    /// Posts a read of remote memory: `fi_rma(3)`.
    fn fi_read(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize => ep.rma.read;

    /// Posts a read of remote memory into several buffers: `fi_rma(3)`.
    fn fi_readv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize => ep.rma.readv;

    /// Posts a read that a structure describes: `fi_rma(3)`.
    fn fi_readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize => ep.rma.readmsg;

    /// Posts a write to remote memory: `fi_rma(3)`.
    fn fi_write(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize => ep.rma.write;

    /// Posts a write to remote memory from several buffers: `fi_rma(3)`.
    fn fi_writev(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize => ep.rma.writev;

    /// Posts a write that a structure describes: `fi_rma(3)`.
    fn fi_writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize => ep.rma.writemsg;

    /// Writes from a buffer that is free on return, without a completion: `fi_rma(3)`.
    fn fi_inject_write(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
    ) -> isize => ep.rma.inject;

    /// Posts a write that gives the target a completion with immediate data: `fi_rma(3)`.
    fn fi_writedata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
        context: *mut c_void,
    ) -> isize => ep.rma.writedata;

    /// As [`fi_inject_write`], with immediate data: `fi_rma(3)`.
    fn fi_inject_writedata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
        addr: u64,
        key: u64,
    ) -> isize => ep.rma.injectdata;
}
