//! Port spaces: which kind of connection a port number stands for.

use farreach_verbs_sys as sys;

/// Which kind of connection: a port of one space is another port in each other space.
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
    /// Reliable connections. Not TCP: the name says that it is connected, and that ports count as TCP's do.
    Tcp,
    /// Datagrams, and multicast.
    Udp,
    /// InfiniBand's own services.
    Ib,
}

impl PortSpace {
    /// Whether its queue pairs are of datagrams: connecting then only tells where to send them.
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
