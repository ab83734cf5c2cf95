//! Port spaces: the kind of connection that a port number refers to.

use farreach_verbs_sys as sys;

/// The kind of connection. Each space has port numbers of its own.
///
/// | space | queue pairs | private data of connect, accept, reject |
/// |---|---|---|
/// | `Tcp` | RC, UC, XRC | 56, 196, 148 bytes |
/// | `Udp` | UD | 180, 136, 136 bytes |
/// | `Ib` | any | as `Tcp`, over IP addresses |
///
/// ```
/// use farreach_verbs::cm::PortSpace;
///
/// assert_eq!(PortSpace::Tcp.connect_data_max(), 56);
/// assert!(PortSpace::Udp.is_datagram());
/// ```
#[doc(alias = "rdma_port_space")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortSpace {
    /// Reliable connections. It is not TCP: the name means that it is connected, and that ports are
    /// numbered as in TCP.
    Tcp,
    /// Datagrams and multicast.
    Udp,
    /// InfiniBand's own services.
    Ib,
}

impl PortSpace {
    /// Returns `true` if its queue pairs send datagrams. Connecting then only exchanges the
    /// destination.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Udp)
    }

    pub(super) const fn raw(self) -> sys::rdma_port_space {
        match self {
            Self::Tcp => sys::RDMA_PS_TCP,
            Self::Udp => sys::RDMA_PS_UDP,
            Self::Ib => sys::RDMA_PS_IB,
        }
    }
}
