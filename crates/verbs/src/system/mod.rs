//! Finds out why no device, or not every device, can be used.
//!
//! A device is used through a stack: the kernel's RDMA core, a driver with a device, a node in
//! `/dev`, the permission to open it, libibverbs, and a provider library for that driver. Any of
//! them may be missing, and "no devices found" does not tell which. [`survey`] examines each. Its
//! lower half, [`Kernel`], can also be read from a record of another host.

mod kernel;

use std::fmt;
use std::path::PathBuf;

use farreach_verbs_sys::{Ibverbs, LibraryMissing};

use self::kernel::Host;
use crate::device::DeviceList;
use crate::error::Error;
use crate::fd;

pub use kernel::{Kernel, KernelDevice, KernelSupport, NodeAccess, Source, Unread};

/// Examines every layer between this program and a device. It changes nothing, except that opening
/// the kernel's RDMA netlink may load its module, as the first call of libibverbs does.
pub fn survey() -> Survey {
    let host = Host { root: PathBuf::from("/"), has_rdma_netlink: fd::rdma_netlink().is_ok() };
    let Kernel { support, devices } = Kernel::read(&host);
    let library = Ibverbs::get().map(|lib| lib.path().to_owned());
    let listed = match (&library, DeviceList::get()) {
        (Ok(_), Ok(list)) => Ok(list.iter().map(|device| device.name().to_owned()).collect()),
        (_, Err(error)) => Err(error),
        (Err(missing), _) => Err(missing.clone().into()),
    };
    Survey { kernel: support, devices, library, listed }
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
            // What is not known is not in the way.
            KernelSupport::Present | KernelSupport::Unknown => {}
        }
        for device in &self.devices {
            let name = device.name.clone();
            match &device.access {
                NodeAccess::Granted | NodeAccess::Unknown { .. } => {}
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sysfs::tests::Scratch;

    fn found(scratch: &Scratch, has_rdma_netlink: bool, listed: &[&str]) -> Survey {
        let Kernel { support, devices } = Kernel::read(&Host { root: scratch.0.clone(), has_rdma_netlink });
        Survey {
            kernel: support,
            devices,
            library: Ok(PathBuf::from("/lib/libibverbs.so.1")),
            listed: Ok(listed.iter().map(|name| (*name).to_owned()).collect()),
        }
    }

    #[test]
    fn a_kernel_without_rdma_is_told_from_one_that_could() {
        let scratch = Scratch::new("kernel");
        assert_eq!(found(&scratch, false, &[]).obstacles(), [Obstacle::NoKernelSupport { loadable: false }]);
        scratch.file("proc/sys/kernel/osrelease", "6.1.0\n");
        scratch.file("lib/modules/6.1.0/kernel/drivers/infiniband/core/ib_core.ko", "");
        assert_eq!(found(&scratch, false, &[]).obstacles(), [Obstacle::NoKernelSupport { loadable: true }]);
        assert_eq!(found(&scratch, true, &[]).obstacles(), [Obstacle::NoDevice]);
    }

    #[test]
    fn each_layer_below_a_device_is_told_by_itself() {
        let scratch = Scratch::new("layers");
        let (device, node) = ("rxe0".to_owned(), scratch.0.join("dev/infiniband/uverbs0"));

        scratch.file("sys/class/infiniband/rxe0/parent", "eth0\n");
        assert_eq!(found(&scratch, true, &[]).obstacles(), [Obstacle::NoUverbs { device: device.clone() }]);

        scratch.file("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
        scratch.file("sys/class/infiniband_verbs/abi_version", "6\n");
        let missing = Obstacle::NoDeviceNode { device: device.clone(), node };
        assert_eq!(found(&scratch, true, &[]).obstacles(), [missing]);

        scratch.file("dev/infiniband/uverbs0", "");
        let provider = Obstacle::NoProvider { device, driver: Some("rdma_rxe".to_owned()) };
        assert_eq!(found(&scratch, true, &[]).obstacles(), [provider]);

        assert_eq!(found(&scratch, true, &["rxe0"]).obstacles(), []);
    }

    #[test]
    fn a_node_that_does_not_open_is_a_matter_of_rights() {
        let scratch = Scratch::new("rights");
        scratch.file("sys/class/infiniband/mlx5_0/node_type", "1: CA\n");
        scratch.file("sys/class/infiniband_verbs/uverbs7/ibdev", "mlx5_0\n");
        // A directory replaces the node: opening one for writing fails for root too.
        fs::create_dir_all(scratch.0.join("dev/infiniband/uverbs7")).unwrap();
        let node = scratch.0.join("dev/infiniband/uverbs7");
        let denied = Obstacle::NoPermission { device: "mlx5_0".to_owned(), node };
        assert_eq!(found(&scratch, true, &[]).obstacles(), std::slice::from_ref(&denied));
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
