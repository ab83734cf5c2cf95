//! Tests of a peer that is killed.

use farreach_testkit::on_host_a;
use farreach_verbs::cm::Error;

use super::stream::{SAVED, Stream, Told};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sender_whose_receiver_is_killed_is_told() {
    on_host_a(|| {
        let (mut stream, peer) = Stream::sender();
        stream.run(200);
        let since = peer.kill();
        stream.wait_told(since, |_| true).assert_peer_is_gone();
        assert!(stream.finish() >= SAVED, "those at least that were posted after the fault");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_receiver_whose_sender_is_killed_is_told() {
    on_host_a(|| {
        let (mut stream, peer) = Stream::receiver();
        stream.run(200);
        let since = peer.kill();
        // No work request of a receiver fails by itself: only the connection reports it.
        match stream.wait_told(since, |told| matches!(told, Told::Connection(_))) {
            Told::Connection(error @ Error::Disconnected { .. }) => {
                assert!(error.cause().contains("ended the connection"), "{}", error.cause());
            }
            other => panic!("{other:?}"),
        }
        assert!(stream.finish() > 0, "the window was in flight");
    });
}
