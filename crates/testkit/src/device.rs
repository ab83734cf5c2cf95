//! Selects the RDMA device that a test may use.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// An RDMA device with an IPv4 address that a program in this network namespace can send from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its name in verbs, such as `rxe0`.
    pub name: String,
    /// Its first port with such an address.
    pub port: u8,
    /// The entry of the port's GID table that holds the address, for RoCE v2.
    pub gid_index: u8,
    /// The address.
    pub address: Ipv4Addr,
    /// The network device below.
    pub net_device: String,
    /// Its folder in sysfs.
    pub sysfs: PathBuf,
}

impl Device {
    /// Returns the first such device by name. Panics if there is none: a device test without a
    /// device has failed.
    pub fn find() -> Self {
        Self::find_in(Path::new("/sys"))
    }

    /// As [`find`](Self::find), below another folder than `/sys`.
    pub fn find_in(sys: &Path) -> Self {
        let mut seen = Vec::new();
        let first = Self::all_in(sys, &mut seen).into_iter().next();
        first.unwrap_or_else(|| {
            panic!("no RDMA device with a RoCE v2 address of this network namespace; there are: {seen:#?}")
        })
    }

    /// Returns all such devices, by name: an earlier test may have created one more.
    pub fn all() -> Vec<Self> {
        Self::all_in(Path::new("/sys"), &mut Vec::new())
    }

    /// Returns each device with its first address. Adds everything else that exists to `seen`.
    fn all_in(sys: &Path, seen: &mut Vec<String>) -> Vec<Self> {
        let mut found = Vec::new();
        for device in sorted(&sys.join("class/infiniband")) {
            found.extend(Self::first_of(sys, &device, seen));
        }
        found
    }

    fn first_of(sys: &Path, device: &Path, seen: &mut Vec<String>) -> Option<Self> {
        for port in sorted(&device.join("ports")) {
            for gid in sorted(&port.join("gids")) {
                let Some(entry) = Entry::read(&port, &gid) else { continue };
                let usable = sys.join("class/net").join(&entry.net_device).exists();
                match entry.ipv4() {
                    Some(address) if usable => return Some(entry.into_device(device, &port, address)),
                    _ => seen.push(format!("{} {entry:?}", device.display())),
                }
            }
        }
        None
    }
}

/// A filled entry of a GID table.
#[derive(Debug)]
struct Entry {
    index: u8,
    gid: Ipv6Addr,
    kind: String,
    net_device: String,
}

impl Entry {
    /// Returns `None` if the entry is empty: its type and net device cannot be read then.
    fn read(port: &Path, gid: &Path) -> Option<Self> {
        let index = gid.file_name()?.to_str()?;
        let attribute = |group: &str| read(&port.join("gid_attrs").join(group).join(index));
        Some(Self {
            index: index.parse().ok()?,
            gid: read(gid)?.parse().ok()?,
            kind: attribute("types")?,
            net_device: attribute("ndevs")?,
        })
    }

    fn ipv4(&self) -> Option<Ipv4Addr> {
        self.gid.to_ipv4_mapped().filter(|_| self.kind == "RoCE v2")
    }

    fn into_device(self, device: &Path, port: &Path, address: Ipv4Addr) -> Device {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Device {
            name: name(device),
            port: name(port).parse().expect("ports are numbers"),
            gid_index: self.index,
            address,
            net_device: self.net_device,
            sysfs: device.to_owned(),
        }
    }
}

/// Returns the entries of a folder, sorted by name, numbers by value; none if it does not exist.
fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    paths
}

fn read(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
