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
    use farreach_testkit::{in_own_network, on_host_a};

    use super::{TWO_DEVICES, open, place};
    use crate::faults::cut::{Hosts, pages_of_a_rail_whose_link_is_cut_go_over_the_other_one as cut};
    use crate::faults::{killed, late, stopped, table};

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

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_peer_that_does_not_answer_and_goes_on_changes_nothing() {
        on_host_a(|| late::a_peer_that_does_not_answer_and_goes_on_changes_nothing(&place(), open));
    }
}
