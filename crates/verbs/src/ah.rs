//! Addresses of ports, and address handles, which give datagrams their destination.

use std::fmt;
use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use farreach_verbs_sys as sys;

use crate::error::Error;
use crate::handle::Owned;
use crate::pd::ProtectionDomain;

/// A global identifier: the 16 bytes that name a port in InfiniBand and RoCE, written like an IPv6
/// address.
///
/// On RoCE it is an IP address of the port's net device.
///
/// ```
/// use std::net::{IpAddr, Ipv4Addr};
/// use farreach_verbs::ah::Gid;
///
/// let gid: Gid = "::ffff:192.0.2.7".parse()?;
/// assert_eq!(gid.ip(), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7)));
/// assert_eq!(gid.to_string(), "::ffff:192.0.2.7");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[doc(alias = "ibv_gid")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid([u8; 16]);

impl Gid {
    /// Creates a GID from bytes in network order.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes in network order.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns the subnet prefix, the upper 64 bits.
    pub fn subnet_prefix(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// Returns the interface identifier, the lower 64 bits.
    pub fn interface_id(self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }

    /// Returns the GID as an IP address: an IPv4 address if it is a mapped one (`::ffff:a.b.c.d`).
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }

    /// Returns `true` for the GID of an empty table entry.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// Returns `true` if the GID is valid on its own link only (`fe80::/10`), such as the default
    /// GID of every port.
    pub fn is_link_local(self) -> bool {
        Ipv6Addr::from(self.0).is_unicast_link_local()
    }
}

impl From<sys::ibv_gid> for Gid {
    fn from(gid: sys::ibv_gid) -> Self {
        // SAFETY: all fields of the union cover the same 16 bytes, and any bytes are valid.
        Self(unsafe { gid.raw })
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl From<Ipv4Addr> for Gid {
    /// Converts to the IPv4-mapped form, which RoCE uses.
    fn from(address: Ipv4Addr) -> Self {
        address.to_ipv6_mapped().into()
    }
}

impl FromStr for Gid {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<Ipv6Addr>().map(Self::from)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// A local identifier: the address that the subnet manager gives a port within its InfiniBand
/// subnet. It is 0 on Ethernet.
///
/// ```
/// use farreach_verbs::ah::Lid;
///
/// assert_eq!(Lid(0x1f).to_string(), "31");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lid(pub u16);

impl fmt::Display for Lid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The 64-bit identifier that a vendor gives a device.
///
/// ```
/// use farreach_verbs::ah::Guid;
///
/// assert_eq!(Guid(0x0002_c903_0000_1f2a).to_string(), "0002:c903:0000:1f2a");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(pub u64);

impl Guid {
    pub(crate) fn from_be(guid: u64) -> Self {
        Self(u64::from_be(guid))
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |shift: u32| (self.0 >> shift) as u16;
        write!(f, "{:04x}:{:04x}:{:04x}:{:04x}", part(48), part(32), part(16), part(0))
    }
}

c_enum! {
    /// The type of a GID table entry, which selects the packet format of the queue pairs that use
    /// it.
    ///
    /// ```
    /// use farreach_verbs::ah::GidType;
    ///
    /// assert_eq!(GidType::RoceV2.to_string(), "RoCE v2");
    /// ```
    #[doc(alias = "ibv_gid_type")]
    pub enum GidType(u32) {
        /// InfiniBand.
        Ib = sys::IBV_GID_TYPE_IB, "IB";
        /// RoCE in Ethernet frames, which routers do not forward.
        RoceV1 = sys::IBV_GID_TYPE_ROCE_V1, "RoCE v1";
        /// RoCE over UDP.
        RoceV2 = sys::IBV_GID_TYPE_ROCE_V2, "RoCE v2";
    }
}

/// The net device behind a GID.
///
/// ```
/// use farreach_verbs::ah::NetDevice;
///
/// let net = NetDevice { index: 2, name: Some("eth0".to_owned()) };
/// assert_eq!(net.to_string(), "eth0");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetDevice {
    /// The interface index, in the network namespace of the interface.
    pub index: u32,
    /// The name, if the kernel reports it.
    pub name: Option<String>,
}

impl fmt::Display for NetDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.pad(name),
            None => f.pad(&format!("index {}", self.index)),
        }
    }
}

/// A used entry of a port's GID table. See
/// [`Context::gid_table`](crate::context::Context::gid_table).
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// for entry in context.gid_table(1)? {
///     println!("{}: {} {}", entry.index, entry.gid, entry.gid_type);
/// }
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_gid_entry")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The index in the table, by which a queue pair names the entry.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// The packet format.
    pub gid_type: GidType,
    /// On RoCE, the net device that sends the packets.
    pub net_device: Option<NetDevice>,
}

impl GidEntry {
    /// Creates an entry of a table that was read elsewhere, such as from sysfs or on another host.
    pub fn new(index: u32, gid: Gid, gid_type: GidType, net_device: Option<NetDevice>) -> Self {
        Self { index, gid, gid_type, net_device }
    }

    /// Returns the IP address of a RoCE GID. An InfiniBand GID is not an IP address.
    pub fn address(&self) -> Option<IpAddr> {
        match self.gid_type {
            GidType::RoceV1 | GidType::RoceV2 => Some(self.gid.ip()),
            GidType::Ib | GidType::Unknown(_) => None,
        }
    }
}

/// The path to a peer's port.
///
/// ```
/// use farreach_verbs::ah::AddressAttributes;
///
/// let peer = "::ffff:192.0.2.2".parse()?;
/// let path = AddressAttributes { gid_index: 1, ..AddressAttributes::to_gid(1, peer) };
/// assert_eq!(path.hop_limit, 64);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[doc(alias = "ibv_ah_attr")]
#[doc(alias = "ibv_global_route")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressAttributes {
    /// The local port.
    pub port: u8,
    /// The peer's GID, if packets carry a global route header. RoCE always needs it.
    pub gid: Option<Gid>,
    /// The index of the local GID in the port's table.
    pub gid_index: u8,
    /// The peer's address within an InfiniBand subnet.
    pub lid: Lid,
    /// The service level, which selects a virtual lane through an InfiniBand subnet.
    pub service_level: u8,
    /// The traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub traffic_class: u8,
    /// The flow label, by which routers may distribute packets: 20 bits.
    pub flow_label: u32,
    /// The maximum number of routers that a packet may pass.
    pub hop_limit: u8,
}

impl AddressAttributes {
    /// Creates a path to a GID, by this port, with GID index 0. Index 0 is rarely the right one.
    pub fn to_gid(port: u8, gid: Gid) -> Self {
        Self {
            port,
            gid: Some(gid),
            gid_index: 0,
            lid: Lid(0),
            service_level: 0,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
        }
    }

    pub(crate) fn to_raw(self) -> sys::ibv_ah_attr {
        sys::ibv_ah_attr {
            grh: sys::ibv_global_route {
                dgid: sys::ibv_gid { raw: self.gid.unwrap_or(Gid([0; 16])).0 },
                flow_label: self.flow_label,
                sgid_index: self.gid_index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
            },
            dlid: self.lid.0,
            sl: self.service_level,
            is_global: self.gid.is_some().into(),
            port_num: self.port,
            ..Default::default()
        }
    }
}

/// An address handle: the destination of a datagram. It must live until the datagram's completion,
/// so the work request holds a clone.
///
/// ```no_run
/// # use farreach_verbs::device::DeviceList;
/// use farreach_verbs::ah::AddressAttributes;
///
/// # let context = DeviceList::get()?.iter().next().unwrap().open()?;
/// # let pd = context.alloc_pd()?;
/// let peer = "::ffff:192.0.2.2".parse().unwrap();
/// let gid_index = context.choose_gid(1, Some(peer))?.entry.index as u8;
/// let ah = pd.create_ah(&AddressAttributes { gid_index, ..AddressAttributes::to_gid(1, peer) })?;
/// # Ok::<(), farreach_verbs::Error>(())
/// ```
#[doc(alias = "ibv_ah")]
#[doc(alias = "ibv_destroy_ah")]
#[derive(Clone)]
pub struct AddressHandle(Arc<Owned<sys::ibv_ah, ProtectionDomain>>);

impl ProtectionDomain {
    /// Creates an address handle: `ibv_create_ah(3)`.
    #[doc(alias = "ibv_create_ah")]
    pub fn create_ah(&self, attributes: &AddressAttributes) -> Result<AddressHandle, Error> {
        let mut attr = attributes.to_raw();
        let ah = Owned::create_ah(self, &mut attr)?;
        Ok(AddressHandle(Arc::new(ah.ok_or_else(|| self.context().failed("ibv_create_ah"))?)))
    }

    /// Creates an address handle for the sender of a received datagram: `ibv_create_ah_from_wc(3)`.
    /// `header` is the global route header in front of the datagram in its buffer.
    #[doc(alias = "ibv_create_ah_from_wc")]
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn create_ah_from_wc(
        &self,
        port: u8,
        completion: &sys::ibv_wc,
        header: &[u8; GRH_BYTES],
    ) -> Result<AddressHandle, Error> {
        let ah = Owned::create_ah_from_wc(self, *completion, header, port)?;
        Ok(AddressHandle(Arc::new(ah.ok_or_else(|| self.context().failed("ibv_create_ah_from_wc"))?)))
    }
}

/// The number of bytes in front of a datagram in its buffer that are reserved for the global route
/// header.
pub const GRH_BYTES: usize = 40;

impl AddressHandle {
    /// Returns the protection domain.
    pub fn pd(&self) -> &ProtectionDomain {
        self.0.parents()
    }

    /// Returns the C object. It is valid while `self` or a clone lives.
    pub fn as_raw(&self) -> *mut sys::ibv_ah {
        self.0.as_ptr()
    }
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressHandle")
            .field("device", &self.pd().context().device().name())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_reads_and_writes_as_sysfs_and_people_do() {
        let written_out: Gid = "fe80:0000:0000:0000:b0a5:33ff:fe54:7ab1".parse().unwrap();
        assert_eq!(written_out.to_string(), "fe80::b0a5:33ff:fe54:7ab1");
        assert_eq!(written_out.subnet_prefix(), 0xfe80_0000_0000_0000);
        assert_eq!(written_out.interface_id(), 0xb0a5_33ff_fe54_7ab1);
        assert!(written_out.is_link_local());
        assert!("10.0.0.1".parse::<Gid>().is_err());
        assert!("fe80::1::2".parse::<Gid>().is_err());
    }

    #[test]
    fn a_mapped_gid_is_a_version_4_address() {
        let gid = Gid::from(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(gid.to_bytes()[10..], [0xff, 0xff, 10, 0, 0, 1]);
        assert_eq!(gid.ip(), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        assert!(!gid.is_link_local() && !gid.is_zero());
        assert!(Gid::from_bytes([0; 16]).is_zero());
    }

    #[test]
    fn an_infiniband_gid_is_no_ip_address() {
        let mut entry =
            GidEntry { index: 0, gid: Ipv6Addr::LOCALHOST.into(), gid_type: GidType::Ib, net_device: None };
        assert_eq!(entry.address(), None);
        entry.gid_type = GidType::from_raw(2);
        assert_eq!(entry.address(), Some(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        assert_eq!(GidType::from_raw(9), GidType::Unknown(9));
        assert_eq!(GidType::Unknown(9).to_string(), "unknown (9)");
        assert_eq!(GidType::Unknown(9).raw(), 9);
    }
}
