//! Multicast of datagrams.

use std::net::{IpAddr, SocketAddr};

use super::error::Error;
use super::id::CmId;
use crate::address::RawAddress;

/// The role of a member of a multicast group.
///
/// ```
/// use farreach_verbs::cm::Membership;
///
/// assert_ne!(Membership::Full, Membership::SendOnly);
/// ```
#[doc(alias = "rdma_cm_mc_join_flags")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Membership {
    /// Sends and receives.
    Full,
    /// Sends.
    SendOnly,
}

/// Multicast, for ids of [`PortSpace::Udp`](super::PortSpace::Udp) that have a device.
///
/// ```no_run
/// use std::time::{Duration, Instant};
/// use farreach_verbs::cm::{EventChannel, EventKind, Membership, PortSpace};
///
/// let channel = EventChannel::new()?;
/// let id = channel.create_id(PortSpace::Udp)?;
/// id.bind("192.0.2.1:0".parse().unwrap())?;
/// id.join_multicast("239.1.2.3".parse().unwrap(), Membership::Full)?;
/// let joined = channel.wait_event(Instant::now() + Duration::from_secs(2))?;
/// assert_eq!(joined.kind(), EventKind::MulticastJoin);
/// println!("send to {:?}", joined.destination().unwrap().address.gid);
/// # Ok::<(), farreach_verbs::cm::Error>(())
/// ```
impl CmId {
    /// Joins a group: `rdma_join_multicast(3)`.
    ///
    /// A multicast-join event answers, or a multicast error. The event's
    /// [`destination`](super::CmEvent::destination) is the address to send to, and to attach the
    /// queue pair to for receiving.
    #[doc(alias = "rdma_join_multicast")]
    #[doc(alias = "rdma_join_multicast_ex")]
    pub fn join_multicast(&self, group: IpAddr, membership: Membership) -> Result<(), Error> {
        let group = SocketAddr::new(group, 0);
        let mut address = RawAddress::new(group);
        let mut groups = self.groups();
        match membership {
            Membership::Full => {
                self.call_on_device("rdma_join_multicast", |id| id.join_multicast(&mut address))
            }
            Membership::SendOnly => {
                self.call_on_device("rdma_join_multicast_ex", |id| id.join_multicast_ex(&mut address))
            }
        }?;
        groups.push(group);
        Ok(())
    }

    /// Leaves a group: `rdma_leave_multicast(3)`. Dropping the id leaves all groups.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: IpAddr) -> Result<(), Error> {
        let group = SocketAddr::new(group, 0);
        let mut address = RawAddress::new(group);
        let mut groups = self.groups();
        if let Some(place) = groups.iter().position(|joined| *joined == group) {
            groups.swap_remove(place);
        }
        self.call("rdma_leave_multicast", |id| id.leave_multicast(&mut address))
    }
}
