//! The survey of kernel and devices that `farreach-verbs` makes of this host, made of a pack.

use farreach_verbs::system::{Kernel, NodeAccess, Source, Unread};

use crate::pack::{Missing, Pack};

/// What the kernel of that host has of RDMA.
pub(crate) fn kernel(pack: &Pack) -> Kernel {
    Kernel::read(pack)
}

/// The driver of an RDMA device; none where sysfs does not tell: a software device other than Soft-RoCE.
pub(crate) fn driver(pack: &Pack, device: &str) -> Option<String> {
    Kernel::driver(pack, device)
}

/// What was recorded.
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
