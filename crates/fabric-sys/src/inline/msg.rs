//! Messages: `fi_msg(3)`.

use std::ffi::c_void;

use libc::iovec;

use crate::bindings::{fi_addr_t, fi_msg, fid_ep};

inline! {
    /// Posts a receive: `fi_msg(3)`.
    fn fi_recv(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize => ep.msg.recv;

    /// Posts a receive into several buffers: `fi_msg(3)`.
    fn fi_recvv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize => ep.msg.recvv;

    /// Posts a receive that a structure describes: `fi_msg(3)`.
    fn fi_recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize => ep.msg.recvmsg;

    /// Posts a send: `fi_msg(3)`.
    fn fi_send(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize => ep.msg.send;

    /// Posts a send from several buffers: `fi_msg(3)`.
    fn fi_sendv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize => ep.msg.sendv;

    /// Posts a send that a structure describes: `fi_msg(3)`.
    fn fi_sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize => ep.msg.sendmsg;

    /// Sends from a buffer that is free on return, without a completion: `fi_msg(3)`.
    fn fi_inject(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t) -> isize
        => ep.msg.inject;

    /// Posts a send with immediate data: `fi_msg(3)`.
    fn fi_senddata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        context: *mut c_void,
    ) -> isize => ep.msg.senddata;

    /// As [`fi_inject`], with immediate data: `fi_msg(3)`.
    fn fi_injectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
    ) -> isize => ep.msg.injectdata;
}
