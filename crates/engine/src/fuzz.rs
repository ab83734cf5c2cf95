//! Private parts of the engine, for the fuzz targets.

use std::net::{IpAddr, SocketAddr};

pub use crate::control::fuzz::{Middle, Side};

/// Parses an address as a user gives it, without resolving it.
pub fn address(text: &str) {
    let address = SocketAddr::from(([10, 0, 0, 7], 80));
    for text in [text.to_owned(), format!("{text:?}"), format!("({text:?}, 80)")] {
        let host = crate::address::host_of(&text, address);
        assert!(!host.is_empty() && !host.contains(char::is_whitespace), "{text:?} has the host {host:?}");
        // The name is checked against a certificate, so it must be a part of the text.
        assert!(text.contains(&host) || host == "10.0.0.7", "{text:?} has the host {host:?}");
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        assert_eq!(crate::address::is_loopback(ip), ip.is_loopback() || ip.to_canonical().is_loopback());
    }
}
