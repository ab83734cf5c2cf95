//! Converts socket addresses from and to their C representation.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr, sockaddr_in, sockaddr_in6};

/// An IPv4 or IPv6 address, as long as its family requires.
pub(crate) enum RawAddress {
    V4(sockaddr_in),
    V6(sockaddr_in6),
}

impl RawAddress {
    pub(crate) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self::V4(sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => Self::V6(sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut sockaddr {
        match self {
            Self::V4(v4) => (&raw mut *v4).cast(),
            Self::V6(v6) => (&raw mut *v6).cast(),
        }
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> libc::socklen_t {
        let len = match self {
            Self::V4(_) => size_of::<sockaddr_in>(),
            Self::V6(_) => size_of::<sockaddr_in6>(),
        };
        len as libc::socklen_t
    }
}

/// Returns the address, or `None` if it is not an IP address.
///
/// # Safety
///
/// `address` is null, or readable and aligned for as many bytes as its family has.
pub(crate) unsafe fn read(address: *const sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the address is not null here. The caller guarantees that the family can be read, and
    // as many bytes as that family has.
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
            // SAFETY: a `RawAddress` is as long as its family requires.
            assert_eq!(unsafe { read(raw.as_mut_ptr()) }, Some(address));
            assert_eq!(raw.len(), if address.is_ipv4() { 16 } else { 28 });
        }
    }

    #[test]
    fn no_address_is_none() {
        let mut other = RawAddress::V4(sockaddr_in {
            sin_family: 0,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: 0 },
            sin_zero: [0; 8],
        });
        // SAFETY: null, and an address whose family, 0, is not read beyond the family.
        unsafe {
            assert_eq!(read(std::ptr::null()), None);
            assert_eq!(read(other.as_mut_ptr()), None);
        }
    }
}
