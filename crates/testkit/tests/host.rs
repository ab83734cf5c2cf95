//! The selection of a device, over artificial sysfs trees.

use std::fs;
use std::path::{Path, PathBuf};

use farreach_testkit::Device;

/// Creates a sysfs with these net devices and RDMA devices; each RDMA device has one port with
/// GIDs, their types and net devices.
fn sysfs(name: &str, net: &[&str], devices: &[(&str, &[[&str; 3]])]) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let write = |path: PathBuf, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for net in net {
        fs::create_dir_all(root.join("class/net").join(net)).unwrap();
    }
    for (device, gids) in devices {
        let port = root.join("class/infiniband").join(device).join("ports/1");
        for (index, [gid, kind, net]) in gids.iter().enumerate() {
            write(port.join(format!("gids/{index}")), &format!("{gid}\n"));
            write(port.join(format!("gid_attrs/types/{index}")), &format!("{kind}\n"));
            write(port.join(format!("gid_attrs/ndevs/{index}")), &format!("{net}\n"));
        }
        // An empty entry: the kernel refuses to read its type.
        write(port.join(format!("gids/{}", gids.len())), "0000:0000:0000:0000:0000:0000:0000:0000\n");
    }
    root
}

const LINK_LOCAL: [&str; 3] = ["fe80:0000:0000:0000:50cc:3bff:fef0:5007", "RoCE v2", "va"];
const FIRST: [&str; 3] = ["0000:0000:0000:0000:0000:ffff:c000:0201", "RoCE v2", "va"];
const FIRST_V1: [&str; 3] = ["0000:0000:0000:0000:0000:ffff:c000:0201", "IB/RoCE v1", "va"];
const OTHER: [&str; 3] = ["0000:0000:0000:0000:0000:ffff:c000:0202", "RoCE v2", "vb"];

#[test]
fn the_address_of_this_namespace_is_chosen() {
    let root = sysfs("one", &["lo", "va"], &[("rxe0", &[OTHER]), ("rxe1", &[LINK_LOCAL, FIRST_V1, FIRST])]);
    let device = Device::find_in(&root);
    assert_eq!((device.name.as_str(), device.port, device.gid_index), ("rxe1", 1, 2));
    assert_eq!((device.address.to_string().as_str(), device.net_device.as_str()), ("192.0.2.1", "va"));
    assert_eq!(device.sysfs, root.join("class/infiniband/rxe1"));
}

#[test]
fn entries_are_in_the_order_of_their_numbers() {
    let mut gids = vec![LINK_LOCAL; 2];
    gids.extend([FIRST; 10]);
    let root = sysfs("many", &["va"], &[("rxe0", &gids)]);
    assert_eq!(Device::find_in(&root).gid_index, 2, "and not 10");
}

#[test]
#[should_panic(expected = "no RDMA device with a RoCE v2 address of this network namespace")]
fn a_device_of_another_namespace_does_not_serve() {
    Device::find_in(&sysfs("elsewhere", &["lo"], &[("rxe0", &[LINK_LOCAL, FIRST])]));
}

#[test]
#[should_panic(expected = "there are: []")]
fn no_device_fails() {
    Device::find_in(&sysfs("none", &["lo"], &[]));
}
