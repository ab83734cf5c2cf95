//! The suite over the providers that need no card, with the generation of libfabric that the
//! dynamic linker finds. docs/PROVIDERS.md explains why `udp;ofi_rxd` is not among them.

use crate::suite::{Provider, suite};

fn loopback() -> String {
    "127.0.0.1".to_owned()
}

/// Connections of tcp, with reliable datagrams built on them by another provider.
pub(crate) const TCP_UNDER_RXM: Provider = Provider {
    names: ["tcp;ofi_rxm", "tcp;ofi_rxm"],
    node: Some(loopback),
    has_atomics: true,
    has_descriptor: [true, true],
    delivers_unpolled: false,
    wrong_key_lands: [false, false],
    // Every order is tried over the other two.
    drop_orders_step: 7,
    // 256 of them in 2.1 need more than twenty GiB.
    endpoints_max: 24,
};

/// Reliable datagrams of the tcp provider itself.
pub(crate) const TCP: Provider = Provider {
    names: ["net", "tcp"],
    has_atomics: false,
    has_descriptor: [false, true],
    drop_orders_step: 1,
    endpoints_max: 256,
    ..TCP_UNDER_RXM
};

pub(crate) const SHM: Provider = Provider {
    names: ["shm", "shm"],
    has_descriptor: [false, false],
    node: None,
    wrong_key_lands: [true, false],
    drop_orders_step: 1,
    endpoints_max: 16,
    ..TCP_UNDER_RXM
};

/// The oldest provider over tcp, which makes progress by a thread of its own.
pub(crate) const SOCKETS: Provider =
    Provider { names: ["sockets", "sockets"], delivers_unpolled: true, drop_orders_step: 7, ..TCP_UNDER_RXM };

suite! {
    crate::over_providers::here, "needs libfabric: cargo xtask test runs it";
    tcp_under_rxm = crate::over_providers::TCP_UNDER_RXM;
    tcp = crate::over_providers::TCP;
    shm = crate::over_providers::SHM;
    sockets = crate::over_providers::SOCKETS;
}

fn here(test: impl FnOnce()) {
    test();
}
