//! Tests of the GID selection on the device's own table.

use std::net::IpAddr;

use farreach_testkit::on_host_a;
use farreach_verbs::Error;
use farreach_verbs::ah::GidType;

use super::rig::*;

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_peers_family_decides() {
    on_host_a(|| {
        let host = Host::open();
        let port = host.device.port;
        let peer = "::ffff:192.0.2.77".parse().unwrap();
        let choice = host.context.choose_gid(port, Some(peer)).unwrap();
        assert_eq!(choice.entry.index, u32::from(host.device.gid_index), "{choice:?}");
        assert_eq!(choice.entry.gid_type, GidType::RoceV2);
        assert_eq!(choice.entry.gid.ip(), IpAddr::V4(host.device.address));
        let net = &host.device.net_device;
        assert_eq!(choice.reason, format!("RoCE v2, IPv4 like the peer, on {net}"));
        let table = host.context.gid_table(port).unwrap();
        assert_eq!(choice.losers.len(), table.len() - 1, "each other entry has a reason: {choice:?}");

        let six = host.context.choose_gid(port, Some("2001:db8::77".parse().unwrap())).unwrap();
        assert!(
            matches!(six.entry.gid.ip(), IpAddr::V6(address) if !address.is_unicast_link_local()),
            "{six:?}"
        );
        let local = host.context.choose_gid(port, Some("fe80::77".parse().unwrap())).unwrap();
        assert!(local.entry.gid.is_link_local(), "{local:?}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_port_without_a_gid_says_so() {
    on_host_a(|| {
        let host = Host::open();
        match host.context.choose_gid(200, None) {
            Err(Error::NoGid(none)) => assert!(none.to_string().contains("port 200"), "{none}"),
            other => panic!("{other:?}"),
        }
    });
}
