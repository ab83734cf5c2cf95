//! Rails over libfabric, with the generation of the library that the dynamic linker finds: two in
//! one process, both polled.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::thread;
use std::time::Duration;

use farreach::rails::fabric::{FabricRail, FabricSettings};
use farreach_fabric::Library;
use farreach_rail::Rail;

use crate::fabric::{Place, suite};

fn loopback() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

/// The provider that implements datagrams by itself: `net` in 1.x, `tcp` in 2.x. docs/PROVIDERS.md
/// explains why it is not the layered one.
const TCP: Place = Place {
    name: "tcp",
    bind: Some(loopback),
    has_atomics: [false, false],
    is_rdma: false,
    has_descriptor: [false, true],
};

suite! {
    crate::over_libfabric::here, "needs libfabric: cargo xtask test runs it";
    tcp = crate::rails_fabric::TCP;
}

/// `net` of 1.x is `tcp` of 2.x: their ends can be connected.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn generations_agree_on_what_can_be_connected() {
    let name = if Library::open().unwrap().version().major < 2 { "net" } else { "tcp" };
    let rail = Place { name, ..TCP }.open(&FabricSettings::default());
    assert_eq!(rail.properties().kind, "fabric/tcp/xnet");
    let layered = Place { name: "tcp;ofi_rxm", ..TCP }.open(&FabricSettings::default());
    assert_eq!(layered.properties().kind, "fabric/tcp;ofi_rxm/rxm.1");
    assert!(layered.properties().limits.is_ordered && layered.properties().has_atomics);
}

/// A provider that does not enforce keys, or whose peers continue after its endpoint is closed,
/// cannot be a rail.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_provider_that_proves_nothing_is_refused() {
    for name in ["shm", "udp;ofi_rxd"] {
        let error = FabricRail::open_named(name, None, &FabricSettings::default()).unwrap_err();
        assert!(error.operation.contains(name) && error.cause.contains("ended keys"), "{error:?}");
        assert!(error.fix.contains("tcp"), "{error:?}");
    }
}

/// When the endpoint is closed, the library keeps a connection whose peer has sent nothing,
/// together with a pointer to freed memory.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_stranger_who_waits_for_a_reset_does_no_harm() {
    let mut rail = TCP.open(&FabricSettings::default());
    let poll = |rail: &mut FabricRail| {
        for _ in 0..20 {
            let _ = rail.poll(&mut |_| {});
            thread::sleep(Duration::from_millis(1));
        }
    };
    for _ in 0..10 {
        let (_, end) = rail.open_link(farreach_rail::PeerKey(0)).unwrap();
        // An end finishes with a `sockaddr_in`.
        let address = &end[end.len() - 16..];
        let port = u16::from_be_bytes([address[2], address[3]]);
        let mut strangers = [(); 8].map(|()| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
        poll(&mut rail);
        rail.reset().unwrap();
        // The library's freed memory is used by something else now.
        let _others: Vec<Vec<u8>> = (0..4000).map(|len| vec![0x41; 64 + len]).collect();
        // The other end may be closed by now.
        strangers.iter_mut().for_each(|stranger| drop(stranger.write_all(&[0; 64])));
        poll(&mut rail);
    }
}
