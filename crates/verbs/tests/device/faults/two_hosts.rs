//! Tests of faults that need two hosts: packets from a device to itself cross no link, and the
//! remote device must differ from this host's.
//!
//! Guests with one host omit this module and count it as skipped (`xtask/src/vm/test.rs`).

use farreach_testkit::on_host_a;
use farreach_verbs::cq::WorkStatus;

use super::inject::{FarDevice, Partition};
use super::peer::is_alone;
use super::stream::{SAVED, Stream, Told};

fn assert_two_hosts() {
    assert!(!is_alone(), "this guest has one host");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sender_whose_packets_vanish_is_told() {
    on_host_a(|| {
        assert_two_hosts();
        let (mut stream, _peer) = Stream::sender();
        stream.run(200);
        let partition = Partition::make();
        let told = stream.wait_told(partition.since, |_| true);
        let Told::Completion(failure) = told else { panic!("{told:?}") };
        assert_eq!(failure.status, WorkStatus::RetryExceeded, "{failure}");
        assert!(failure.cause().contains("its packets do not arrive"), "{}", failure.cause());
        stream.stop();
        drop(partition);
        assert!(stream.finish() >= SAVED, "those at least that were posted after the fault");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sender_whose_receivers_device_is_removed_is_told() {
    on_host_a(|| {
        assert_two_hosts();
        let (mut stream, mut peer) = Stream::sender();
        stream.run(200);
        let device = FarDevice::remove();
        stream.wait_told(device.since, |_| true).assert_peer_is_gone();
        stream.finish();
        // The peer gets an event too, and ends; otherwise the device could not be removed.
        peer.wait_end();
        drop(device);
    });
}
