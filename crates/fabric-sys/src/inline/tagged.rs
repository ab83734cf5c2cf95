//! Messages with tags: `fi_tagged(3)`.

use std::ffi::c_void;

use libc::iovec;

use crate::bindings::{fi_addr_t, fi_msg_tagged, fid_ep};

inline! {
    /// Posts a receive for a tag: `fi_tagged(3)`.
    fn fi_trecv(
        ep: *mut fid_ep,
        buf: *mut c_void,
        len: usize,
        desc: *mut c_void,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize => ep.tagged.recv;

    /// Posts a receive for a tag into several buffers: `fi_tagged(3)`.
    fn fi_trecvv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        src_addr: fi_addr_t,
        tag: u64,
        ignore: u64,
        context: *mut c_void,
    ) -> isize => ep.tagged.recvv;

    /// Posts a receive for a tag that a structure describes: `fi_tagged(3)`.
    fn fi_trecvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize => ep.tagged.recvmsg;

    /// Posts a send with a tag: `fi_tagged(3)`.
    fn fi_tsend(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize => ep.tagged.send;

    /// Posts a send with a tag from several buffers: `fi_tagged(3)`.
    fn fi_tsendv(
        ep: *mut fid_ep,
        iov: *const iovec,
        desc: *mut *mut c_void,
        count: usize,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize => ep.tagged.sendv;

    /// Posts a send with a tag that a structure describes: `fi_tagged(3)`.
    fn fi_tsendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize => ep.tagged.sendmsg;

    /// Sends from a buffer that is free on return, without a completion: `fi_tagged(3)`.
    fn fi_tinject(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, tag: u64) -> isize
        => ep.tagged.inject;

    /// Posts a send with a tag and immediate data: `fi_tagged(3)`.
    fn fi_tsenddata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        desc: *mut c_void,
        data: u64,
        dest_addr: fi_addr_t,
        tag: u64,
        context: *mut c_void,
    ) -> isize => ep.tagged.senddata;

    /// As [`fi_tinject`], with immediate data: `fi_tagged(3)`.
    fn fi_tinjectdata(
        ep: *mut fid_ep,
        buf: *const c_void,
        len: usize,
        data: u64,
        dest_addr: fi_addr_t,
        tag: u64,
    ) -> isize => ep.tagged.injectdata;
}
