//! Where a connection comes from. Budgets are shared by origin, those of an engine and those of
//! `farreach serve`.
//!
//! An address says too little of a host: any process of this host may use any address of loopback, and
//! any host with an IPv6 network the 2^64 addresses of it. Users know an origin as an *address*.

use std::net::IpAddr;

/// The origin of connections that share a budget.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// This host, over loopback. All its addresses count as one, because a process may use any of
    /// them.
    Loopback,
    /// One IPv4 address.
    V4([u8; 4]),
    /// A network of IPv6 with a prefix of 64 bits: one host may use all its addresses.
    V6([u16; 4]),
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        // An IPv4 address that is mapped to IPv6 must not have a budget of its own.
        match address.to_canonical() {
            address if address.is_loopback() => Self::Loopback,
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_origin() {
        let of = |text: &str| Origin::from(text.parse::<IpAddr>().unwrap());
        for loopback in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(of(loopback), Origin::Loopback, "{loopback}");
        }
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
