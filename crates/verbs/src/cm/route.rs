//! The route to the peer.

use farreach_verbs_sys as sys;

use super::id::CmId;
use crate::ah::{Gid, Lid};
use crate::port::Mtu;

/// The route to the peer, once it is resolved: [`CmId::route`].
///
/// ```no_run
/// # fn show(id: &farreach_verbs::cm::CmId) {
/// let route = id.route();
/// println!("from {} to {}", route.source_gid, route.destination_gid);
/// for path in &route.paths {
///     println!("MTU {}, traffic class {}", path.mtu, path.traffic_class);
/// }
/// # }
/// ```
#[doc(alias = "rdma_route")]
#[doc(alias = "rdma_ib_addr")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The GID that packets are sent from. Zeroes before the address is resolved.
    pub source_gid: Gid,
    /// The GID that packets are sent to.
    pub destination_gid: Gid,
    /// The partition key.
    pub pkey: u16,
    /// The paths. Empty before the route is resolved.
    pub paths: Vec<Path>,
}

/// A path of a [`Route`].
///
/// ```no_run
/// # fn show(id: &farreach_verbs::cm::CmId) {
/// let path = &id.route().paths[0];
/// println!("{} hops at most, service level {}", path.hop_limit, path.service_level);
/// # }
/// ```
#[doc(alias = "ibv_sa_path_rec")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Path {
    /// The source GID.
    pub source_gid: Gid,
    /// The destination GID.
    pub destination_gid: Gid,
    /// The source address within an InfiniBand subnet.
    pub source_lid: Lid,
    /// The destination address within an InfiniBand subnet.
    pub destination_lid: Lid,
    /// The largest payload of a packet.
    pub mtu: Mtu,
    /// The traffic class: on RoCE v2 the type of service.
    pub traffic_class: u8,
    /// The service level.
    pub service_level: u8,
    /// The maximum number of routers on the path.
    pub hop_limit: u8,
    /// The flow label.
    pub flow_label: u32,
    /// The partition key.
    pub pkey: u16,
    /// The lifetime of a packet: 4.096 µs × 2^value.
    pub packet_life_time: u8,
}

impl From<&sys::ibv_sa_path_rec> for Path {
    fn from(raw: &sys::ibv_sa_path_rec) -> Self {
        Self {
            source_gid: raw.sgid.into(),
            destination_gid: raw.dgid.into(),
            source_lid: Lid(u16::from_be(raw.slid)),
            destination_lid: Lid(u16::from_be(raw.dlid)),
            mtu: Mtu::from_raw(raw.mtu.into()),
            traffic_class: raw.traffic_class,
            service_level: raw.sl,
            hop_limit: raw.hop_limit,
            flow_label: u32::from_be(raw.flow_label),
            pkey: u16::from_be(raw.pkey),
            packet_life_time: raw.packet_life_time,
        }
    }
}

impl CmId {
    /// Returns the route to the peer, as far as it is resolved.
    pub fn route(&self) -> Route {
        let (address, paths) = self.inner().enter(|id| id.route());
        Route {
            source_gid: address.sgid.into(),
            destination_gid: address.dgid.into(),
            pkey: u16::from_be(address.pkey),
            paths: paths.iter().map(Path::from).collect(),
        }
    }
}
