//! Reads attributes of a device from `/sys/class/infiniband/NAME` that libibverbs does not provide.

use std::fs;
use std::path::Path;

/// The driver of Soft-RoCE devices. They are made on a net device and have no bus device with a
/// driver link.
const SOFT_ROCE: &str = "rdma_rxe";

/// Returns the kernel driver. `None` if sysfs does not report it, as for software devices other
/// than Soft-RoCE.
pub(crate) fn driver(device: &Path) -> Option<String> {
    // Only Soft-RoCE has the attribute `parent`, the name of its net device. It is checked first
    // because older kernels link `device` to the hardware of the net device, which has another
    // driver.
    if is_soft_roce(device) {
        return Some(SOFT_ROCE.to_owned());
    }
    let link = fs::read_link(device.join("device/driver")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// Returns the PCI address, such as `0000:3b:00.0`. `None` for a software device or one on another
/// bus.
pub(crate) fn pci_address(device: &Path) -> Option<String> {
    if is_soft_roce(device) {
        return None;
    }
    let hardware = device.join("device").canonicalize().ok()?;
    let address = hardware.file_name()?.to_str()?;
    is_pci_address(address).then(|| address.to_owned())
}

/// Returns the NUMA node of the hardware. `None` if the machine has only one node, or for a
/// software device.
pub(crate) fn numa_node(device: &Path) -> Option<u32> {
    if is_soft_roce(device) {
        return None;
    }
    // sysfs reports -1 for no node, which does not parse as `u32`.
    attribute(&device.join("device/numa_node"))?.parse().ok()
}

/// Returns the name of the net device behind an entry of a GID table.
pub(crate) fn gid_net_device(device: &Path, port: u8, index: u32) -> Option<String> {
    attribute(&device.join(format!("ports/{port}/gid_attrs/ndevs/{index}")))
}

/// Returns the content of an attribute without its newline. `None` if it is missing, unreadable or
/// empty.
pub(crate) fn attribute(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn is_soft_roce(device: &Path) -> bool {
    device.join("parent").is_file()
}

/// Returns `true` for `DOMAIN:BUS:SLOT.FUNCTION` in hexadecimal digits.
fn is_pci_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let widths = [4, 2, 2, 1];
    parts.len() == widths.len()
        && parts
            .iter()
            .zip(widths)
            .all(|(part, width)| part.len() >= width && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A temporary directory that is removed on drop.
    pub(crate) struct Scratch(pub(crate) PathBuf);

    impl Scratch {
        pub(crate) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("farreach-verbs-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        pub(crate) fn file(&self, path: &str, content: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            // A failure leaves a temporary directory behind, which is harmless.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_card_has_driver_address_and_node() {
        let root = Scratch::new("card");
        root.file("pci/0000:3b:00.1/numa_node", "1\n");
        root.file("drivers/mlx5_core/bind", "");
        symlink(root.0.join("drivers/mlx5_core"), root.0.join("pci/0000:3b:00.1/driver")).unwrap();
        root.file("mlx5_1/node_type", "1: CA\n");
        root.file("mlx5_1/ports/1/gid_attrs/ndevs/3", "ens1f1\n");
        symlink(root.0.join("pci/0000:3b:00.1"), root.0.join("mlx5_1/device")).unwrap();

        let device = root.0.join("mlx5_1");
        assert_eq!(driver(&device).as_deref(), Some("mlx5_core"));
        assert_eq!(pci_address(&device).as_deref(), Some("0000:3b:00.1"));
        assert_eq!(numa_node(&device), Some(1));
        assert_eq!(gid_net_device(&device, 1, 3).as_deref(), Some("ens1f1"));
        assert_eq!(gid_net_device(&device, 1, 4), None);

        root.file("pci/0000:3b:00.1/numa_node", "-1\n");
        assert_eq!(numa_node(&device), None);
    }

    #[test]
    fn soft_roce_is_not_taken_for_the_card_below_it() {
        let root = Scratch::new("rxe");
        root.file("pci/0000:00:04.0/numa_node", "0\n");
        root.file("drivers/virtio_net/bind", "");
        symlink(root.0.join("drivers/virtio_net"), root.0.join("pci/0000:00:04.0/driver")).unwrap();
        root.file("rxe0/parent", "eth0\n");
        symlink(root.0.join("pci/0000:00:04.0"), root.0.join("rxe0/device")).unwrap();

        let device = root.0.join("rxe0");
        assert_eq!(driver(&device).as_deref(), Some("rdma_rxe"));
        assert_eq!(pci_address(&device), None);
        assert_eq!(numa_node(&device), None);
    }

    #[test]
    fn a_device_without_hardware_has_none_of_it() {
        let root = Scratch::new("siw");
        root.file("siw0/node_type", "4: RNIC\n");
        let device = root.0.join("siw0");
        assert_eq!((driver(&device), pci_address(&device), numa_node(&device)), (None, None, None));
    }

    #[test]
    fn pci_addresses_are_told_from_other_names() {
        assert!(is_pci_address("0000:3b:00.0") && is_pci_address("10000:e1:00.0"));
        assert!(
            !is_pci_address("virtio0") && !is_pci_address("0000:3b:00") && !is_pci_address("vmbus:0:1.x")
        );
    }
}
