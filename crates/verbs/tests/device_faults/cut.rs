//! A link that is cut.

use farreach_testkit::on_host_a;
use farreach_verbs::cq::WorkStatus;

use crate::faults::{CutLink, Partition};
use crate::peer::is_alone;
use crate::stream::{SAVED, Stream, Told};

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sender_whose_link_is_cut_is_told() {
    on_host_a(|| {
        let (mut stream, peer) = Stream::sender();
        stream.run(200);
        let link = CutLink::cut(&peer);
        // The port tells. Soft-RoCE flushes its requests, or ends them with a word that says nothing of the link.
        let told = stream.wait_told(link.since, |told| matches!(told, Told::Device(_)));
        let Told::Device(event) = told else { panic!("{told:?}") };
        assert_eq!(event.to_string(), "port 1: port error");
        stream.stop();
        drop(link);
        assert!(stream.finish() >= SAVED, "those at least that were posted after the fault");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_receiver_whose_link_is_cut_is_told() {
    on_host_a(|| {
        let (mut stream, peer) = Stream::receiver();
        stream.run(200);
        let link = CutLink::cut(&peer);
        let told = stream.wait_told(link.since, |told| matches!(told, Told::Device(_)));
        let Told::Device(event) = told else { panic!("{told:?}") };
        assert_eq!(event.to_string(), "port 1: port error");
        stream.stop();
        drop(link);
        assert!(stream.finish() > 0, "the window was in flight");
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_sender_whose_packets_vanish_is_told() {
    on_host_a(|| {
        if is_alone() {
            // What a device sends to itself crosses no link, and nothing on the way can lose it.
            return;
        }
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
