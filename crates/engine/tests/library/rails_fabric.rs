//! Rails over libfabric, with whichever generation of it the dynamic linker finds: two in one process, both polled.

use std::net::{IpAddr, Ipv4Addr};

use farreach::rail::Rail;
use farreach::rails::fabric::{FabricRail, FabricSettings};
use farreach_fabric::Library;

use crate::fabric::{Place, suite};

fn loopback() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

/// The one that speaks datagrams by itself: `net` in 1.x, `tcp` in 2.x. Why it is not the layered one is told in docs/PROVIDERS.md.
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

/// What one generation calls `net` is `tcp` in the next: ends of both can be connected.
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

/// What does not enforce keys, or goes on after its endpoint is closed, is no rail.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_provider_that_proves_nothing_is_refused() {
    for name in ["shm", "udp;ofi_rxd"] {
        let error = FabricRail::open_named(name, None, &FabricSettings::default()).unwrap_err();
        assert!(error.operation.contains(name) && error.cause.contains("dead key"), "{error:?}");
        assert!(error.fix.contains("tcp"), "{error:?}");
    }
}
