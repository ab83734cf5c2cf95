//! Rails over libfabric, with whichever generation of it the dynamic linker finds: two in one process, both polled.

mod fabric;

use std::net::{IpAddr, Ipv4Addr};

use fabric::{Place, suite};

fn loopback() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

/// The one that the library prefers: of its own in 2.x, and layered in 1.x. Why the layered one is not tried in 2.x is told in docs/PROVIDERS.md.
const TCP: Place = Place {
    name: "tcp",
    bind: Some(loopback),
    has_atomics: [true, false],
    is_rdma: false,
    has_descriptor: true,
};

const SHM: Place = Place { name: "shm", bind: None, has_atomics: [true, true], has_descriptor: false, ..TCP };

suite! {
    here, "needs libfabric: cargo xtask test runs it";
    tcp = crate::TCP;
    shm = crate::SHM;
}

fn here(test: impl FnOnce()) {
    test();
}
