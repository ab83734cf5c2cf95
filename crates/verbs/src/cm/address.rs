//! Socket addresses, as C has them.

use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// An address with the room and the alignment that any family needs.
pub(super) struct RawAddress(sockaddr_storage);

impl RawAddress {
    pub(super) fn new(address: SocketAddr) -> Self {
        // SAFETY: an address of zeroes is one of no family.
        let mut raw = Self(unsafe { std::mem::zeroed() });
        match address {
            // SAFETY: the storage has room for any family, aligned for all.
            SocketAddr::V4(v4) => unsafe {
                raw.as_mut_ptr().cast::<sockaddr_in>().write(sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                });
            },
            // SAFETY: as above.
            SocketAddr::V6(v6) => unsafe {
                raw.as_mut_ptr().cast::<sockaddr_in6>().write(sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                });
            },
        }
        raw
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }

    /// How many of its bytes the family uses.
    pub(super) fn len(&self) -> libc::socklen_t {
        let len = match i32::from(self.0.ss_family) {
            libc::AF_INET => size_of::<sockaddr_in>(),
            _ => size_of::<sockaddr_in6>(),
        };
        len as libc::socklen_t
    }
}

/// The address, if it is one of IP.
///
/// # Safety
///
/// `address` is null, or readable and aligned for as many bytes as its family has.
pub(super) unsafe fn read(address: *const sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for the family, and for the bytes that it promises.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<sockaddr_in6>().read();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        let link_local = SocketAddrV6::new("fe80::1".parse().unwrap(), 18520, 0, 3);
        for address in
            ["192.0.2.1:18520".parse().unwrap(), "[2001:db8::1]:1".parse().unwrap(), link_local.into()]
        {
            let mut raw = RawAddress::new(address);
            // SAFETY: the storage is larger than any address.
            assert_eq!(unsafe { read(raw.as_mut_ptr()) }, Some(address));
            assert_eq!(raw.len(), if address.is_ipv4() { 16 } else { 28 });
        }
    }

    #[test]
    fn no_address_is_none() {
        // SAFETY: null, and an address of zeroes.
        unsafe {
            assert_eq!(read(std::ptr::null()), None);
            let empty: sockaddr_storage = std::mem::zeroed();
            assert_eq!(read((&raw const empty).cast()), None);
        }
    }
}
