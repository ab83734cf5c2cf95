//! Queries to the C library and the kernel.

use std::ffi::CStr;
use std::io;
use std::net::IpAddr;
use std::ptr::null_mut;

use crate::address;

/// Returns the name of a net device in this network namespace.
pub(crate) fn interface_name(index: u32) -> Option<String> {
    let mut name = [0; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size that the function requires. After success it contains a
    // NUL-terminated name.
    let name = unsafe {
        let found = libc::if_indextoname(index, name.as_mut_ptr());
        (!found.is_null()).then(|| CStr::from_ptr(name.as_ptr()))
    };
    name.map(|name| name.to_string_lossy().into_owned())
}

/// A net device with one of its addresses, or without an IP address.
pub(crate) struct InterfaceAddress {
    pub(crate) name: String,
    pub(crate) is_up: bool,
    pub(crate) address: Option<IpAddr>,
}

/// Returns the net devices of this network namespace: `getifaddrs(3)`. Empty if that fails.
pub(crate) fn interface_addresses() -> Vec<InterfaceAddress> {
    let mut first = null_mut();
    // SAFETY: `first` is a local variable.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut next = first.cast_const();
    // SAFETY: the call above made the list. Its entries live until `freeifaddrs` at the end, and
    // each points to the next one or is null-terminated. A name is NUL-terminated. An address is
    // null, or as long as its family requires.
    unsafe {
        while let Some(entry) = next.as_ref() {
            all.push(InterfaceAddress {
                name: CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned(),
                is_up: entry.ifa_flags & libc::IFF_UP as u32 != 0,
                address: address::read(entry.ifa_addr).map(|address| address.ip()),
            });
            next = entry.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    all
}

/// Returns an unpredictable number: `getrandom(2)`.
pub(crate) fn random() -> io::Result<u32> {
    let mut bytes = [0; 4];
    loop {
        // SAFETY: the kernel gets the buffer with its length.
        let count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match usize::try_from(count) {
            Ok(count) if count == bytes.len() => return Ok(u32::from_ne_bytes(bytes)),
            Ok(_) => {}
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Returns the number of bytes that this process may lock in memory. `None` if there is no limit.
pub(crate) fn locked_memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a local variable.
    let status = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (status == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Returns the resolver's message for an error code.
pub(crate) fn resolver_message(code: i32) -> String {
    // SAFETY: the function returns a static, NUL-terminated string for every number.
    unsafe { CStr::from_ptr(libc::gai_strerror(code)) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn net_devices_are_named_by_index() {
        assert_eq!(interface_name(1).as_deref(), Some("lo"), "the first net device of every namespace");
        assert_eq!(interface_name(u32::MAX), None);
    }
}
