//! Native addresses of endpoints.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::{AddressFormat, Error};

/// The address of an endpoint in the format of its provider: bytes that can be sent to another
/// host.
///
/// It is displayed as `ip:port` if it is a socket address, as text if it is text, and otherwise in
/// hexadecimal.
///
/// ```
/// use farreach_fabric::{Address, AddressFormat};
///
/// let address = Address::new(AddressFormat::Efa, [0xfe, 0x80, 0x00, 0x01]);
/// assert_eq!(address.to_string(), "fe800001");
/// assert_eq!(address.bytes(), [0xfe, 0x80, 0x00, 0x01]);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address {
    format: AddressFormat,
    bytes: Vec<u8>,
}

impl Address {
    /// Creates an address from its bytes.
    pub fn new(format: AddressFormat, bytes: impl Into<Vec<u8>>) -> Self {
        Self { format, bytes: bytes.into() }
    }

    /// Returns the format of the bytes.
    pub fn format(&self) -> AddressFormat {
        self.format
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the IP address and port, if it is an IPv4 or IPv6 socket address.
    #[doc(alias = "sockaddr")]
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self.format {
            AddressFormat::Socket | AddressFormat::Ipv4 | AddressFormat::Ipv6 => parse_sockaddr(&self.bytes),
            _ => None,
        }
    }

    /// Returns the bytes in hexadecimal, two digits each, in any format.
    pub fn to_hex(&self) -> String {
        self.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The maximum length in bytes: the longest address of libfabric is a file's path.
    pub const BYTES_MAX: usize = 512;

    /// Parses the output of [`to_hex`](Self::to_hex). Surrounding white space is ignored, and
    /// nothing else.
    ///
    /// ```
    /// use farreach_fabric::{Address, AddressFormat};
    ///
    /// let address = Address::new(AddressFormat::Efa, (0..32).collect::<Vec<u8>>());
    /// assert_eq!(address.to_hex().len(), 64);
    /// assert_eq!(Address::parse_hex(AddressFormat::Efa, &address.to_hex()), Ok(address));
    /// assert!(Address::parse_hex(AddressFormat::Efa, "0x12").is_err());
    /// ```
    pub fn parse_hex(format: AddressFormat, text: &str) -> Result<Self, Error> {
        let digits = text.trim();
        let refused = |why| {
            let text = digits.chars().take(2 * Self::BYTES_MAX).collect();
            Err(Error::InvalidAddress { text, why })
        };
        if digits.is_empty() {
            return refused("it is empty");
        }
        if digits.len() > 2 * Self::BYTES_MAX {
            return refused("it exceeds the maximum length of an address");
        }
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return refused("it contains other characters than the digits 0 to 9 and a to f");
        }
        if !digits.len().is_multiple_of(2) {
            return refused("a digit is missing: each byte has two");
        }
        let byte = |pair: &[u8]| pair.iter().fold(0, |byte, digit| byte << 4 | value_of(*digit));
        Ok(Self::new(format, digits.as_bytes().chunks(2).map(byte).collect::<Vec<u8>>()))
    }

    /// Returns the text, if the format is text and the bytes are printable.
    pub(crate) fn text(&self) -> Option<&str> {
        if self.format != AddressFormat::Text {
            return None;
        }
        let text = self.bytes.split(|byte| *byte == 0).next()?;
        std::str::from_utf8(text).ok().filter(|text| !text.is_empty() && !text.contains(char::is_control))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.socket_addr() {
            address.fmt(f)
        } else if let Some(text) = self.text() {
            f.pad(text)
        } else {
            f.pad(&self.to_hex())
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({:?}, {self})", self.format)
    }
}

/// Returns the value of a digit. The caller has checked that it is one.
fn value_of(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Parses a `struct sockaddr_in` or `sockaddr_in6` in the layout of Linux. Returns `None` for a
/// shorter or another one.
fn parse_sockaddr(bytes: &[u8]) -> Option<SocketAddr> {
    let field = |at: usize, len: usize| bytes.get(at..at + len);
    let family = u16::from_ne_bytes(field(0, 2)?.try_into().ok()?);
    let port = u16::from_be_bytes(field(2, 2)?.try_into().ok()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = field(4, 4)?.try_into().ok()?;
            Some(SocketAddrV4::new(Ipv4Addr::from(ip), port).into())
        }
        libc::AF_INET6 => {
            let flow = u32::from_be_bytes(field(4, 4)?.try_into().ok()?);
            let ip: [u8; 16] = field(8, 16)?.try_into().ok()?;
            let scope = u32::from_ne_bytes(field(24, 4)?.try_into().ok()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(port: u16, ip: [u8; 4]) -> Vec<u8> {
        let mut bytes = (libc::AF_INET as u16).to_ne_bytes().to_vec();
        bytes.extend(port.to_be_bytes());
        bytes.extend(ip);
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn socket_addresses_print_as_ip_and_port() {
        let bytes = ipv4(18520, [10, 0, 0, 7]);
        assert_eq!(Address::new(AddressFormat::Ipv4, bytes.clone()).to_string(), "10.0.0.7:18520");
        assert_eq!(Address::new(AddressFormat::Socket, bytes).to_string(), "10.0.0.7:18520");

        let mut bytes = (libc::AF_INET6 as u16).to_ne_bytes().to_vec();
        bytes.extend(7u16.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(Ipv6Addr::LOCALHOST.octets());
        bytes.extend(0u32.to_ne_bytes());
        assert_eq!(Address::new(AddressFormat::Ipv6, bytes).to_string(), "[::1]:7");
    }

    #[test]
    fn a_short_or_strange_socket_address_is_hex() {
        let bytes = ipv4(1, [1, 2, 3, 4]);
        for len in 0..8 {
            let address = Address::new(AddressFormat::Ipv4, &bytes[..len]);
            assert_eq!(address.socket_addr(), None);
            assert_eq!(address.to_string().len(), 2 * len);
        }
        let unix = (libc::AF_UNIX as u16).to_ne_bytes();
        assert_eq!(Address::new(AddressFormat::Socket, [unix, [0; 2]].concat()).socket_addr(), None);
    }

    #[test]
    fn hexadecimal_is_read_back_and_nothing_else_is() {
        let bytes: Vec<u8> = (0..=255).collect();
        let address = Address::new(AddressFormat::Efa, bytes);
        let parse = |text: &str| Address::parse_hex(AddressFormat::Efa, text);
        assert_eq!(parse(&address.to_hex()), Ok(address.clone()));
        assert_eq!(parse(&format!("  {}\n", address.to_hex().to_uppercase())), Ok(address));
        for wrong in ["", " ", "1", "0g", "0x01", "01 02", "-1", "é9", &"00".repeat(513)] {
            let error = parse(wrong).expect_err(wrong);
            assert!(matches!(error, Error::InvalidAddress { .. }), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn text_ends_at_its_nul() {
        let address = Address::new(AddressFormat::Text, *b"fi_shm://1234\0");
        assert_eq!(address.to_string(), "fi_shm://1234");
        assert_eq!(address.bytes().len(), 14);
        assert_eq!(Address::new(AddressFormat::Text, *b"\x1b[2J").to_string(), "1b5b324a");
        assert_eq!(Address::new(AddressFormat::Text, *b"\xff").to_string(), "ff");
    }
}
