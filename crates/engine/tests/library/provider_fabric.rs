//! Rails over libfabric, with whichever generation of it the dynamic linker finds: two in one process, both polled.

use std::net::{IpAddr, Ipv4Addr};

use farreach::provider::fabric::ProviderSettings;
use farreach::provider::{Proof, Provider, Target};
use farreach_fabric::Library;
use farreach_testkit::wait_for;

use crate::fabric::pair::{A, Pair, write};
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

const SHM: Place =
    Place { name: "shm", bind: None, has_atomics: [true, true], has_descriptor: [false, false], ..TCP };

suite! {
    crate::alone, "needs libfabric: cargo xtask test runs it";
    tcp = crate::provider_fabric::TCP;
    shm = crate::provider_fabric::SHM;
}

/// What one generation calls `net` is `tcp` in the next: ends of both can be connected.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn generations_agree_on_what_can_be_connected() {
    let name = if Library::open().unwrap().version().major < 2 { "net" } else { "tcp" };
    let rail = Place { name, ..TCP }.open(&ProviderSettings::default());
    assert_eq!(rail.properties().kind, "fabric/tcp/xnet");
    let layered = Place { name: "tcp;ofi_rxm", ..TCP }.open(&ProviderSettings::default());
    assert_eq!(layered.properties().kind, "fabric/tcp;ofi_rxm/rxm.1");
    assert!(layered.properties().limits.is_ordered && layered.properties().has_atomics);
}

/// One generation of shared memory does not say which write has failed, and the other one not that it has.
#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn an_error_that_is_nobodys_is_kept_and_the_request_comes_back_by_a_reset() {
    crate::alone(unattributed_error);
}

fn unattributed_error() {
    let settings = ProviderSettings { asks_for_delivery: false, ..ProviderSettings::default() };
    let mut pair = Pair::open_with(&SHM, &settings);
    assert_eq!(pair.rails[A].properties().writes_prove, Proof::Sent);
    // Where nothing is mapped. The engine checks a target against what was granted, and never asks for it.
    let nowhere = Target { address: 8, key: 1, len: 64 };
    let slice = pair.slice(A, &[1; 64]);
    pair.post(A, 1, write(slice, nowhere, None));
    wait_for("word on it", || {
        pair.progress();
        (pair.rails[A].strays() > 0 || !pair.seen[A].is_empty()).then_some(())
    });
    let is_first_generation = Library::open().unwrap().version().major < 2;
    assert_eq!(pair.rails[A].strays(), u64::from(is_first_generation));
    if is_first_generation {
        let error = pair.rails[A].last_stray().unwrap();
        assert!(
            error.operation.contains("shm") && !error.cause.is_empty() && !error.fix.is_empty(),
            "{error:?}"
        );
        assert_eq!(pair.rails[A].in_flight(), 1);
        pair.rails[A].reset().unwrap();
    }
    let (tag, buffers, outcome) = pair.completed(A);
    assert_eq!((tag, buffers.len(), outcome.is_ok()), (1, 64, !is_first_generation));
    assert_eq!(pair.rails[A].in_flight(), 0);
}
