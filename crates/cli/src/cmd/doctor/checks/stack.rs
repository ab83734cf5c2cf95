//! What stands between this program and a device: kernel, modules, drivers, nodes, libraries.

use crate::cmd::doctor::finding::{Answer, Finding};
use crate::cmd::doctor::pack::Pack;

/// Whether the kernel speaks RDMA.
pub(super) fn kernel(pack: &Pack) -> Answer {
    const NETLINK: &str = "socket(AF_NETLINK, NETLINK_RDMA)";
    if !pack.devices().is_empty() {
        return Finding::pass("the kernel has RDMA devices").read("/sys/class/infiniband").into();
    }
    match pack.probes.rdma_netlink.get() {
        Ok(true) => Finding::pass("the kernel speaks RDMA").read(NETLINK).into(),
        Ok(false) => {
            Finding::fail("the kernel has no RDMA support").read(NETLINK).fix("modprobe ib_uverbs").into()
        }
        Err(reason) => Finding::unknown(reason).read(NETLINK).into(),
    }
}
