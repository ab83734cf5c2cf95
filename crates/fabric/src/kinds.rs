//! Enumerations of libfabric: endpoint types, protocols, address formats, progress, threading. Each
//! keeps values that it has no name for.

use std::fmt;

use farreach_fabric_sys as sys;

/// Declares an enumeration of C that may grow: the named values, and `Other` for the rest.
macro_rules! kind {
    (
        $(#[$meta:meta])*
        $Kind:ident {
            $($(#[$variant_meta:meta])* $Variant:ident = $c:ident, $text:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $Kind {
            $($(#[$variant_meta])* $Variant,)*
            /// A value without a name in this crate, with libfabric's number.
            Other(u32),
        }

        impl $Kind {
            pub(crate) fn from_c(value: u32) -> Self {
                match value {
                    $(sys::$c => Self::$Variant,)*
                    other => Self::Other(other),
                }
            }

            #[allow(dead_code, reason = "not every kind can be queried yet")]
            pub(crate) fn to_c(self) -> u32 {
                match self {
                    $(Self::$Variant => sys::$c,)*
                    Self::Other(other) => other,
                }
            }
        }

        impl fmt::Display for $Kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$Variant => f.pad($text),)*
                    Self::Other(other) => f.pad(&format!("#{other}")),
                }
            }
        }
    };
}

kind! {
    /// The type of an endpoint: `fi_endpoint(3)`.
    ///
    /// ```
    /// use farreach_fabric::EndpointType;
    ///
    /// assert_eq!(EndpointType::ReliableDatagram.to_string(), "rdm");
    /// ```
    EndpointType {
        /// Not stated.
        #[doc(alias = "FI_EP_UNSPEC")]
        Unspecified = FI_EP_UNSPEC, "unspecified";
        /// Connected, reliable.
        #[doc(alias = "FI_EP_MSG")]
        Message = FI_EP_MSG, "msg";
        /// Not connected, not reliable.
        #[doc(alias = "FI_EP_DGRAM")]
        Datagram = FI_EP_DGRAM, "dgram";
        /// Not connected, reliable.
        #[doc(alias = "FI_EP_RDM")]
        ReliableDatagram = FI_EP_RDM, "rdm";
        /// A byte stream; removed in 2.x.
        #[doc(alias = "FI_EP_SOCK_STREAM")]
        SocketStream = FI_EP_SOCK_STREAM, "sock_stream";
        /// Datagrams of a socket; removed in 2.x.
        #[doc(alias = "FI_EP_SOCK_DGRAM")]
        SocketDatagram = FI_EP_SOCK_DGRAM, "sock_dgram";
    }
}

kind! {
    /// The format of an address: `fi_getinfo(3)`, under `addr_format`.
    ///
    /// ```
    /// use farreach_fabric::AddressFormat;
    ///
    /// assert_eq!(AddressFormat::Efa.to_string(), "efa");
    /// ```
    AddressFormat {
        /// Known only to the provider.
        #[doc(alias = "FI_FORMAT_UNSPEC")]
        Unspecified = FI_FORMAT_UNSPEC, "unspecified";
        /// A socket address of any family.
        #[doc(alias = "FI_SOCKADDR")]
        Socket = FI_SOCKADDR, "sockaddr";
        /// An IPv4 socket address.
        #[doc(alias = "FI_SOCKADDR_IN")]
        Ipv4 = FI_SOCKADDR_IN, "ipv4";
        /// An IPv6 socket address.
        #[doc(alias = "FI_SOCKADDR_IN6")]
        Ipv6 = FI_SOCKADDR_IN6, "ipv6";
        /// An InfiniBand socket address.
        #[doc(alias = "FI_SOCKADDR_IB")]
        Infiniband = FI_SOCKADDR_IB, "ib";
        /// Text.
        #[doc(alias = "FI_ADDR_STR")]
        Text = FI_ADDR_STR, "text";
        /// PSM2 of Omni-Path.
        #[doc(alias = "FI_ADDR_PSMX2")]
        Psm2 = FI_ADDR_PSMX2, "psm2";
        /// PSM3.
        #[doc(alias = "FI_ADDR_PSMX3")]
        Psm3 = FI_ADDR_PSMX3, "psm3";
        /// An unreliable datagram queue pair of InfiniBand.
        #[doc(alias = "FI_ADDR_IB_UD")]
        InfinibandUd = FI_ADDR_IB_UD, "ib_ud";
        /// AWS EFA.
        #[doc(alias = "FI_ADDR_EFA")]
        Efa = FI_ADDR_EFA, "efa";
        /// OPX of Omni-Path.
        #[doc(alias = "FI_ADDR_OPX")]
        Opx = FI_ADDR_OPX, "opx";
        /// CXI of Slingshot.
        #[doc(alias = "FI_ADDR_CXI")]
        Cxi = FI_ADDR_CXI, "cxi";
        /// UCX.
        #[doc(alias = "FI_ADDR_UCX")]
        Ucx = FI_ADDR_UCX, "ucx";
    }
}

impl AddressFormat {
    /// Returns `true` if its addresses are texts of varying length.
    pub(crate) fn is_text(self) -> bool {
        self == Self::Text
    }
}

kind! {
    /// The protocol between two endpoints: `fi_endpoint(3)`, under `protocol`.
    ///
    /// ```
    /// use farreach_fabric::Protocol;
    ///
    /// assert_eq!(Protocol::Efa.to_string(), "efa");
    /// ```
    Protocol {
        /// Known only to the provider.
        #[doc(alias = "FI_PROTO_UNSPEC")]
        Unspecified = FI_PROTO_UNSPEC, "unspecified";
        /// InfiniBand or RoCE, reliable connected, by the connection manager.
        #[doc(alias = "FI_PROTO_RDMA_CM_IB_RC")]
        RdmaCmIbRc = FI_PROTO_RDMA_CM_IB_RC, "rdma_cm_ib_rc";
        /// iWARP.
        #[doc(alias = "FI_PROTO_IWARP")]
        Iwarp = FI_PROTO_IWARP, "iwarp";
        /// InfiniBand or RoCE, unreliable datagram.
        #[doc(alias = "FI_PROTO_IB_UD")]
        IbUd = FI_PROTO_IB_UD, "ib_ud";
        /// PSM of True Scale.
        #[doc(alias = "FI_PROTO_PSMX")]
        Psm = FI_PROTO_PSMX, "psm";
        /// UDP.
        #[doc(alias = "FI_PROTO_UDP")]
        Udp = FI_PROTO_UDP, "udp";
        /// TCP, with the framing of the tcp provider's connected endpoints.
        #[doc(alias = "FI_PROTO_SOCK_TCP")]
        SockTcp = FI_PROTO_SOCK_TCP, "sock_tcp";
        /// iWARP, reliable datagram.
        #[doc(alias = "FI_PROTO_IWARP_RDM")]
        IwarpRdm = FI_PROTO_IWARP_RDM, "iwarp_rdm";
        /// InfiniBand, reliable datagram.
        #[doc(alias = "FI_PROTO_IB_RDM")]
        IbRdm = FI_PROTO_IB_RDM, "ib_rdm";
        /// Reliable datagrams over connections.
        #[doc(alias = "FI_PROTO_RXM")]
        Rxm = FI_PROTO_RXM, "rxm";
        /// Reliable datagrams over datagrams.
        #[doc(alias = "FI_PROTO_RXD")]
        Rxd = FI_PROTO_RXD, "rxd";
        /// UCX of Mellanox.
        #[doc(alias = "FI_PROTO_MLX")]
        Mlx = FI_PROTO_MLX, "mlx";
        /// PSM2 of Omni-Path.
        #[doc(alias = "FI_PROTO_PSMX2")]
        Psm2 = FI_PROTO_PSMX2, "psm2";
        /// Shared memory of processes on one host.
        #[doc(alias = "FI_PROTO_SHM")]
        Shm = FI_PROTO_SHM, "shm";
        /// Several rails.
        #[doc(alias = "FI_PROTO_MRAIL")]
        Mrail = FI_PROTO_MRAIL, "mrail";
        /// InfiniBand, extended reliable connected.
        #[doc(alias = "FI_PROTO_RDMA_CM_IB_XRC")]
        RdmaCmIbXrc = FI_PROTO_RDMA_CM_IB_XRC, "rdma_cm_ib_xrc";
        /// AWS EFA.
        #[doc(alias = "FI_PROTO_EFA")]
        Efa = FI_PROTO_EFA, "efa";
        /// PSM3.
        #[doc(alias = "FI_PROTO_PSMX3")]
        Psm3 = FI_PROTO_PSMX3, "psm3";
        /// Reliable datagrams over the tcp provider's connections.
        #[doc(alias = "FI_PROTO_RXM_TCP")]
        RxmTcp = FI_PROTO_RXM_TCP, "rxm_tcp";
        /// OPX of Omni-Path.
        #[doc(alias = "FI_PROTO_OPX")]
        Opx = FI_PROTO_OPX, "opx";
        /// CXI of Slingshot.
        #[doc(alias = "FI_PROTO_CXI")]
        Cxi = FI_PROTO_CXI, "cxi";
        /// Reliable datagrams of the net provider, which is tcp in 2.x.
        #[doc(alias = "FI_PROTO_XNET")]
        Xnet = FI_PROTO_XNET, "xnet";
        /// Collective operations.
        #[doc(alias = "FI_PROTO_COLL")]
        Coll = FI_PROTO_COLL, "coll";
        /// UCX.
        #[doc(alias = "FI_PROTO_UCX")]
        Ucx = FI_PROTO_UCX, "ucx";
        /// Shared memory of processes on one host, second design.
        #[doc(alias = "FI_PROTO_SM2")]
        Sm2 = FI_PROTO_SM2, "sm2";
        /// CXI of Slingshot, without receiver credits.
        #[doc(alias = "FI_PROTO_CXI_RNR")]
        CxiRnr = FI_PROTO_CXI_RNR, "cxi_rnr";
        /// The protocol of the lpp provider.
        #[doc(alias = "FI_PROTO_LPP")]
        Lpp = FI_PROTO_LPP, "lpp";
        /// Several providers as one.
        #[doc(alias = "FI_PROTO_LNX")]
        Lnx = FI_PROTO_LNX, "lnx";
    }
}

kind! {
    /// The progress model: `fi_domain(3)`, under Progress.
    ///
    /// ```
    /// use farreach_fabric::Progress;
    ///
    /// assert_eq!(Progress::Manual.to_string(), "manual");
    /// ```
    Progress {
        /// Not stated.
        #[doc(alias = "FI_PROGRESS_UNSPEC")]
        Unspecified = FI_PROGRESS_UNSPEC, "unspecified";
        /// The provider makes progress by itself. The tcp provider reports this, but lands data
        /// only while its user polls.
        #[doc(alias = "FI_PROGRESS_AUTO")]
        Auto = FI_PROGRESS_AUTO, "auto";
        /// The user makes progress by polling.
        #[doc(alias = "FI_PROGRESS_MANUAL")]
        Manual = FI_PROGRESS_MANUAL, "manual";
        /// The user makes progress, and polling for data also serves control; 2.x.
        #[doc(alias = "FI_PROGRESS_CONTROL_UNIFIED")]
        ControlUnified = FI_PROGRESS_CONTROL_UNIFIED, "control_unified";
    }
}

kind! {
    /// The calls that may be made from several threads at once: `fi_domain(3)`, under Threading.
    ///
    /// ```
    /// use farreach_fabric::Threading;
    ///
    /// assert_eq!(Threading::Safe.to_string(), "safe");
    /// ```
    Threading {
        /// Not stated.
        #[doc(alias = "FI_THREAD_UNSPEC")]
        Unspecified = FI_THREAD_UNSPEC, "unspecified";
        /// All calls.
        #[doc(alias = "FI_THREAD_SAFE")]
        Safe = FI_THREAD_SAFE, "safe";
        /// One thread at a time for each object.
        #[doc(alias = "FI_THREAD_FID")]
        Fid = FI_THREAD_FID, "fid";
        /// One thread at a time for a domain and everything in it.
        #[doc(alias = "FI_THREAD_DOMAIN")]
        Domain = FI_THREAD_DOMAIN, "domain";
        /// One thread at a time for a queue and everything that completes there.
        #[doc(alias = "FI_THREAD_COMPLETION")]
        Completion = FI_THREAD_COMPLETION, "completion";
        /// One thread at a time for each endpoint.
        #[doc(alias = "FI_THREAD_ENDPOINT")]
        Endpoint = FI_THREAD_ENDPOINT, "endpoint";
    }
}

kind! {
    /// Whether the provider prevents queues from overrunning: `fi_domain(3)`, under Resource
    /// Management.
    ///
    /// ```
    /// use farreach_fabric::ResourceManagement;
    ///
    /// assert_eq!(ResourceManagement::Enabled.to_string(), "enabled");
    /// ```
    ResourceManagement {
        /// Not stated.
        #[doc(alias = "FI_RM_UNSPEC")]
        Unspecified = FI_RM_UNSPEC, "unspecified";
        /// The user prevents it.
        #[doc(alias = "FI_RM_DISABLED")]
        Disabled = FI_RM_DISABLED, "disabled";
        /// The provider prevents it.
        #[doc(alias = "FI_RM_ENABLED")]
        Enabled = FI_RM_ENABLED, "enabled";
    }
}

kind! {
    /// The traffic class: `fi_endpoint(3)`, under Traffic Class.
    ///
    /// ```
    /// use farreach_fabric::TrafficClass;
    ///
    /// assert_eq!(TrafficClass::LowLatency.to_string(), "low_latency");
    /// assert_ne!(TrafficClass::dscp(46), Some(TrafficClass::LowLatency));
    /// ```
    TrafficClass {
        /// Not stated.
        #[doc(alias = "FI_TC_UNSPEC")]
        Unspecified = FI_TC_UNSPEC, "unspecified";
        /// The default class of most traffic.
        #[doc(alias = "FI_TC_BEST_EFFORT")]
        BestEffort = FI_TC_BEST_EFFORT, "best_effort";
        /// Short and urgent traffic.
        #[doc(alias = "FI_TC_LOW_LATENCY")]
        LowLatency = FI_TC_LOW_LATENCY, "low_latency";
        /// The highest priority.
        #[doc(alias = "FI_TC_DEDICATED_ACCESS")]
        DedicatedAccess = FI_TC_DEDICATED_ACCESS, "dedicated_access";
        /// Large transfers that are not urgent.
        #[doc(alias = "FI_TC_BULK_DATA")]
        BulkData = FI_TC_BULK_DATA, "bulk_data";
        /// The lowest priority: bandwidth that others leave.
        #[doc(alias = "FI_TC_SCAVENGER")]
        Scavenger = FI_TC_SCAVENGER, "scavenger";
        /// Control traffic of the network itself.
        #[doc(alias = "FI_TC_NETWORK_CTRL")]
        NetworkControl = FI_TC_NETWORK_CTRL, "network_control";
    }
}

impl TrafficClass {
    /// Returns the class of a DSCP code point, which has six bits. Returns `None` if it does not
    /// fit.
    #[doc(alias = "FI_TC_DSCP")]
    pub fn dscp(code_point: u8) -> Option<Self> {
        (code_point < 64).then_some(Self::Other(sys::FI_TC_DSCP | u32::from(code_point)))
    }
}

kind! {
    /// The state of a card's port: `fi_nic(3)`.
    ///
    /// ```
    /// use farreach_fabric::LinkState;
    ///
    /// assert_eq!(LinkState::Up.to_string(), "up");
    /// ```
    LinkState {
        /// Unknown.
        #[doc(alias = "FI_LINK_UNKNOWN")]
        Unknown = FI_LINK_UNKNOWN, "unknown";
        /// Down.
        #[doc(alias = "FI_LINK_DOWN")]
        Down = FI_LINK_DOWN, "down";
        /// Up.
        #[doc(alias = "FI_LINK_UP")]
        Up = FI_LINK_UP, "up";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_kept() {
        assert_eq!(EndpointType::from_c(3), EndpointType::ReliableDatagram);
        assert_eq!(EndpointType::from_c(77), EndpointType::Other(77));
        assert_eq!(EndpointType::Other(77).to_c(), 77);
        assert_eq!(Protocol::from_c(999).to_string(), "#999");
        assert_eq!(format!("{:>8}|", Progress::Auto), "    auto|");
    }
}
