//! Connections, names and multicast groups: `fi_cm(3)`.

use std::ffi::{c_int, c_void};

use crate::bindings::{fi_addr_t, fi_ops_cm, fid_ep, fid_mc, fid_pep, fid_t};

inline! {
    /// Sets the local address of an endpoint: `fi_cm(3)`.
    fn fi_setname(fid: fid_t, addr: *mut c_void, addrlen: usize) -> c_int => fid as fid_ep, cm.setname;

    /// Reads the local address of an endpoint: `fi_cm(3)`.
    fn fi_getname(fid: fid_t, addr: *mut c_void, addrlen: *mut usize) -> c_int => fid as fid_ep, cm.getname;

    /// Reads the peer's address of a connected endpoint: `fi_cm(3)`.
    fn fi_getpeer(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int => ep.cm.getpeer;

    /// Listens for connections: `fi_cm(3)`.
    fn fi_listen(pep: *mut fid_pep) -> c_int => pep.cm.listen;

    /// Asks a listening peer for a connection: `fi_cm(3)`.
    fn fi_connect(ep: *mut fid_ep, addr: *const c_void, param: *const c_void, paramlen: usize) -> c_int
        => ep.cm.connect;

    /// Accepts a connection: `fi_cm(3)`.
    fn fi_accept(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int => ep.cm.accept;

    /// Refuses a connection: `fi_cm(3)`.
    fn fi_reject(pep: *mut fid_pep, handle: fid_t, param: *const c_void, paramlen: usize) -> c_int
        => pep.cm.reject;

    /// Ends a connection: `fi_cm(3)`.
    fn fi_shutdown(ep: *mut fid_ep, flags: u64) -> c_int => ep.cm.shutdown;

    /// Joins a multicast group: `fi_cm(3)`. Closing `mc` leaves it, which is what the manual calls
    /// `fi_leave`.
    fn fi_join(
        ep: *mut fid_ep,
        addr: *const c_void,
        flags: u64,
        mc: *mut *mut fid_mc,
        context: *mut c_void,
    ) -> c_int => checked ep.cm.join in fi_ops_cm;
}

/// Returns the address of a multicast group: `fi_cm(3)`.
///
/// # Safety
///
/// `mc` is live.
#[inline]
pub unsafe fn fi_mc_addr(mc: *mut fid_mc) -> fi_addr_t {
    // SAFETY: the caller guarantees that the group is live.
    unsafe { (*mc).fi_addr }
}
