//! Tests of a link that is cut.

use farreach_testkit::on_host_a;

use super::inject::CutLink;
use super::peer::Peer;
use super::stream::{SAVED, Stream, Told};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sender_whose_link_is_cut_is_told() {
    on_host_a(|| {
        assert!(link_cut(Stream::sender) >= SAVED, "those at least that were posted after the fault");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_receiver_whose_link_is_cut_is_told() {
    on_host_a(|| {
        assert!(link_cut(Stream::receiver) > 0, "the window was in flight");
    });
}

/// Cuts the link, and returns the number of failed work requests.
fn link_cut(stream: impl FnOnce() -> (Stream, Peer)) -> u32 {
    let (mut stream, peer) = stream();
    stream.run(200);
    let link = CutLink::cut(&peer);
    // The port reports the fault. Soft-RoCE flushes its work requests, or fails them with a status
    // that does not refer to the link.
    let told = stream.wait_told(link.since, |told| matches!(told, Told::Device(_)));
    let Told::Device(event) = told else { panic!("{told:?}") };
    assert_eq!(event.to_string(), "port 1: port error");
    stream.stop();
    drop(link);
    stream.finish()
}
