//! Real faults over libfabric's tcp, with the generation of the library that the dynamic linker
//! finds.

use std::time::Duration;

use farreach_fabric::Library;

use crate::faults::Place;
use crate::faults::cut::Cut;

const TCP: Place = Place {
    rails: &["tcp@127.0.0.1"],
    rounds,
    heartbeat: Duration::from_millis(100),
    // An overloaded machine delays a process by up to half a second.
    silence: Duration::from_millis(1500),
};

/// Two rails, over links that can be cut.
const TWO_TCP: Cut = Cut {
    place: Place { rails: &["tcp@192.0.2.1", "tcp@192.0.2.5"], ..TCP },
    far_rails: &["tcp@192.0.2.2", "tcp@192.0.2.6"],
    stall: Duration::from_millis(700),
    transfer_max: Duration::from_secs(6),
};

/// The number of rounds; `FARREACH_FAULTS` sets it, for example to fifty. Few with 1.17, whose tcp
/// crashes once in some hundreds of rounds (docs/PROVIDERS.md).
fn rounds() -> u32 {
    match std::env::var("FARREACH_FAULTS") {
        Ok(rounds) => rounds.parse().expect("FARREACH_FAULTS is a number"),
        Err(_) if Library::open().unwrap().version().major < 2 => 2,
        Err(_) => 5,
    }
}

mod tcp {
    use std::net::Ipv4Addr;

    use farreach::rails::fabric::{FabricRail, FabricSettings};
    use farreach_rail::Rail;
    use farreach_testkit::in_own_network;

    use crate::faults::any_instant::{Fault, a_fault_at_any_instant_ends_every_wait};
    use crate::faults::cut::Hosts;

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_sender_that_is_killed_is_lost_and_its_memory_comes_back() {
        crate::faults::killed::a_sender_that_is_killed_is_lost_and_its_memory_comes_back(&super::TCP);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_receiver_that_is_killed_is_lost() {
        crate::faults::killed::a_receiver_that_is_killed_is_lost(&super::TCP);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on() {
        crate::faults::stopped::a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on(
            &super::TCP,
        );
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_receiver_that_is_stopped_is_lost() {
        crate::faults::stopped::a_receiver_that_is_stopped_is_lost(&super::TCP);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_peer_that_is_killed_at_any_instant_ends_every_wait() {
        a_fault_at_any_instant_ends_every_wait(&super::TCP, Fault::Kill);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_peer_that_is_stopped_at_any_instant_ends_every_wait() {
        a_fault_at_any_instant_ends_every_wait(&super::TCP, Fault::Stop);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn pages_of_a_rail_whose_link_is_cut_go_over_the_other_one() {
        in_own_network(|| {
            let hosts = Hosts::new();
            crate::faults::cut::pages_of_a_rail_whose_link_is_cut_go_over_the_other_one(
                &super::TWO_TCP,
                &hosts,
            );
        });
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_peer_that_has_promised_to_stop_and_goes_on_changes_nothing() {
        crate::faults::late::a_peer_that_has_promised_to_stop_and_goes_on_changes_nothing(&super::TCP, open);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_peer_that_does_not_answer_and_goes_on_changes_nothing() {
        crate::faults::late::a_peer_that_does_not_answer_and_goes_on_changes_nothing(&super::TCP, open);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn every_operation_ends_in_every_way() {
        crate::faults::table::every_operation_ends_in_every_way(&super::TCP);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn what_is_stale_or_out_of_bounds_is_never_posted() {
        crate::faults::refused::what_is_stale_or_out_of_bounds_is_never_posted(open);
    }

    /// Opens a rail for a peer without an engine.
    fn open() -> Box<dyn Rail> {
        let bind = Some(Ipv4Addr::LOCALHOST.into());
        Box::new(FabricRail::open_named("tcp", bind, &FabricSettings::default()).unwrap())
    }
}
