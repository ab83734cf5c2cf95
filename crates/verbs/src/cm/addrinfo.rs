//! Resolves names to addresses.

use std::ffi::{CString, c_int};
use std::net::SocketAddr;

use farreach_verbs_sys as sys;
use farreach_verbs_sys::Rdmacm;

use super::error::Error;
use super::handle::{self, Found, RawHints, last_errno};
use super::port_space::PortSpace;
use crate::address::RawAddress;
use crate::os;

/// Hints for [`getaddrinfo`].
///
/// ```
/// use farreach_verbs::cm::{AddressHints, PortSpace};
///
/// let to_listen_on = AddressHints::new(PortSpace::Tcp).passive(true);
/// let numbers_only = AddressHints::new(PortSpace::Udp).numeric_host(true);
/// # let _ = (to_listen_on, numbers_only);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressHints {
    port_space: PortSpace,
    is_passive: bool,
    is_numeric: bool,
    family: Option<c_int>,
    source: Option<SocketAddr>,
}

impl AddressHints {
    /// Creates hints for addresses to connect to, in this port space.
    pub fn new(port_space: PortSpace) -> Self {
        Self { port_space, is_passive: false, is_numeric: false, family: None, source: None }
    }

    /// Sets whether to look for an address to listen on instead.
    pub fn passive(self, passive: bool) -> Self {
        Self { is_passive: passive, ..self }
    }

    /// Sets whether the node is numeric. The resolver is then not asked.
    pub fn numeric_host(self, numeric: bool) -> Self {
        Self { is_numeric: numeric, ..self }
    }

    /// Restricts the result to IPv4 addresses.
    pub fn ipv4(self) -> Self {
        Self { family: Some(libc::AF_INET), ..self }
    }

    /// Restricts the result to IPv6 addresses.
    pub fn ipv6(self) -> Self {
        Self { family: Some(libc::AF_INET6), ..self }
    }

    /// Sets the local address to connect from.
    pub fn source(self, source: SocketAddr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Converts to the C structure.
    fn to_raw<'a>(&self, source: Option<&'a mut RawAddress>) -> RawHints<'a> {
        let flag = |is_set: bool, flag: u32| if is_set { flag as c_int } else { 0 };
        let qp_type = if self.port_space.is_datagram() { sys::IBV_QPT_UD } else { sys::IBV_QPT_RC };
        let flags = flag(self.is_passive, sys::RAI_PASSIVE)
            | flag(self.is_numeric, sys::RAI_NUMERICHOST)
            | flag(self.family.is_some(), sys::RAI_FAMILY);
        let family = self.family.unwrap_or(0);
        RawHints::new(flags, family, qp_type as c_int, self.port_space.raw() as c_int, source)
    }
}

/// An address for a name: the peer's, or one to listen on.
///
/// ```no_run
/// use farreach_verbs::cm::{AddressHints, PortSpace, getaddrinfo};
///
/// let hints = AddressHints::new(PortSpace::Tcp);
/// for found in getaddrinfo(Some("storage-7"), Some("18520"), &hints)? {
///     println!("connect to {:?}", found.destination);
/// }
/// # Ok::<(), farreach_verbs::cm::Error>(())
/// ```
#[doc(alias = "rdma_addrinfo")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressInfo {
    /// The local address to listen on or to connect from.
    pub source: Option<SocketAddr>,
    /// The peer's address.
    pub destination: Option<SocketAddr>,
    /// The port space.
    pub port_space: PortSpace,
    /// The full host name, if the resolver returned it.
    pub canonical_name: Option<String>,
}

/// Resolves a host name and a service to addresses: `rdma_getaddrinfo(3)`. A service is a port
/// number, or a name in `/etc/services`.
///
/// Blocks: the call asks the system's resolver, which has timeouts of its own and takes no
/// deadline. Numeric addresses are resolved at once.
#[doc(alias = "rdma_getaddrinfo")]
#[doc(alias = "rdma_freeaddrinfo")]
pub fn getaddrinfo(
    node: Option<&str>,
    service: Option<&str>,
    hints: &AddressHints,
) -> Result<Vec<AddressInfo>, Error> {
    let lib = Rdmacm::get()?;
    let name = format!("{}:{}", node.unwrap_or("*"), service.unwrap_or("*"));
    let text = |text: Option<&str>| text.map(CString::new).transpose();
    let (Ok(node), Ok(service)) = (text(node), text(service)) else {
        return Err(Error::NameNotResolved { name, reason: "it contains a NUL byte".to_owned() });
    };
    let mut source = hints.source.map(RawAddress::new);
    let raw = hints.to_raw(source.as_mut());
    let found = match handle::getaddrinfo(lib, node.as_deref(), service.as_deref(), &raw)? {
        Ok(found) => found,
        // -1 with errno comes from librdmacm itself. Other values are the resolver's; some releases
        // store those in errno.
        Err(-1) => return Err(failed(name, last_errno())),
        Err(status) => return Err(failed(name, status)),
    };
    // The fabric's name service may add addresses of the AF_IB family, which are not IP addresses.
    let of_ip = found.into_iter().filter(|found| found.source.is_some() || found.destination.is_some());
    let port_space = hints.port_space;
    Ok(of_ip
        .map(|Found { source, destination, canonical_name }| AddressInfo {
            source,
            destination,
            port_space,
            canonical_name,
        })
        .collect())
}

/// Converts an error code. Resolver codes are negative, error numbers are not.
fn failed(name: String, code: i32) -> Error {
    if code >= 0 {
        return Error::call("rdma_getaddrinfo", name, code);
    }
    Error::NameNotResolved { name, reason: os::resolver_message(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_say_what_they_are_asked_to() {
        let hints = AddressHints::new(PortSpace::Udp).passive(true).ipv4().to_raw(None);
        let raw = hints.raw();
        assert_eq!(raw.ai_flags as u32, sys::RAI_PASSIVE | sys::RAI_FAMILY);
        assert_eq!(raw.ai_family, libc::AF_INET);
        assert_eq!(raw.ai_qp_type as u32, sys::IBV_QPT_UD);
        let mut source = RawAddress::new("[::1]:7".parse().unwrap());
        let hints = AddressHints::new(PortSpace::Tcp).to_raw(Some(&mut source));
        assert_eq!(hints.raw().ai_src_len, 28);
    }

    #[test]
    fn the_resolvers_codes_are_told_from_the_kernels() {
        let unknown = failed("nowhere:1".to_owned(), libc::EAI_NONAME);
        assert!(unknown.to_string().starts_with("nowhere:1 has no address: "), "{unknown}");
        let absent = failed("nowhere:1".to_owned(), libc::ENODEV);
        assert!(matches!(absent, Error::Call { .. }), "{absent}");
    }
}
