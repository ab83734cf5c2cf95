//! A device that is removed.

use farreach_testkit::on_host_a;
use farreach_verbs::cm::Error;
use farreach_verbs::cq::WorkStatus;

use crate::faults::{FarDevice, RemovedDevice};
use crate::peer::{Peer, is_alone};
use crate::stream::{Stream, Told};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sender_whose_device_is_removed_is_told() {
    on_host_a(|| {
        // Until the last program has closed it the device works on: how many requests fail is a matter of luck.
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

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sender_whose_receivers_device_is_removed_is_told() {
    on_host_a(|| {
        if is_alone() {
            // It is this host's, of which the tests above are.
            return;
        }
        let (mut stream, mut peer) = Stream::sender();
        stream.run(200);
        let device = FarDevice::remove();
        match stream.wait_told(device.since, |_| true) {
            Told::Connection(error @ Error::Disconnected { .. }) => {
                assert!(error.cause().contains("ended the connection"), "{}", error.cause());
            }
            Told::Completion(failure) => {
                assert_eq!(failure.status, WorkStatus::RetryExceeded);
                assert!(failure.cause().contains("no acknowledgement from the peer"), "{}", failure.cause());
            }
            other => panic!("{other:?}"),
        }
        stream.finish();
        // The peer is told too, and ends, without which the device would stay.
        peer.wait_end();
        drop(device);
    });
}
