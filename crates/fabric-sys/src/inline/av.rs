//! Address vectors: `fi_av(3)`.

use std::ffi::{c_char, c_int, c_void};

use crate::bindings::{fi_addr_t, fi_av_attr, fid, fid_av, fid_domain};

inline! {
    /// Opens an address vector: `fi_av(3)`.
    fn fi_av_open(
        domain: *mut fid_domain,
        attr: *mut fi_av_attr,
        av: *mut *mut fid_av,
        context: *mut c_void,
    ) -> c_int => domain.ops.av_open;

    /// Binds an event queue to an address vector: `fi_av(3)`.
    fn fi_av_bind(av: *mut fid_av, fid: *mut fid, flags: u64) -> c_int => &av.fid.bind;

    /// Inserts addresses: `fi_av(3)`. Returns how many were inserted.
    fn fi_av_insert(
        av: *mut fid_av,
        addr: *const c_void,
        count: usize,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int => av.ops.insert;

    /// Inserts the address of a host and service: `fi_av(3)`.
    fn fi_av_insertsvc(
        av: *mut fid_av,
        node: *const c_char,
        service: *const c_char,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int => av.ops.insertsvc;

    /// Inserts the addresses of consecutive hosts and services: `fi_av(3)`.
    fn fi_av_insertsym(
        av: *mut fid_av,
        node: *const c_char,
        nodecnt: usize,
        service: *const c_char,
        svccnt: usize,
        fi_addr: *mut fi_addr_t,
        flags: u64,
        context: *mut c_void,
    ) -> c_int => av.ops.insertsym;

    /// Removes addresses: `fi_av(3)`.
    fn fi_av_remove(av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int
        => av.ops.remove;

    /// Looks up the native address of an entry: `fi_av(3)`.
    fn fi_av_lookup(av: *mut fid_av, fi_addr: fi_addr_t, addr: *mut c_void, addrlen: *mut usize) -> c_int
        => av.ops.lookup;

    /// Writes a native address as text: `fi_av(3)`.
    fn fi_av_straddr(av: *mut fid_av, addr: *const c_void, buf: *mut c_char, len: *mut usize) -> *const c_char
        => av.ops.straddr;
}

/// Returns the address of one receive context of a scalable endpoint: `fi_av(3)`. `rx_ctx_bits` is
/// from 1 to 63.
#[inline]
pub const fn fi_rx_addr(fi_addr: fi_addr_t, rx_index: c_int, rx_ctx_bits: c_int) -> fi_addr_t {
    (rx_index as u64) << (64 - rx_ctx_bits) | fi_addr
}
