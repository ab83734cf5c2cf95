//! The program `write_pages` over the providers that need no card.

use farreach_fabric::Library;

use crate::write_pages::{Place, program_suite};

fn loopback() -> String {
    "127.0.0.1".to_owned()
}

const TCP_UNDER_RXM: Place =
    Place { provider: || "tcp;ofi_rxm", node: Some(loopback), environment: &[], is_emulated: false };

/// Reliable datagrams of the tcp provider itself: a separate provider in 1.x.
const TCP: Place = Place {
    provider: || {
        let is_2 = Library::open().expect("libfabric is installed").version().major >= 2;
        if is_2 { "tcp" } else { "net" }
    },
    ..TCP_UNDER_RXM
};

const SHM: Place = Place { provider: || "shm", node: None, ..TCP_UNDER_RXM };

const SOCKETS: Place = Place { provider: || "sockets", ..TCP_UNDER_RXM };

/// Reliable datagrams over unreliable ones.
const UDP_UNDER_RXD: Place = Place { provider: || "udp;ofi_rxd", ..TCP_UNDER_RXM };

program_suite! {
    crate::programs::here, "needs libfabric: cargo xtask test runs it";
    tcp_under_rxm = crate::programs::TCP_UNDER_RXM;
    tcp = crate::programs::TCP;
    shm = crate::programs::SHM;
}

// The program works over these, too. The suite does not run completely: with thousands of small
// writes at once `sockets` stops in the middle, in about one of ten runs on a busy machine
// (docs/PROVIDERS.md).
program_suite! { @place sockets, crate::programs::SOCKETS, crate::programs::here, "needs libfabric: cargo xtask test runs it";
    every_byte_is_verified;
    an_altered_byte_is_noticed;
    nonsense_is_refused_with_a_reason;
}
program_suite! { @place udp_under_rxd, crate::programs::UDP_UNDER_RXD, crate::programs::here, "needs libfabric: cargo xtask test runs it";
    every_byte_is_verified;
    an_altered_byte_is_noticed;
    nonsense_is_refused_with_a_reason;
    a_server_that_is_not_there_is_told;
}

fn here(test: impl FnOnce()) {
    test();
}
