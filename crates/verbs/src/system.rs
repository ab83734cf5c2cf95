//! Finds out why no device, or not every device, can be used.
//!
//! A device is used through a stack: the kernel's RDMA core, a driver with a device, a node in
//! `/dev`, the permission to open it, libibverbs, and a provider library for that driver. Any of
//! them may be missing, and "no devices found" does not tell which. [`survey`] examines each.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use farreach_verbs_sys::{Ibverbs, LibraryMissing};

use crate::device::DeviceList;
use crate::error::Error;
use crate::fd;
use crate::sysfs;

/// Examines every layer between this program and a device. It changes nothing, except that opening
/// the kernel's RDMA netlink may load its module, as the first call of libibverbs does.
pub fn survey() -> Survey {
    let roots = Roots::host();
    let library = Ibverbs::get().map(|lib| lib.path().to_owned());
    let listed = match (&library, DeviceList::get()) {
        (Ok(_), Ok(list)) => Ok(list.iter().map(|device| device.name().to_owned()).collect()),
        (_, Err(error)) => Err(error),
        (Err(missing), _) => Err(missing.clone().into()),
    };
    Survey { kernel: kernel(&roots, netlink_answers()), devices: devices(&roots), library, listed }
}

/// The result of [`survey`].
///
/// ```
/// use farreach_verbs::system::{self, KernelSupport};
///
/// let survey = system::survey();
/// if survey.kernel == KernelSupport::Present && survey.obstacles().is_empty() {
///     println!("{} devices, all usable", survey.devices.len());
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Survey {
    /// The kernel's RDMA support.
    pub kernel: KernelSupport,
    /// The kernel's devices, usable or not.
    pub devices: Vec<KernelDevice>,
    /// The path of the opened libibverbs.
    pub library: Result<PathBuf, LibraryMissing>,
    /// The names of the devices that libibverbs lists.
    pub listed: Result<Vec<String>, Error>,
}

impl Survey {
    /// Returns the obstacles, from the kernel up to the library. Empty if there is a device and
    /// every device can be used.
    pub fn obstacles(&self) -> Vec<Obstacle> {
        let mut obstacles = Vec::new();
        match self.kernel {
            KernelSupport::NotBuilt => obstacles.push(Obstacle::NoKernelSupport { loadable: false }),
            KernelSupport::NotLoaded => obstacles.push(Obstacle::NoKernelSupport { loadable: true }),
            KernelSupport::Present if self.devices.is_empty() => obstacles.push(Obstacle::NoDevice),
            KernelSupport::Present => {}
        }
        for device in &self.devices {
            let name = device.name.clone();
            match &device.access {
                NodeAccess::Granted => {}
                NodeAccess::NoUverbs => obstacles.push(Obstacle::NoUverbs { device: name }),
                NodeAccess::NoNode(node) => {
                    obstacles.push(Obstacle::NoDeviceNode { device: name, node: node.clone() });
                }
                NodeAccess::Denied(node) => {
                    obstacles.push(Obstacle::NoPermission { device: name, node: node.clone() });
                }
            }
        }
        if let Err(missing) = &self.library {
            obstacles.push(Obstacle::NoLibrary(missing.clone()));
        }
        if let Ok(listed) = &self.listed {
            // A device without a node is not listed either. That is reported above.
            let openable = self.devices.iter().filter(|device| device.access == NodeAccess::Granted);
            let unlisted = openable.filter(|device| !listed.contains(&device.name));
            obstacles.extend(unlisted.map(|device| Obstacle::NoProvider {
                device: device.name.clone(),
                driver: device.driver.clone(),
            }));
        }
        obstacles
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
}

/// An obstacle between this program and a device. `Display` shows what is missing;
/// [`fix`](Self::fix) says how to resolve it.
///
/// ```
/// use farreach_verbs::system::Obstacle;
///
/// let obstacle = Obstacle::NoKernelSupport { loadable: true };
/// assert_eq!(obstacle.to_string(), "the kernel's RDMA modules are not loaded");
/// assert_eq!(obstacle.fix(), "modprobe ib_uverbs");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// The kernel has no RDMA support.
    NoKernelSupport {
        /// `true` if the modules are installed on this host.
        loadable: bool,
    },
    /// The kernel has RDMA support and no device.
    NoDevice,
    /// The kernel gives user space no access to a device.
    NoUverbs {
        /// The device's name.
        device: String,
    },
    /// A device's node is missing.
    NoDeviceNode {
        /// The device's name.
        device: String,
        /// The node.
        node: PathBuf,
    },
    /// This process cannot open a device's node.
    NoPermission {
        /// The device's name.
        device: String,
        /// The node.
        node: PathBuf,
    },
    /// libibverbs is missing or unusable.
    NoLibrary(LibraryMissing),
    /// libibverbs has no provider library for a device.
    NoProvider {
        /// The device's name.
        device: String,
        /// The device's kernel driver.
        driver: Option<String>,
    },
}

impl Obstacle {
    /// Returns an instruction that resolves the obstacle.
    pub fn fix(&self) -> String {
        match self {
            Self::NoKernelSupport { loadable: true } | Self::NoUverbs { .. } => "modprobe ib_uverbs".to_owned(),
            Self::NoKernelSupport { loadable: false } => {
                "boot a kernel built with CONFIG_INFINIBAND, or install its modules (Debian, Ubuntu: the full \
                 kernel package, not the cloud one)"
                    .to_owned()
            }
            Self::NoDevice => "plug in an RDMA card and load its driver, or make a software device: rdma link add rxe0 \
                               type rxe netdev NETDEV"
                .to_owned(),
            Self::NoDeviceNode { .. } => {
                "let udev create the node; in a container, pass /dev/infiniband in".to_owned()
            }
            Self::NoPermission { node, .. } => {
                format!("give this user read and write access to {}", node.display())
            }
            Self::NoLibrary(missing) => missing.fix(),
            Self::NoProvider { .. } => "apt-get install ibverbs-providers (Debian, Ubuntu) or dnf install \
                                        libibverbs (Fedora, RHEL); a vendor's driver may bring its own"
                .to_owned(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKernelSupport { loadable: true } => {
                f.write_str("the kernel's RDMA modules are not loaded")
            }
            Self::NoKernelSupport { loadable: false } => f.write_str("the kernel has no RDMA support"),
            Self::NoDevice => f.write_str("the kernel has no RDMA device"),
            Self::NoUverbs { device } => write!(f, "the kernel gives user space no access to {device}"),
            Self::NoDeviceNode { device, node } => {
                write!(f, "the node {} of {device} does not exist", node.display())
            }
            Self::NoPermission { device, node } => {
                write!(f, "this user may not open {}, the node of {device}", node.display())
            }
            Self::NoLibrary(missing) => fmt::Display::fmt(missing, f),
            Self::NoProvider { device, driver: Some(driver) } => {
                write!(f, "libibverbs has no provider library for {device}, a device of {driver}")
            }
            Self::NoProvider { device, driver: None } => {
                write!(f, "libibverbs has no provider library for {device}")
            }
        }
    }
}

/// The directories to examine. Tests use others.
struct Roots {
    sys_class: PathBuf,
    dev: PathBuf,
    /// The modules of the running kernel.
    modules: PathBuf,
}

impl Roots {
    fn host() -> Self {
        let release = sysfs::attribute(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
        Self {
            sys_class: PathBuf::from("/sys/class"),
            dev: PathBuf::from("/dev/infiniband"),
            modules: Path::new("/lib/modules").join(release),
        }
    }
}

fn kernel(roots: &Roots, netlink: bool) -> KernelSupport {
    if netlink || roots.sys_class.join("infiniband").is_dir() {
        KernelSupport::Present
    } else if roots.modules.join("kernel/drivers/infiniband").is_dir() {
        KernelSupport::NotLoaded
    } else {
        KernelSupport::NotBuilt
    }
}

/// Returns `true` if the kernel has the netlink family by which RDMA devices are listed and
/// created.
fn netlink_answers() -> bool {
    fd::rdma_netlink().is_ok()
}

fn devices(roots: &Roots) -> Vec<KernelDevice> {
    let infiniband = roots.sys_class.join("infiniband");
    let names = sysfs::names(&infiniband).into_iter();
    names
        .map(|name| KernelDevice {
            driver: sysfs::driver(&infiniband.join(&name)),
            access: access(roots, &name),
            name,
        })
        .collect()
}

fn access(roots: &Roots, device: &str) -> NodeAccess {
    let verbs = roots.sys_class.join("infiniband_verbs");
    let is_of_device =
        |node: &String| sysfs::attribute(&verbs.join(node).join("ibdev")).as_deref() == Some(device);
    let Some(node) = sysfs::names(&verbs).into_iter().find(is_of_device) else {
        return NodeAccess::NoUverbs;
    };
    let node = roots.dev.join(node);
    // Only opening the node checks permissions, capabilities and a container's device rules
    // together. It has no side effect: a context is created later, by a command on the descriptor.
    match OpenOptions::new().read(true).write(true).open(&node) {
        Ok(_) => NodeAccess::Granted,
        Err(error) if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(&node).is_err() => {
            NodeAccess::NoNode(node)
        }
        Err(_) => NodeAccess::Denied(node),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::tests::Scratch;

    fn roots(scratch: &Scratch) -> Roots {
        Roots {
            sys_class: scratch.0.join("class"),
            dev: scratch.0.join("dev"),
            modules: scratch.0.join("modules"),
        }
    }

    fn found(roots: &Roots, netlink: bool, listed: &[&str]) -> Survey {
        Survey {
            kernel: kernel(roots, netlink),
            devices: devices(roots),
            library: Ok(PathBuf::from("/lib/libibverbs.so.1")),
            listed: Ok(listed.iter().map(|name| (*name).to_owned()).collect()),
        }
    }

    #[test]
    fn a_kernel_without_rdma_is_told_from_one_that_could() {
        let scratch = Scratch::new("kernel");
        let roots = roots(&scratch);
        assert_eq!(found(&roots, false, &[]).obstacles(), [Obstacle::NoKernelSupport { loadable: false }]);
        scratch.file("modules/kernel/drivers/infiniband/core/ib_core.ko", "");
        assert_eq!(found(&roots, false, &[]).obstacles(), [Obstacle::NoKernelSupport { loadable: true }]);
        assert_eq!(found(&roots, true, &[]).obstacles(), [Obstacle::NoDevice]);
    }

    #[test]
    fn each_layer_below_a_device_is_told_by_itself() {
        let scratch = Scratch::new("layers");
        let roots = roots(&scratch);
        let (device, node) = ("rxe0".to_owned(), scratch.0.join("dev/uverbs0"));

        scratch.file("class/infiniband/rxe0/parent", "eth0\n");
        assert_eq!(found(&roots, true, &[]).obstacles(), [Obstacle::NoUverbs { device: device.clone() }]);

        scratch.file("class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
        scratch.file("class/infiniband_verbs/abi_version", "6\n");
        let missing = Obstacle::NoDeviceNode { device: device.clone(), node };
        assert_eq!(found(&roots, true, &[]).obstacles(), [missing]);

        scratch.file("dev/uverbs0", "");
        let provider = Obstacle::NoProvider { device, driver: Some("rdma_rxe".to_owned()) };
        assert_eq!(found(&roots, true, &[]).obstacles(), [provider]);

        assert_eq!(found(&roots, true, &["rxe0"]).obstacles(), []);
    }

    #[test]
    fn a_node_that_does_not_open_is_a_matter_of_rights() {
        let scratch = Scratch::new("rights");
        let roots = roots(&scratch);
        scratch.file("class/infiniband/mlx5_0/node_type", "1: CA\n");
        scratch.file("class/infiniband_verbs/uverbs7/ibdev", "mlx5_0\n");
        // A directory replaces the node: opening one for writing fails for root too.
        fs::create_dir_all(scratch.0.join("dev/uverbs7")).unwrap();
        let node = scratch.0.join("dev/uverbs7");
        let denied = Obstacle::NoPermission { device: "mlx5_0".to_owned(), node };
        assert_eq!(found(&roots, true, &[]).obstacles(), std::slice::from_ref(&denied));
        assert!(denied.fix().contains("uverbs7"), "{}", denied.fix());
    }

    #[test]
    fn this_host_can_be_surveyed() {
        let survey = survey();
        assert_eq!(survey.library.is_err(), matches!(survey.listed, Err(Error::Library(_))));
        if survey.devices.is_empty() {
            assert!(!survey.obstacles().is_empty(), "no device, so there is an obstacle");
        }
    }
}
