//! Rails over libfabric, with whichever generation of it the dynamic linker finds: two in one process, both polled.

mod fabric;

use std::net::{IpAddr, Ipv4Addr};

use fabric::{Place, suite};

fn loopback() -> IpAddr {
    Ipv4Addr::LOCALHOST.into()
}

/// What the name means: the one that the library prefers.
const TCP: Place = Place {
    name: "tcp",
    bind: Some(loopback),
    has_atomics: [true, false],
    is_rdma: false,
    has_descriptor: true,
};

/// The layered one, in both generations.
const TCP_UNDER_RXM: Place = Place { name: "tcp;ofi_rxm", has_atomics: [true, true], ..TCP };

const SHM: Place = Place { name: "shm", bind: None, has_atomics: [true, true], has_descriptor: false, ..TCP };

suite! {
    here, "needs libfabric: cargo xtask test runs it";
    tcp = crate::TCP;
    tcp_under_rxm = crate::TCP_UNDER_RXM;
    shm = crate::SHM;
}

fn here(test: impl FnOnce()) {
    test();
}
