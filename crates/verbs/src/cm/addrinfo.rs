//! Names to addresses.

use std::ffi::{CStr, CString, c_int};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};

use farreach_verbs_sys as sys;
use farreach_verbs_sys::Rdmacm;

use super::address::{self, RawAddress};
use super::error::Error;
use super::handle::last_errno;
use super::port_space::PortSpace;

/// What [`getaddrinfo`] is to look for.
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
    /// Addresses to connect to, in this port space.
    pub fn new(port_space: PortSpace) -> Self {
        Self { port_space, is_passive: false, is_numeric: false, family: None, source: None }
    }

    /// Whether to look for an address to listen on instead.
    pub fn passive(self, passive: bool) -> Self {
        Self { is_passive: passive, ..self }
    }

    /// Whether the node is a number, not a name: no resolver is asked.
    pub fn numeric_host(self, numeric: bool) -> Self {
        Self { is_numeric: numeric, ..self }
    }

    /// Only addresses of IP version 4.
    pub fn ipv4(self) -> Self {
        Self { family: Some(libc::AF_INET), ..self }
    }

    /// Only addresses of IP version 6.
    pub fn ipv6(self) -> Self {
        Self { family: Some(libc::AF_INET6), ..self }
    }

    /// The local address to connect from.
    pub fn source(self, source: SocketAddr) -> Self {
        Self { source: Some(source), ..self }
    }

    /// For C. `source` outlives the result.
    fn to_raw(&self, source: Option<&mut RawAddress>) -> sys::rdma_addrinfo {
        let flag = |is_set: bool, flag: u32| if is_set { flag as c_int } else { 0 };
        let qp_type = if self.port_space.is_datagram() { sys::IBV_QPT_UD } else { sys::IBV_QPT_RC };
        let mut raw = sys::rdma_addrinfo {
            ai_flags: flag(self.is_passive, sys::RAI_PASSIVE)
                | flag(self.is_numeric, sys::RAI_NUMERICHOST)
                | flag(self.family.is_some(), sys::RAI_FAMILY),
            ai_family: self.family.unwrap_or(0),
            ai_qp_type: qp_type as c_int,
            ai_port_space: self.port_space.raw() as c_int,
            ..Default::default()
        };
        if let Some(source) = source {
            raw.ai_src_len = source.len();
            raw.ai_src_addr = source.as_mut_ptr();
        }
        raw
    }
}

/// An address that a name stands for: of the other side, or to listen on.
///
/// ```no_run
/// use farreach_verbs::cm::{AddressHints, PortSpace, getaddrinfo};
///
/// for found in getaddrinfo(Some("storage-7"), Some("18520"), &AddressHints::new(PortSpace::Tcp))? {
///     println!("connect to {:?}", found.destination);
/// }
/// # Ok::<(), farreach_verbs::cm::Error>(())
/// ```
#[doc(alias = "rdma_addrinfo")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressInfo {
    /// The local address: where to listen, or where to connect from.
    pub source: Option<SocketAddr>,
    /// The other side's address.
    pub destination: Option<SocketAddr>,
    /// The port space that it is good for.
    pub port_space: PortSpace,
    /// The host's full name, if the resolver told.
    pub canonical_name: Option<String>,
}

/// The addresses that a host's name and a service's stand for: `rdma_getaddrinfo(3)`. A service is a port number, or a name of
/// `/etc/services`.
///
/// It asks the system's resolver, which has limits of its own and no deadline. Numbers are answered at once.
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
        return Err(Error::NameNotResolved { name, reason: "a NUL byte is in it".to_owned() });
    };
    let as_ptr = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
    let mut source = hints.source.map(RawAddress::new);
    let raw = hints.to_raw(source.as_mut());
    let mut list = null_mut();
    // SAFETY: the names are `CString`s or null; the hints name `source`, and all three outlive the call, as does `list`.
    let status =
        unsafe { lib.rdma_getaddrinfo(as_ptr(&node), as_ptr(&service), &raw const raw, &raw mut list) }?;
    if status != 0 {
        // -1 and an errno are librdmacm's own; other numbers are the resolver's, which some releases put into errno.
        return Err(failed(name, if status == -1 { last_errno() } else { status }));
    }
    // SAFETY: the call above made the list. It is read, which copies, then freed once, and not used after.
    unsafe {
        let found = read(list, hints.port_space);
        lib.rdma_freeaddrinfo(list)?;
        Ok(found)
    }
}

/// The resolver's codes are negative, error numbers are not.
fn failed(name: String, code: i32) -> Error {
    if code >= 0 {
        return Error::call("rdma_getaddrinfo", name, code);
    }
    // SAFETY: `gai_strerror` has a text for every number, which ends with a NUL and is never freed.
    let reason = unsafe { CStr::from_ptr(libc::gai_strerror(code)) };
    Error::NameNotResolved { name, reason: reason.to_string_lossy().into_owned() }
}

/// # Safety
///
/// The list is one of librdmacm's, or null.
unsafe fn read(list: *const sys::rdma_addrinfo, port_space: PortSpace) -> Vec<AddressInfo> {
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: each entry lives as long as the list, which the caller keeps, and is followed by another or by null.
    while let Some(entry) = unsafe { next.as_ref() } {
        let names = [entry.ai_dst_canonname, entry.ai_src_canonname];
        // SAFETY: each address of an entry is null, or as long as its family says; each name is null, or ends with a NUL.
        let (source, destination, names) = unsafe {
            let names = names.map(|name| (!name.is_null()).then(|| CStr::from_ptr(name)));
            (address::read(entry.ai_src_addr), address::read(entry.ai_dst_addr), names)
        };
        next = entry.ai_next;
        // Addresses of InfiniBand's own family, which a name service of the fabric adds, are not ones of IP.
        if source.is_some() || destination.is_some() {
            let canonical_name = names.into_iter().flatten().next();
            let canonical_name = canonical_name.map(|name| name.to_string_lossy().into_owned());
            found.push(AddressInfo { source, destination, port_space, canonical_name });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_say_what_they_are_asked_to() {
        let raw = AddressHints::new(PortSpace::Udp).passive(true).ipv4().to_raw(None);
        assert_eq!(raw.ai_flags as u32, sys::RAI_PASSIVE | sys::RAI_FAMILY);
        assert_eq!(raw.ai_family, libc::AF_INET);
        assert_eq!(raw.ai_qp_type as u32, sys::IBV_QPT_UD);
        let mut source = RawAddress::new("[::1]:7".parse().unwrap());
        let raw = AddressHints::new(PortSpace::Tcp).to_raw(Some(&mut source));
        assert_eq!(raw.ai_src_len, 28);
    }

    #[test]
    fn the_resolvers_codes_are_told_from_the_kernels() {
        let unknown = failed("nowhere:1".to_owned(), libc::EAI_NONAME);
        assert!(unknown.to_string().starts_with("nowhere:1 has no address: "), "{unknown}");
        let absent = failed("nowhere:1".to_owned(), libc::ENODEV);
        assert!(matches!(absent, Error::Call { .. }), "{absent}");
    }

    #[test]
    fn a_list_is_read_to_its_end() {
        let mut address = RawAddress::new("192.0.2.7:5".parse().unwrap());
        let last = sys::rdma_addrinfo { ai_dst_addr: address.as_mut_ptr(), ..Default::default() };
        let first = sys::rdma_addrinfo { ai_next: (&raw const last).cast_mut(), ..Default::default() };
        // SAFETY: two entries that live, one of them empty.
        let found = unsafe { read(&raw const first, PortSpace::Tcp) };
        assert_eq!(found.len(), 1, "the first has no address of IP");
        assert_eq!(found[0].destination, Some("192.0.2.7:5".parse().unwrap()));
    }
}
