//! Runs the `farreach-verbs` survey of kernel and devices on a pack instead of this host.

use farreach_verbs::system::{Kernel, NodeAccess, Source, Unread};

use crate::pack::{Missing, Pack};

/// Returns the RDMA support of that host's kernel.
pub(crate) fn kernel(pack: &Pack) -> Kernel {
    Kernel::read(pack)
}

/// Returns the driver of an RDMA device, or `None` if sysfs does not state it, as for software
/// devices other than Soft-RoCE.
pub(crate) fn driver(pack: &Pack, device: &str) -> Option<String> {
    Kernel::driver(pack, device)
}

/// Reads the recorded files instead of the host's.
impl Source for Pack {
    fn text(&self, path: &str) -> Result<String, Unread> {
        self.text(path).map(str::to_owned).map_err(|missing| unread(path, &missing))
    }

    fn link_name(&self, path: &str) -> Result<String, Unread> {
        self.link_name(path).map(str::to_owned).map_err(|missing| unread(path, &missing))
    }

    fn names(&self, folder: &str) -> Result<Vec<String>, Unread> {
        let names = self.names(folder);
        if names.is_empty() {
            return Err(unread(folder, &self.why_no_names(folder)));
        }
        Ok(names.into_iter().map(str::to_owned).collect())
    }

    fn has_rdma_netlink(&self) -> Option<bool> {
        self.probes().rdma_netlink.get().ok().copied()
    }

    fn open(&self, node: &str) -> NodeAccess {
        let path = node.into();
        match self.probes().nodes.get() {
            Ok(opened) => match opened.get(node.rsplit('/').next().unwrap_or(node)) {
                Some(None) => NodeAccess::Granted,
                Some(Some(_)) => NodeAccess::Denied(path),
                None => NodeAccess::NoNode(path),
            },
            Err(reason) => NodeAccess::Unknown { path, reason: reason.to_owned() },
        }
    }
}

fn unread(path: &str, missing: &Missing) -> Unread {
    match missing {
        Missing::Absent => Unread::Absent,
        missing => Unread::Unknown(missing.reason(path)),
    }
}
