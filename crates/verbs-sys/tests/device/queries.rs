//! Compares the library's queries with sysfs, and tests features that Soft-RoCE lacks.

use std::ffi::CStr;
use std::fs;
use std::io::Error;
use std::net::Ipv6Addr;
use std::path::Path;
use std::ptr::null;

use farreach_testkit::on_host_a;
use farreach_verbs_sys::*;

use crate::rig::*;

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).trim().to_owned()
}

/// Returns the number before the colon in `4: ACTIVE`.
fn leading_number(text: &str) -> u32 {
    text.split(':').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

fn hexadecimal(text: &str) -> u32 {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u32::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{text}"))
}

/// Formats a GUID as sysfs does: `54cc:3bff:fef0:5007`.
fn guid(be: u64) -> String {
    be.to_ne_bytes()
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
        .collect::<Vec<_>>()
        .join(":")
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_device_is_the_one_of_sysfs() {
    on_host_a(|| {
        let host = Host::open();
        let sysfs = |name: &str| read(&host.device.sysfs.join(name));
        let mut attr = ibv_device_attr_ex::default();
        // SAFETY: the context is open and the attributes are valid for writing.
        let status = unsafe { ibv_query_device_ex(lib(), host.context.get(), null(), &raw mut attr) };
        assert_eq!(status, Ok(0));

        let orig = &attr.orig_attr;
        assert_eq!(guid(orig.node_guid), sysfs("node_guid"));
        assert_eq!(guid(orig.sys_image_guid), sysfs("sys_image_guid"));
        // SAFETY: the library terminates the text with a NUL.
        let firmware = unsafe { CStr::from_ptr(orig.fw_ver.as_ptr()) }.to_str();
        // Soft-RoCE has no firmware; the library nevertheless reports a version.
        let told = Some(sysfs("fw_ver")).filter(|text| !text.is_empty());
        assert_eq!(firmware, Ok(told.as_deref().unwrap_or("0.0.0")));
        let ports = fs::read_dir(host.device.sysfs.join("ports")).unwrap().count();
        assert_eq!(usize::from(orig.phys_port_cnt), ports);
        assert!(orig.max_qp > 1000 && orig.max_cqe >= 32_767 && orig.max_sge >= 4, "{orig:?}");
        assert_eq!(attr.max_dm_size, 0, "Soft-RoCE has no on-chip memory");

        // SAFETY: the context is open and leads to its device.
        let node_type = unsafe { (*(*host.context.get()).device).node_type };
        assert_eq!(node_type, leading_number(&sysfs("node_type")) as ibv_node_type);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_port_is_the_one_of_sysfs() {
    on_host_a(|| {
        let host = Host::open();
        let port = host.device.sysfs.join("ports").join(host.device.port.to_string());
        let sysfs = |name: &str| read(&port.join(name));
        let mut attr = ibv_port_attr::default();
        // SAFETY: the context is open and the attributes are valid for writing.
        let status = unsafe { ibv_query_port(lib(), host.context.get(), host.device.port, &raw mut attr) };
        assert_eq!(status, Ok(0));

        assert_eq!(attr.state, leading_number(&sysfs("state")));
        assert_eq!(u32::from(attr.phys_state), leading_number(&sysfs("phys_state")));
        assert_eq!(u32::from(attr.lid), hexadecimal(&sysfs("lid")));
        assert_eq!(u32::from(attr.sm_lid), hexadecimal(&sysfs("sm_lid")));
        assert_eq!(attr.port_cap_flags, hexadecimal(&sysfs("cap_mask")));
        assert_eq!(sysfs("link_layer"), "Ethernet");
        assert_eq!(u32::from(attr.link_layer), IBV_LINK_LAYER_ETHERNET);
        let gids = fs::read_dir(port.join("gids")).unwrap().count();
        assert_eq!(attr.gid_tbl_len as usize, gids);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_gid_table_is_the_one_of_sysfs() {
    on_host_a(|| {
        let host = Host::open();
        let port = host.device.sysfs.join("ports").join(host.device.port.to_string());
        let mut entries = [ibv_gid_entry::default(); 64];
        // SAFETY: the context is open, and there is room for so many entries.
        let count =
            unsafe { ibv_query_gid_table(lib(), host.context.get(), entries.as_mut_ptr(), entries.len(), 0) };
        let count = usize::try_from(count.unwrap()).expect("a count, not an error");
        assert!(count >= 2 && count < entries.len(), "{count} entries");

        for entry in &entries[..count] {
            let attribute = |group: &str| read(&port.join(group).join(entry.gid_index.to_string()));
            // SAFETY: every GID is 16 bytes, and any bytes are valid.
            let gid = Ipv6Addr::from(unsafe { entry.gid.raw });
            assert_eq!(gid, attribute("gids").parse::<Ipv6Addr>().unwrap());
            assert_eq!(entry.port_num, u32::from(host.device.port));
            assert_eq!(
                (entry.gid_type, attribute("gid_attrs/types").as_str()),
                (IBV_GID_TYPE_ROCE_V2, "RoCE v2")
            );
            let net_device = Path::new("/sys/class/net").join(attribute("gid_attrs/ndevs"));
            assert_eq!(entry.ndev_ifindex.to_string(), read(&net_device.join("ifindex")));

            let mut alone = ibv_gid_entry::default();
            // SAFETY: the context is open and the entry is valid for writing.
            let status = unsafe {
                ibv_query_gid_ex(
                    lib(),
                    host.context.get(),
                    entry.port_num,
                    entry.gid_index,
                    &raw mut alone,
                    0,
                )
            };
            // SAFETY: every GID is 16 bytes, and any bytes are valid.
            assert_eq!((status, unsafe { alone.gid.raw }), (Ok(0), gid.octets()));
        }
        let index = u32::from(host.device.gid_index);
        let own = entries[..count].iter().find(|entry| entry.gid_index == index).expect("the address we use");
        // SAFETY: every GID is 16 bytes, and any bytes are valid.
        assert_eq!(unsafe { own.gid.raw }, host.device.address.to_ipv6_mapped().octets());
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_soft_roce_has_not_is_refused() {
    on_host_a(|| {
        let host = Host::open();
        let mut attr = ibv_alloc_dm_attr { length: 4096, ..Default::default() };
        // SAFETY: the context is open and the attributes are valid.
        let dm = unsafe { ibv_alloc_dm(host.context.get(), &raw mut attr) };
        assert_eq!((dm.is_null(), errno()), (true, libc::EOPNOTSUPP), "on-chip memory");

        let mut attr = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: -1,
            oflags: libc::O_CREAT,
        };
        // SAFETY: the context is open and the attributes are valid.
        let xrcd = unsafe { ibv_open_xrcd(host.context.get(), &raw mut attr) };
        assert_eq!((xrcd.is_null(), errno()), (true, libc::EOPNOTSUPP), "extended reliable connections");
    });
}

fn errno() -> i32 {
    Error::last_os_error().raw_os_error().unwrap_or_default()
}
