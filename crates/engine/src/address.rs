//! Addresses to listen on or connect to, as the user gives them.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::Error;

/// Returns the first address that the name resolves to, and the text that was given.
pub(crate) fn resolve(address: impl ToSocketAddrs + fmt::Debug) -> Result<(SocketAddr, String), Error> {
    // `ToSocketAddrs` gives no text. Strings are printed with quotes, which are no part of the
    // name.
    let text = format!("{address:?}").trim_matches('"').to_owned();
    match address.to_socket_addrs() {
        Ok(mut found) => match found.next() {
            Some(found) => Ok((found, text)),
            None => Err(Error::address(&text, "the name has no IP address")),
        },
        Err(error) => Err(Error::address(&text, &error.to_string())),
    }
}

/// Returns whether an address leads to this host only: 127.0.0.0/8 or `::1`. An unspecified address
/// (`0.0.0.0`, `::`) is that of every interface.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    // An IPv4 address that is mapped to IPv6 leads to the same host.
    address.to_canonical().is_loopback()
}

/// Returns the host as it was given: the name in `name:port` or `("name", port)`; otherwise the
/// address.
pub(crate) fn host_of(text: &str, address: SocketAddr) -> String {
    let inner = text.trim_matches(['(', ')']);
    // A pair is printed as `("name", port)`, and a string as `name:port`.
    let host = match inner.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => inner.rsplit_once(':').map(|(host, _)| host),
    };
    // A certificate is checked against the result, so nothing else that a type prints counts as a
    // name.
    host.filter(|host| is_name(host)).map_or_else(|| address.ip().to_string(), ToOwned::to_owned)
}

fn is_name(host: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
    host.chars().all(is_part) && host.chars().any(char::is_alphabetic)
}

/// Returns a name that has to be resolved, and its port, from how a string or a pair of a string and a
/// port is printed for debugging. `None` for everything else: an address of another type is resolved by
/// its own code.
pub(crate) fn name_in(text: &str) -> Option<(&str, u16)> {
    let (host, port) = match text.strip_prefix("(\"") {
        Some(pair) => pair.strip_suffix(')')?.split_once("\", ")?,
        None => text.strip_prefix('"')?.strip_suffix('"')?.rsplit_once(':')?,
    };
    // An IP address has no letters or has colons, and need not be resolved.
    is_name(host).then_some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn host(address: impl ToSocketAddrs + fmt::Debug) -> String {
        let (address, text) = resolve(address).unwrap();
        host_of(&text, address)
    }

    #[test]
    fn a_name_is_a_name_however_it_is_given() {
        assert_eq!(host("localhost:18520"), "localhost");
        assert_eq!(host("localhost:18520".to_owned()), "localhost");
        assert_eq!(host(("localhost", 18520)), "localhost");
        assert_eq!(host_of("cafe.example-1.org:80", ([10, 0, 0, 7], 80).into()), "cafe.example-1.org");
    }

    #[test]
    fn an_address_is_an_address() {
        let four: SocketAddr = "10.0.0.7:18520".parse().unwrap();
        assert_eq!(host("10.0.0.7:18520"), "10.0.0.7");
        assert_eq!(host(four), "10.0.0.7");
        assert_eq!(host((Ipv4Addr::LOCALHOST, 1)), "127.0.0.1");
        assert_eq!(host(&[four][..]), "10.0.0.7");
        assert_eq!(host("[2001:db8::face]:18520"), "2001:db8::face");
        assert_eq!(host(("2001:db8::face", 18520)), "2001:db8::face");
        assert_eq!(host((Ipv6Addr::LOCALHOST, 1)), "::1");
    }

    fn name(address: impl fmt::Debug) -> Option<(String, u16)> {
        name_in(&format!("{address:?}")).map(|(name, port)| (name.to_owned(), port))
    }

    #[test]
    fn only_names_have_to_be_resolved() {
        let named = Some(("node-7.example".to_owned(), 18520));
        assert_eq!(name("node-7.example:18520"), named);
        assert_eq!(name("node-7.example:18520".to_owned()), named);
        assert_eq!(name(("node-7.example", 18520)), named);
        assert_eq!(name(("node-7.example".to_owned(), 18520)), named);
        let four: SocketAddr = "10.0.0.7:18520".parse().unwrap();
        assert_eq!((name(four), name("10.0.0.7:18520"), name(("10.0.0.7", 18520))), (None, None, None));
        assert_eq!((name("[::1]:18520"), name(("::1", 18520)), name(&[four][..])), (None, None, None));
        for wrong in ["", ":", "name", "name:", "name:65536", "a b:1", "name:1:2", "\"quoted\":1"] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
        // A type of the program resolves itself, whatever it prints.
        assert_eq!(name_in("node-7.example:18520"), None);
    }

    #[test]
    fn only_loopback_is_within_this_host() {
        for address in ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1"] {
            assert!(is_loopback(address.parse().unwrap()), "{address}");
        }
        for address in
            ["0.0.0.0", "::", "::ffff:0.0.0.0", "10.0.0.7", "128.0.0.1", "::2", "fe80::1", "::127.0.0.1"]
        {
            assert!(!is_loopback(address.parse().unwrap()), "{address}");
        }
    }

    /// A text that cannot be parsed gives the resolved address.
    #[test]
    fn what_cannot_be_read_is_its_address() {
        let address = ([10, 0, 0, 7], 80).into();
        for text in ["", "Peer { host: 7 }", "a b:1", "(", "\"\""] {
            assert_eq!(host_of(text, address), "10.0.0.7", "{text}");
        }
    }
}
