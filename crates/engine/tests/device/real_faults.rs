//! Real faults over verbs, on a real device. All processes are on the same host, with rails over
//! the same device. Only the tests that cut a link have two hosts with two devices each.

use std::time::Duration;

use farreach::rails::verbs::{VerbsRail, VerbsSettings, rails_named};
use farreach_rail::Rail;
use farreach_testkit::Device;

use crate::faults::Place;
use crate::faults::cut::Cut;

/// An emulated guest needs seconds where others need milliseconds.
const HEARTBEAT: Duration = Duration::from_millis(300);
const SILENCE: Duration = Duration::from_secs(4);

/// Two rails, over links that can be cut.
const TWO_DEVICES: Cut = Cut {
    place: Place {
        rails: &["rnear0", "rnear1"],
        rounds,
        heartbeat: HEARTBEAT,
        // Soft-RoCE waits for its packets when it destroys a queue pair, and they wait up to three
        // seconds for an address resolution without an answer.
        silence: Duration::from_secs(8),
    },
    far_rails: &["rfar0", "rfar1"],
    stall: Duration::from_secs(3),
    transfer_max: Duration::from_secs(12),
};

fn place() -> Place {
    // The name is known only at run time, and a process creates few places, so it may be leaked.
    let name: &'static str = Device::find().name.leak();
    let rails: &'static [&'static str] = Box::leak(Box::new([name]));
    Place { rails, rounds, heartbeat: HEARTBEAT, silence: SILENCE }
}

/// The number of rounds; `FARREACH_FAULTS` sets it, for example to ten.
fn rounds() -> u32 {
    std::env::var("FARREACH_FAULTS").map_or(2, |rounds| rounds.parse().expect("FARREACH_FAULTS is a number"))
}

/// Opens a rail for a peer without an engine.
fn open() -> Box<dyn Rail> {
    let settings = VerbsSettings::default();
    let rails = rails_named(&Device::find().name, &settings).unwrap();
    Box::new(VerbsRail::open(&rails[0], &settings).unwrap())
}

mod one_guest {
    use std::time::{Duration, Instant};

    use farreach::{Access, Engine, PageMap, Rights};
    use farreach_testkit::{in_own_network, on_host_a};

    use super::{TWO_DEVICES, open, place};
    use crate::faults::cut::{Hosts, pages_of_a_rail_whose_link_is_cut_go_over_the_other_one as cut};
    use crate::faults::node::Node;
    use crate::faults::stopped::memory_of_a_peer_that_is_stopped_in_a_copy_is_a_slice_by_the_deadline as memory_of_a_stopped_peer;
    use crate::faults::survivor::{LEN, Survivor};
    use crate::faults::{MARK, Place};
    use crate::faults::{killed, late, stopped, table};
    use crate::suite::{SOON, grant, join, settings};

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_sender_that_is_killed_is_lost_and_its_memory_comes_back() {
        on_host_a(|| killed::a_sender_that_is_killed_is_lost_and_its_memory_comes_back(&place()));
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_receiver_that_is_killed_is_lost() {
        on_host_a(|| killed::a_receiver_that_is_killed_is_lost(&place()));
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on() {
        on_host_a(|| {
            stopped::a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on(&place());
        });
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_receiver_that_is_stopped_is_lost() {
        on_host_a(|| stopped::a_receiver_that_is_stopped_is_lost(&place()));
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn pages_of_a_rail_whose_link_is_cut_go_over_the_other_one() {
        in_own_network(|| cut(&TWO_DEVICES, &Hosts::with_devices()));
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn every_operation_ends_in_every_way() {
        on_host_a(|| table::every_operation_ends_in_every_way(&place()));
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_peer_that_has_promised_to_stop_and_goes_on_changes_nothing() {
        on_host_a(|| late::a_peer_that_has_promised_to_stop_and_goes_on_changes_nothing(&place(), open));
    }

    /// The card had registered the pages that were exchanged. What it sends later must be in the new
    /// ones.
    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_card_sends_from_the_pages_that_were_exchanged_for_those_of_a_stopped_peer() {
        on_host_a(|| {
            let card = place().rails[0];
            let rails: &'static [&'static str] = Box::leak(Box::new(["shm", card]));
            let place = Place { rails, ..place() };
            memory_of_a_stopped_peer(&place, |survivor, slice| {
                let (a, b) = (&survivor.engine, Engine::with(settings("b").rails([card])).unwrap());
                let (a_to_b, b_to_a) = join(a, &b);
                assert_eq!(a_to_b.rails(), [card]);
                let (grant, remote) = grant(&b, &b_to_a, &a_to_b, LEN, Rights::WRITE);
                let map = PageMap::of(LEN as u64).first(1);
                let source = std::mem::replace(slice, a.allocate(1).wait(SOON).unwrap());
                let sent = a_to_b.write_pages(source, &map, &remote, None).wait(SOON).unwrap();
                *slice = sent.buffer.into_slice().expect("a slice was given");
                let arrived = grant.revoke(SOON).unwrap().to_vec();
                assert!(arrived.iter().all(|byte| *byte == MARK), "the card sent old pages");
            });
        });
    }

    /// A peer opens published memory over a card while its pages are exchanged, because a writer within the host
    /// is stopped. The card must register the new ones.
    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_card_registers_no_pages_that_are_being_exchanged() {
        const PATIENCE: Duration = Duration::from_secs(2);
        const ROUNDS: u64 = 12;
        on_host_a(|| {
            let card = place().rails[0];
            let rails: &'static [&'static str] = Box::leak(Box::new(["shm", card]));
            let place = Place { rails, silence: Duration::from_secs(60), ..place() };
            let survivor = Survivor::alone(&place);
            let a = &survivor.engine;
            for round in 0..ROUNDS {
                let memory = a.allocate(16 * LEN).wait(SOON).unwrap().expose();
                let rights = Rights::READ | Rights::WRITE;
                let publication = a.publish_exposed(memory, rights, Access::Anyone).wait(SOON).unwrap();
                let writer = Node::connect(&Place { rails: &["shm"], ..place }, "open", survivor.address);
                let stopped = a.accept().wait(SOON).unwrap();
                stopped.send(publication.token().to_string()).wait(SOON).unwrap();
                writer.says("works");
                let b = Engine::with(settings("b").rails([card])).unwrap();
                let (a_to_b, b_to_a) = join(a, &b);
                writer.stop();
                let (revoked, asked_at, remote) = std::thread::scope(|scope| {
                    // An emulated machine may need longer than a deadline. A key of the card that was made before
                    // refuses the exchange for good.
                    let revoking = scope.spawn(|| {
                        let revoke = || publication.revoke_peer(&stopped, PATIENCE).wait(SOON).is_ok();
                        (0..3).any(|_| revoke()).then(Instant::now)
                    });
                    // The exchange begins shortly before the deadline.
                    std::thread::sleep(Duration::from_millis(1400 + 50 * round));
                    let asked_at = Instant::now();
                    let remote = b_to_a.open(publication.token()).wait(SOON).unwrap();
                    (revoking.join().unwrap(), asked_at, remote)
                });
                let source = vec![MARK; 16 * LEN];
                let counter = a_to_b.open_counter().wait(SOON).unwrap();
                let raises = b_to_a.remote_counter(counter.token()).wait(SOON).unwrap();
                b_to_a.write_and_count(source, &remote, &raises).wait(SOON).unwrap();
                counter.reach(1).wait(SOON).unwrap();
                let mut arrived = vec![0; 16 * LEN];
                publication.read_at(0, &mut arrived);
                assert!(arrived.iter().all(|byte| *byte == MARK), "bytes that were counted are not there");
                if revoked.is_some_and(|at| asked_at < at) {
                    return;
                }
            }
            panic!("no exchange was met in {ROUNDS} rounds");
        });
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_peer_that_does_not_answer_and_goes_on_changes_nothing() {
        on_host_a(|| late::a_peer_that_does_not_answer_and_goes_on_changes_nothing(&place(), open));
    }
}
