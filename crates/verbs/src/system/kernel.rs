//! What the kernel has of RDMA: the one place that knows where to look for that, and what it means.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::PathBuf;

const DEVICES: &str = "/sys/class/infiniband";
const VERBS: &str = "/sys/class/infiniband_verbs";
const NODES: &str = "/dev/infiniband";

/// Where [`Kernel::read`] reads: this host, or a record of one. Paths are absolute, as on that host.
///
/// ```
/// use farreach_verbs::system::{Kernel, KernelSupport, NodeAccess, Source, Unread};
///
/// /// A host without any RDMA.
/// struct Bare;
///
/// impl Source for Bare {
///     fn text(&self, _path: &str) -> Result<String, Unread> {
///         Err(Unread::Absent)
///     }
///     fn link_name(&self, _path: &str) -> Result<String, Unread> {
///         Err(Unread::Absent)
///     }
///     fn names(&self, _folder: &str) -> Result<Vec<String>, Unread> {
///         Err(Unread::Absent)
///     }
///     fn has_rdma_netlink(&self) -> Option<bool> {
///         Some(false)
///     }
///     fn open(&self, node: &str) -> NodeAccess {
///         NodeAccess::NoNode(node.into())
///     }
/// }
///
/// assert_eq!(Kernel::read(&Bare).support, KernelSupport::NotBuilt);
/// ```
pub trait Source {
    /// The text of a file, without the blanks around it.
    fn text(&self, path: &str) -> Result<String, Unread>;

    /// The last part of where a link leads.
    fn link_name(&self, path: &str) -> Result<String, Unread>;

    /// The names in a folder, in order.
    fn names(&self, folder: &str) -> Result<Vec<String>, Unread>;

    /// Whether the kernel has the netlink family that RDMA devices are listed and made by. None where that is not known.
    fn has_rdma_netlink(&self) -> Option<bool>;

    /// Whether the process can open a device's node.
    fn open(&self, node: &str) -> NodeAccess;
}

/// Why a [`Source`] has nothing to give.
///
/// ```
/// use std::fs;
/// use std::io::ErrorKind;
///
/// use farreach_verbs::system::Unread;
///
/// let unread = fs::read_to_string("/no/such/file").map_err(|error| match error.kind() {
///     ErrorKind::NotFound => Unread::Absent,
///     _ => Unread::Unknown(error.to_string()),
/// });
/// assert_eq!(unread, Err(Unread::Absent));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// It is not there.
    Absent,
    /// It is not known what is there, and why, in words that name it.
    Unknown(String),
}

impl Unread {
    fn reason(self, path: &str) -> String {
        match self {
            Self::Absent => format!("{path} is not there"),
            Self::Unknown(reason) => reason,
        }
    }
}

/// What the kernel has of RDMA, as a [`Source`] tells. Of this host, [`survey`](super::survey) has it.
///
/// ```
/// use farreach_verbs::system::{Kernel, NodeAccess, Source};
///
/// fn openable(source: &impl Source) -> usize {
///     Kernel::read(source).devices.iter().filter(|device| device.access == NodeAccess::Granted).count()
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// Whether it speaks RDMA.
    pub support: KernelSupport,
    /// Its devices, usable or not.
    pub devices: Vec<KernelDevice>,
}

impl Kernel {
    /// Reads it.
    pub fn read(source: &impl Source) -> Self {
        let names = source.names(DEVICES);
        // One that cannot be read is there all the same.
        let support = support(source, names != Err(Unread::Absent));
        let device = |name: String| {
            let (node, access) = access(source, &name);
            KernelDevice { driver: Self::driver(source, &name), name, node, access }
        };
        Self { support, devices: names.unwrap_or_default().into_iter().map(device).collect() }
    }

    /// The driver of a device. None where sysfs does not tell: a software device other than Soft-RoCE.
    pub fn driver(source: &impl Source, device: &str) -> Option<String> {
        // Soft-RoCE alone has this file. It is asked first because older kernels link `device` to the net device's own card.
        if source.text(&format!("{DEVICES}/{device}/parent")).is_ok() {
            return Some("rdma_rxe".to_owned());
        }
        source.link_name(&format!("{DEVICES}/{device}/device/driver")).ok()
    }
}

/// Whether the kernel speaks RDMA.
///
/// ```
/// use farreach_verbs::system::{self, KernelSupport};
///
/// if system::survey().kernel == KernelSupport::NotLoaded {
///     println!("modprobe ib_uverbs");
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KernelSupport {
    /// It does.
    Present,
    /// Its modules are on this host and not loaded.
    NotLoaded,
    /// It was built without, or its modules are not installed.
    NotBuilt,
    /// It could not be read; never so of this host.
    Unknown,
}

/// A device as the kernel shows it, whether libibverbs can use it or not.
///
/// ```
/// for device in farreach_verbs::system::survey().devices {
///     println!("{}: {:?}", device.name, device.access);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelDevice {
    /// Its name in `/sys/class/infiniband`.
    pub name: String,
    /// Its driver, where sysfs tells.
    pub driver: Option<String>,
    /// The name of its node, such as `uverbs0`. None where the kernel offers none.
    pub node: Option<String>,
    /// Whether this process can open it.
    pub access: NodeAccess,
}

/// Whether this process can open a device's node.
///
/// ```
/// use farreach_verbs::system::{self, NodeAccess};
///
/// let survey = system::survey();
/// let usable = survey.devices.iter().filter(|device| device.access == NodeAccess::Granted);
/// println!("{} devices can be opened", usable.count());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeAccess {
    /// It can.
    Granted,
    /// The kernel offers user space no access to it: `ib_uverbs` is not loaded.
    NoUverbs,
    /// The node does not exist.
    NoNode(PathBuf),
    /// The node exists and cannot be opened.
    Denied(PathBuf),
    /// It could not be found out.
    Unknown {
        /// What was to be read.
        path: PathBuf,
        /// Why it was not, in words that name it.
        reason: String,
    },
}

fn support(source: &impl Source, has_devices: bool) -> KernelSupport {
    match source.has_rdma_netlink() {
        Some(true) => return KernelSupport::Present,
        _ if has_devices => return KernelSupport::Present,
        Some(false) => {}
        None => return KernelSupport::Unknown,
    }
    let release = source.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    match source.names(&format!("/lib/modules/{release}/kernel/drivers/infiniband/core")) {
        Ok(_) => KernelSupport::NotLoaded,
        Err(Unread::Absent) => KernelSupport::NotBuilt,
        Err(Unread::Unknown(_)) => KernelSupport::Unknown,
    }
}

/// The node of a device, and whether it opens.
fn access(source: &impl Source, device: &str) -> (Option<String>, NodeAccess) {
    let unknown = |path: &str, unread: Unread| {
        (None, NodeAccess::Unknown { path: path.into(), reason: unread.reason(path) })
    };
    let nodes = match source.names(VERBS) {
        Ok(nodes) => nodes,
        Err(Unread::Absent) => return (None, NodeAccess::NoUverbs),
        Err(unread) => return unknown(VERBS, unread),
    };
    for node in nodes.into_iter().filter(|name| name.starts_with("uverbs")) {
        let path = format!("{VERBS}/{node}/ibdev");
        match source.text(&path) {
            Ok(name) if name == device => {
                let access = source.open(&format!("{NODES}/{node}"));
                return (Some(node), access);
            }
            Ok(_) => {}
            Err(unread) => return unknown(&path, unread),
        }
    }
    (None, NodeAccess::NoUverbs)
}

/// This host; below another folder in tests.
pub(super) struct Host {
    pub(super) root: PathBuf,
    pub(super) has_rdma_netlink: bool,
}

impl Host {
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn unread(path: &str, error: &io::Error) -> Unread {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Unread::Absent,
            _ => Unread::Unknown(format!("{path}: {error}")),
        }
    }
}

impl Source for Host {
    fn text(&self, path: &str) -> Result<String, Unread> {
        let text = fs::read_to_string(self.at(path)).map_err(|error| Self::unread(path, &error))?;
        Ok(text.trim().to_owned())
    }

    fn link_name(&self, path: &str) -> Result<String, Unread> {
        let link = fs::read_link(self.at(path)).map_err(|error| Self::unread(path, &error))?;
        let name = link.file_name().and_then(|name| name.to_str());
        name.map(str::to_owned).ok_or_else(|| Unread::Unknown(format!("{path} leads nowhere")))
    }

    fn names(&self, folder: &str) -> Result<Vec<String>, Unread> {
        let entries = fs::read_dir(self.at(folder)).map_err(|error| Self::unread(folder, &error))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        Ok(names)
    }

    fn has_rdma_netlink(&self) -> Option<bool> {
        Some(self.has_rdma_netlink)
    }

    fn open(&self, node: &str) -> NodeAccess {
        let node = self.at(node);
        // Opening is the only question that rights, capabilities and a container's device rules answer together. A context
        // comes into being later, by a command on the descriptor.
        match OpenOptions::new().read(true).write(true).open(&node) {
            Ok(_) => NodeAccess::Granted,
            Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(&node).is_err() => {
                NodeAccess::NoNode(node)
            }
            Err(_) => NodeAccess::Denied(node),
        }
    }
}
