//! The lists that librdmacm allocates: of addresses, and of devices.

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ptr::{NonNull, null, null_mut};

use farreach_verbs_sys as sys;
use farreach_verbs_sys::{Rdmacm, SymbolMissing};

use crate::address::{self, RawAddress};

/// Hints as a C structure.
///
/// Invariant: the source address is null, or valid while this lives. There is no other pointer.
pub(in crate::cm) struct RawHints<'a> {
    raw: sys::rdma_addrinfo,
    _source: PhantomData<&'a mut RawAddress>,
}

impl<'a> RawHints<'a> {
    #[cfg(test)]
    pub(in crate::cm) fn raw(&self) -> &sys::rdma_addrinfo {
        &self.raw
    }

    pub(in crate::cm) fn new(
        flags: c_int,
        family: c_int,
        qp_type: c_int,
        port_space: c_int,
        source: Option<&'a mut RawAddress>,
    ) -> Self {
        let mut raw = sys::rdma_addrinfo {
            ai_flags: flags,
            ai_family: family,
            ai_qp_type: qp_type,
            ai_port_space: port_space,
            ..Default::default()
        };
        if let Some(source) = source {
            raw.ai_src_len = source.len();
            raw.ai_src_addr = source.as_mut_ptr();
        }
        Self { raw, _source: PhantomData }
    }
}

/// An entry of the list of addresses.
pub(in crate::cm) struct Found {
    pub(in crate::cm) source: Option<SocketAddr>,
    pub(in crate::cm) destination: Option<SocketAddr>,
    pub(in crate::cm) canonical_name: Option<String>,
}

/// Resolves names to addresses. Returns the function's status if it is not 0.
pub(in crate::cm) fn getaddrinfo(
    lib: &Rdmacm,
    node: Option<&CStr>,
    service: Option<&CStr>,
    hints: &RawHints<'_>,
) -> Result<Result<Vec<Found>, c_int>, SymbolMissing> {
    let [node, service] = [node, service].map(|name| name.map_or(null(), CStr::as_ptr));
    let mut list = null_mut();
    // SAFETY: the names are null or `CStr`s, and `RawHints` are valid; all are borrowed for the
    // call. The returned list is copied by `read`, then freed once, and not used afterwards.
    unsafe {
        let status = lib.rdma_getaddrinfo(node, service, &raw const hints.raw, &raw mut list)?;
        if status != 0 {
            return Ok(Err(status));
        }
        let found = read(list);
        lib.rdma_freeaddrinfo(list)?;
        Ok(Ok(found))
    }
}

/// Copies a list of addresses.
///
/// # Safety
///
/// The list comes from librdmacm, or is null.
unsafe fn read(list: *const sys::rdma_addrinfo) -> Vec<Found> {
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: each entry lives as long as the list, which the caller keeps, and points to the next
    // one or to null. Each of its addresses is null, or as long as its family requires; each of its
    // names is null, or NUL-terminated.
    unsafe {
        while let Some(entry) = next.as_ref() {
            let name =
                [entry.ai_dst_canonname, entry.ai_src_canonname].into_iter().find(|name| !name.is_null());
            found.push(Found {
                source: address::read(entry.ai_src_addr),
                destination: address::read(entry.ai_dst_addr),
                canonical_name: name.map(|name| CStr::from_ptr(name).to_string_lossy().into_owned()),
            });
            next = entry.ai_next;
        }
    }
    found
}

/// Runs `look` while the library has all its devices open, and returns these devices. Returns
/// `None` with `errno` set if the library fails.
pub(in crate::cm) fn with_devices<T>(
    lib: &Rdmacm,
    look: impl FnOnce() -> T,
) -> Result<Option<(Vec<*mut sys::ibv_device>, T)>, SymbolMissing> {
    let mut count = 0;
    // SAFETY: `count` is a local variable.
    let list = unsafe { lib.rdma_get_devices(&raw mut count) }?;
    let Some(list) = NonNull::new(list) else { return Ok(None) };
    let seen = look();
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: the list holds `count` contexts, each of which is open and has its device until the
    // list is freed, which happens once, at the end.
    let devices = unsafe {
        let devices = (0..count).map(|place| (**list.as_ptr().add(place)).device).collect();
        lib.rdma_free_devices(list.as_ptr())?;
        devices
    };
    Ok(Some((devices, seen)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_to_its_end() {
        let mut address = RawAddress::new("192.0.2.7:5".parse().unwrap());
        let last = sys::rdma_addrinfo { ai_dst_addr: address.as_mut_ptr(), ..Default::default() };
        let first = sys::rdma_addrinfo { ai_next: (&raw const last).cast_mut(), ..Default::default() };
        // SAFETY: two entries that live, one of them empty.
        let found = unsafe { read(&raw const first) };
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].destination, found[0].source), (None, None));
        assert_eq!(found[1].destination, Some("192.0.2.7:5".parse().unwrap()));
    }
}
