//! Two devices with a network between them: in the guest where two hosts share one kernel, one
//! process can use both.
//!
//! Other guests leave this module out and count it as skipped (`xtask/src/vm/test.rs`).

use std::fs::File;
use std::os::fd::AsRawFd;

use farreach::rails::verbs::{VerbsSettings, rails};
use farreach_rail::{Rail, WorkRequest};
use farreach_testkit::{on_host_a, pattern};

use crate::rails_verbs::pair::{Pair, Side, send, write_and_tell};

/// Runs `work` in the network namespace of one of the two hosts.
fn on<T>(host: &str, work: impl FnOnce() -> T) -> T {
    let enter = |host: &str| {
        let namespace = File::open(format!("/run/netns/{host}")).expect("the guest has two hosts");
        // SAFETY: the call takes no pointer, and affects this thread only.
        let answer = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
    };
    enter(host);
    let answer = work();
    enter("a");
    answer
}

fn side(host: &str) -> Side {
    on(host, || {
        let settings = VerbsSettings::default();
        let found = rails(&settings);
        assert_eq!(found.len(), 1, "each host has one: {found:?}");
        Side::open(&found[0], &settings)
    })
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_link_goes_from_one_device_to_the_other() {
    on_host_a(|| {
        let mut pair = Pair { a: side("a"), b: side("b") };
        assert_ne!(pair.a.rail.properties().name, pair.b.rail.properties().name);
        (pair.a.link, pair.b.link) = pair.link();
        let granted = pair.b.granted(3, 1 << 18);
        for round in 0..20 {
            let slice = pair.a.filled(round, 1 << 18);
            pair.a.post(1, write_and_tell(slice, granted.part(0, 1 << 18), round.into()));
            assert_eq!(pair.immediate(), (pair.b.link, round.into()));
            assert!(granted.bytes() == pattern(round, 1 << 18));
            pair.well_done();
        }
        let into = pair.a.filled(0, 1 << 18);
        pair.a.post(2, (WorkRequest::Read { target: granted.part(0, 1 << 18) }, into.into()));
        assert!(*pair.well_done().buffers.into_slice().unwrap() == *pattern(19, 1 << 18));
        let message = pair.a.filled(1, 4096);
        pair.a.post(3, send(message));
        assert!(pair.message().1 == pattern(1, 4096));
        pair.well_done();
        pair.finish();
    });
}
