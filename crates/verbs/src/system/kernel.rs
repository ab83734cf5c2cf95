//! The kernel's RDMA support and devices: the one place that knows where to read them, and what they
//! mean.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::PathBuf;

const DEVICES: &str = "/sys/class/infiniband";
const VERBS: &str = "/sys/class/infiniband_verbs";
const NODES: &str = "/dev/infiniband";

/// The host that [`Kernel::read`] reads: this one, or a record of another. Paths are absolute, as on
/// that host.
///
/// ```
/// use farreach_verbs::system::{Kernel, KernelSupport, NodeAccess, Source, Unread};
///
/// /// A host without RDMA.
/// struct Nothing;
///
/// impl Source for Nothing {
///     fn text(&self, _: &str) -> Result<String, Unread> {
///         Err(Unread::Absent)
///     }
///     fn link_name(&self, _: &str) -> Result<String, Unread> {
///         Err(Unread::Absent)
///     }
///     fn names(&self, _: &str) -> Result<Vec<String>, Unread> {
///         Err(Unread::Absent)
///     }
///     fn has_rdma_netlink(&self) -> Option<bool> {
///         Some(false)
///     }
///     fn open(&self, _: &str) -> NodeAccess {
///         NodeAccess::NoUverbs
///     }
/// }
///
/// let kernel = Kernel::read(&Nothing);
/// assert_ne!(kernel.support, KernelSupport::Present);
/// assert!(kernel.devices.is_empty());
/// ```
pub trait Source {
    /// Returns the text of a file, without surrounding white space.
    fn text(&self, path: &str) -> Result<String, Unread>;

    /// Returns the last component of the target of a symbolic link.
    fn link_name(&self, path: &str) -> Result<String, Unread>;

    /// Returns the names in a directory, sorted.
    fn names(&self, folder: &str) -> Result<Vec<String>, Unread>;

    /// Returns whether the kernel has the netlink family of RDMA devices. `None` if that is unknown.
    fn has_rdma_netlink(&self) -> Option<bool>;

    /// Returns whether the process can open a device's node.
    fn open(&self, node: &str) -> NodeAccess;
}

/// Why a [`Source`] returns nothing.
///
/// ```
/// use farreach_verbs::system::Unread;
///
/// assert_ne!(Unread::Absent, Unread::Unknown("/sys was not recorded".to_owned()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// The file or directory does not exist.
    Absent,
    /// It is unknown whether it exists. Contains the reason, which names it.
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

/// The kernel's RDMA support and devices. [`Source`] has an example.
///
/// ```
/// use farreach_verbs::system::{self, KernelSupport};
///
/// let survey = system::survey();
/// println!("{:?}, {} devices", survey.kernel, survey.devices.len());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// Whether the kernel supports RDMA.
    pub support: KernelSupport,
    /// Its devices, whether they can be used or not.
    pub devices: Vec<KernelDevice>,
}

impl Kernel {
    /// Reads them from a host.
    pub fn read(source: &impl Source) -> Self {
        let names = source.names(DEVICES);
        // A directory that cannot be read exists.
        let support = support(source, names != Err(Unread::Absent));
        let device = |name: String| {
            let (node, access) = access(source, &name);
            KernelDevice { driver: Self::driver(source, &name), name, node, access }
        };
        Self { support, devices: names.unwrap_or_default().into_iter().map(device).collect() }
    }

    /// Returns the driver of a device. `None` if sysfs does not have it, as for software devices other
    /// than Soft-RoCE.
    pub fn driver(source: &impl Source, device: &str) -> Option<String> {
        // Only Soft-RoCE has this file. It is read first because older kernels link `device` to the
        // card of the net device.
        if source.text(&format!("{DEVICES}/{device}/parent")).is_ok() {
            return Some("rdma_rxe".to_owned());
        }
        source.link_name(&format!("{DEVICES}/{device}/device/driver")).ok()
    }
}

/// The kernel's RDMA support.
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
    /// RDMA support is loaded.
    Present,
    /// The modules are installed and not loaded.
    NotLoaded,
    /// The kernel was built without RDMA, or its modules are not installed.
    NotBuilt,
    /// It could not be read. This happens only for records of other hosts.
    Unknown,
}

/// A device of the kernel, whether libibverbs can use it or not.
///
/// ```
/// for device in farreach_verbs::system::survey().devices {
///     println!("{}: {:?}", device.name, device.access);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelDevice {
    /// The name in `/sys/class/infiniband`.
    pub name: String,
    /// The driver, if sysfs reports it.
    pub driver: Option<String>,
    /// The name of the node, such as `uverbs0`. `None` if the kernel has none.
    pub node: Option<String>,
    /// The access of this process.
    pub access: NodeAccess,
}

/// The access of this process to a device's node.
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
    /// The process can open the node.
    Granted,
    /// The kernel gives user space no access to the device: `ib_uverbs` is not loaded.
    NoUverbs,
    /// The node does not exist.
    NoNode(PathBuf),
    /// The node exists and cannot be opened.
    Denied(PathBuf),
    /// The access is unknown.
    Unknown {
        /// The file that would tell.
        path: PathBuf,
        /// Why it could not be read.
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
