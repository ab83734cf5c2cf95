//! Tests of a device that is removed.

use farreach_testkit::on_host_a;
use farreach_verbs::cm::Error;

use super::inject::RemovedDevice;
use super::peer::Peer;
use super::stream::{Stream, Told};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sender_whose_device_is_removed_is_told() {
    on_host_a(|| {
        // The device works until the last program has closed it, so the number of failed work
        // requests varies.
        own_device_removed(Stream::sender);
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_receiver_whose_device_is_removed_is_told() {
    on_host_a(|| {
        assert!(own_device_removed(Stream::receiver) > 0, "the window was in flight");
    });
}

fn own_device_removed(stream: impl FnOnce() -> (Stream, Peer)) -> u32 {
    let (mut stream, peer) = stream();
    stream.run(200);
    let device = RemovedDevice::remove();
    let told =
        stream.wait_told(device.since, |told| matches!(told, Told::Connection(Error::DeviceRemoved { .. })));
    let Told::Connection(error) = told else { panic!("{told:?}") };
    assert!(error.to_string().contains("was removed"), "{error}");
    assert!(error.cause().contains("the link deleted"), "{}", error.cause());
    let failed = stream.finish();
    drop(peer);
    drop(device);
    failed
}
