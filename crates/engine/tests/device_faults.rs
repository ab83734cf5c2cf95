//! Real faults over verbs, on a real device. Every process is on the same host, and its rails on the same device.

mod faults;

use std::time::Duration;

use farreach::provider::Provider;
use farreach::provider::verbs::{VerbsProvider, VerbsSettings, rails_named};
use farreach_testkit::{Device, does_long_tests};
use faults::Place;

/// A guest that is emulated has seconds where others have milliseconds.
fn place() -> Place {
    // A device's name is known only here, and a place is made once in a process.
    let name: &'static str = Device::find().name.leak();
    let rails: &'static [&'static str] = Box::leak(Box::new([name]));
    Place { rails, rounds, heartbeat: Duration::from_millis(300), silence: Duration::from_secs(4) }
}

fn rounds() -> u32 {
    let all = if does_long_tests() { 10 } else { 2 };
    std::env::var("FARREACH_FAULTS")
        .map_or(all, |rounds| rounds.parse().expect("FARREACH_FAULTS is a number"))
}

/// A rail for a peer that is no engine.
fn open() -> Box<dyn Provider> {
    let settings = VerbsSettings::default();
    let rails = rails_named(&Device::find().name, &settings).unwrap();
    Box::new(VerbsProvider::open(&rails[0], &settings).unwrap())
}

mod one_device {
    use farreach_testkit::on_host_a;

    use crate::faults::{killed, late, stopped};
    use crate::{open, place};

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
    fn a_peer_that_has_promised_to_stop_and_goes_on_changes_nothing() {
        on_host_a(|| late::a_peer_that_has_promised_to_stop_and_goes_on_changes_nothing(&place(), open));
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn a_peer_that_does_not_answer_and_goes_on_changes_nothing() {
        on_host_a(|| late::a_peer_that_does_not_answer_and_goes_on_changes_nothing(&place(), open));
    }
}
