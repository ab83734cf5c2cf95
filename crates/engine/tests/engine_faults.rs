//! Real faults over libfabric's tcp, with whichever generation of it the dynamic linker finds.

mod faults;

use std::time::Duration;

use faults::Place;

const TCP: Place = Place {
    rails: &["tcp@127.0.0.1"],
    rounds,
    heartbeat: Duration::from_millis(100),
    silence: Duration::from_millis(500),
};

/// Fifty, where somebody has the time for them.
fn rounds() -> u32 {
    std::env::var("FARREACH_FAULTS").map_or(5, |rounds| rounds.parse().expect("FARREACH_FAULTS is a number"))
}

mod tcp {
    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_sender_that_is_killed_is_lost_and_its_memory_comes_back() {
        crate::faults::killed::a_sender_that_is_killed_is_lost_and_its_memory_comes_back(&crate::TCP);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_receiver_that_is_killed_is_lost() {
        crate::faults::killed::a_receiver_that_is_killed_is_lost(&crate::TCP);
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on() {
        crate::faults::stopped::a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on(
            &crate::TCP,
        );
    }

    #[test]
    #[ignore = "needs libfabric: cargo xtask test runs it"]
    fn a_receiver_that_is_stopped_is_lost() {
        crate::faults::stopped::a_receiver_that_is_stopped_is_lost(&crate::TCP);
    }
}
