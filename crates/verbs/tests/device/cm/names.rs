//! Tests of names, addresses and devices.

use std::net::SocketAddr;

use farreach_testkit::{Device, on_host_a};
use farreach_verbs::cm::{AddressHints, Error, PortSpace, get_devices, getaddrinfo};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn numbers_are_resolved_to_connect_to_and_to_listen_on() {
    on_host_a(|| {
        let address = SocketAddr::from((Device::find().address, 18520));
        let node = address.ip().to_string();
        let find = |hints: AddressHints| getaddrinfo(Some(&node), Some("18520"), &hints.numeric_host(true));
        let active = find(AddressHints::new(PortSpace::Tcp)).unwrap();
        assert_eq!((active[0].destination, active[0].source), (Some(address), None));
        assert_eq!(active[0].port_space, PortSpace::Tcp);
        let passive = find(AddressHints::new(PortSpace::Udp).passive(true)).unwrap();
        assert_eq!((passive[0].source, passive[0].destination), (Some(address), None));
        let from = SocketAddr::from((Device::find().address, 0));
        let both = find(AddressHints::new(PortSpace::Tcp).ipv4().source(from)).unwrap();
        assert_eq!((both[0].source, both[0].destination), (Some(from), Some(address)));
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_name_without_an_address_is_said_by_the_resolver() {
    on_host_a(|| {
        let hints = AddressHints::new(PortSpace::Tcp).numeric_host(true);
        let error = getaddrinfo(Some("no.number"), Some("18520"), &hints).unwrap_err();
        assert!(matches!(error, Error::NameNotResolved { .. }), "{error}");
        assert!(error.to_string().starts_with("no.number:18520 has no address: "), "{error}");
        let error = getaddrinfo(Some("with\0nul"), None, &hints).unwrap_err();
        assert!(matches!(error, Error::NameNotResolved { .. }), "{error}");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn the_connection_manager_knows_the_device() {
    on_host_a(|| {
        let name = Device::find().name;
        assert!(get_devices().unwrap().iter().any(|device| device.name() == name));
    });
}
