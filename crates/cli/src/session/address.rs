//! Parses and resolves the address of the peer: `host`, `host:port` or `[v6]:port`.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use farreach_text::shell_word;

use crate::exit::{Exit, Failure};

/// A peer's address as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PeerAddress {
    host: String,
    port: Option<u16>,
}

impl PeerAddress {
    pub(crate) const DEFAULT_PORT: u16 = 18520;

    /// Resolves the address. The results are in the resolver's order, in which they should be
    /// tried.
    pub(crate) fn resolve(&self, port: u16) -> Result<Vec<SocketAddr>, Failure> {
        let port = self.port.unwrap_or(port);
        let failure = |cause: String| {
            let fix = match self.host.split_once('%') {
                Some((_, interface)) => {
                    format!(
                        "name the interface that leads to the peer; to check this one:\nip link show {}",
                        shell_word(interface)
                    )
                }
                None => {
                    let host = shell_word(&self.host);
                    format!("use an IP address, or a name that resolves:\ngetent hosts {host}")
                }
            };
            Failure::new(Exit::PeerLost, format!("cannot connect to {}", self.told(port)))
                .cause(cause)
                .fix(fix)
        };
        let found: Vec<_> = (self.host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| failure(format!("cannot resolve the name {}: {error}", self.host)))?
            .collect();
        if found.is_empty() { Err(failure(format!("{} has no address", self.host))) } else { Ok(found) }
    }

    /// Returns the host as it was typed, without the port, and without the interface of a
    /// link-local address, which has a meaning on this host only.
    pub(crate) fn host(&self) -> &str {
        self.host.split('%').next().unwrap_or(&self.host)
    }

    /// Returns the address with its port, in the form that a user types.
    pub(crate) fn told(&self, port: u16) -> String {
        let port = self.port.unwrap_or(port);
        if self.host.contains(':') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        }
    }
}

impl FromStr for PeerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("{why}: use host, host:port or [IPv6]:port"));
        let number = |port: &str| match port.parse::<u16>() {
            Ok(port) if port > 0 => Ok(Some(port)),
            _ => Err(format!("`{port}` is not a port: use a number from 1 to 65535")),
        };
        if is_v6(text) {
            return Ok(Self { host: text.to_owned(), port: None });
        }
        if let Some(rest) = text.strip_prefix('[') {
            let Some((host, behind)) = rest.split_once(']') else {
                return wrong("the bracket is not closed");
            };
            if !is_v6(host) {
                return wrong("the brackets contain no IPv6 address");
            }
            let port = match behind.strip_prefix(':') {
                Some(port) => number(port)?,
                None if behind.is_empty() => None,
                None => return wrong("only a port may follow the bracket"),
            };
            return Ok(Self { host: host.to_owned(), port });
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => {
                return wrong("an IPv6 address with a port needs brackets");
            }
            Some((host, port)) => (host, number(port)?),
            None => (text, None),
        };
        // Only an IPv6 address names an interface behind `%`.
        if host.is_empty() || host.starts_with('%') || host.contains(char::is_whitespace) {
            return wrong("the host is missing");
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// Returns whether a text is an IPv6 address. A link-local one may name its interface, which the
/// resolver understands.
fn is_v6(text: &str) -> bool {
    // The kernel allows neither white space nor `:` and `/` in a name of an interface, and a bracket
    // would not be told from the one behind the address.
    let is_in_no_name = |letter: char| letter.is_whitespace() || ":/[]".contains(letter);
    let address = match text.split_once('%') {
        Some((_, interface)) if interface.is_empty() || interface.contains(is_in_no_name) => return false,
        Some((address, _)) => address,
        None => text,
    };
    address.parse::<Ipv6Addr>().is_ok()
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(Self::DEFAULT_PORT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_understood() {
        for (text, told) in [
            ("storage-7", "storage-7:18520"),
            ("storage-7:99", "storage-7:99"),
            ("10.0.0.7", "10.0.0.7:18520"),
            ("[fe80::1]:99", "[fe80::1]:99"),
            ("[::1]", "[::1]:18520"),
            ("::1", "[::1]:18520"),
            ("[fe80::1%eth0]:99", "[fe80::1%eth0]:99"),
            ("fe80::1%lo", "[fe80::1%lo]:18520"),
        ] {
            assert_eq!(text.parse::<PeerAddress>().expect(text).to_string(), told);
        }
    }

    #[test]
    fn an_address_of_a_link_is_called_through_its_interface() {
        let peer: PeerAddress = "[fe80::1%lo]:99".parse().expect("an address of a link");
        assert_eq!(peer.host(), "fe80::1");
        let found = peer.resolve(1).expect("every host has lo");
        // `lo` has index 1 on every host.
        assert!(
            matches!(&found[..], [SocketAddr::V6(it)] if (it.scope_id(), it.port()) == (1, 99)),
            "{found:?}"
        );
        let nowhere: PeerAddress = "fe80::1%nonsense".parse().expect("it may be somewhere");
        let refused = nowhere.resolve(1).expect_err("there is no such interface");
        assert!(refused.fix.is_some_and(|fix| fix.contains("ip link show nonsense")));
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (text, told) in [
            ("", "host is missing"),
            (":99", "host is missing"),
            ("%lo", "host is missing"),
            ("%lo:99", "host is missing"),
            ("a:b", "not a port"),
            ("a:0", "not a port"),
            ("a:70000", "not a port"),
            ("[::1", "bracket"),
            ("[::1]99", "bracket"),
            ("[a]:99", "no IPv6"),
            ("fe80::1:99:x", "brackets"),
            ("[fe80::1%]:99", "no IPv6"),
            ("[%lo]:99", "no IPv6"),
            ("fe80::1%eth0:99", "brackets"),
            ("fe80::1%eth[]]:99", "brackets"),
            ("[fe80::1%a[b]:99", "no IPv6"),
        ] {
            let error = text.parse::<PeerAddress>().expect_err(text);
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
