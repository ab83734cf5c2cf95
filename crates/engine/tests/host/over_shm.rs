//! The suite over memory that two processes map, and real faults of such processes.

use std::time::{Duration, Instant};

use farreach::{Engine, ErrorKind, Rights, Settings};

use crate::faults::Place;
use crate::faults::any_instant::{Fault, a_fault_at_any_instant_ends_every_wait};
use crate::faults::survivor::SOON;
use crate::faults::{killed, stopped, table};
use crate::suite::{Pair, RailUnderTest, suite};

fn over(settings: Settings) -> Engine {
    Engine::with(settings.rails(["shm"])).unwrap()
}

const SHM: RailUnderTest = RailUnderTest { open: over, has_atomics: Some(true), rails: 1 };

fn here(test: impl FnOnce()) {
    test();
}

suite! {
    crate::over_shm::here;
    shm = crate::over_shm::SHM;
}

const PLACE: Place = Place {
    rails: &["shm"],
    rounds,
    heartbeat: Duration::from_millis(100),
    // An overloaded machine delays a process by up to half a second.
    silence: Duration::from_millis(1500),
};

/// The number of rounds; `FARREACH_FAULTS` sets it, for example to fifty.
fn rounds() -> u32 {
    match std::env::var("FARREACH_FAULTS") {
        Ok(rounds) => rounds.parse().expect("FARREACH_FAULTS is a number"),
        Err(_) => 5,
    }
}

#[test]
fn a_sender_that_is_killed_is_lost_and_its_memory_comes_back() {
    killed::a_sender_that_is_killed_is_lost_and_its_memory_comes_back(&PLACE);
}

#[test]
fn a_receiver_that_is_killed_is_lost() {
    killed::a_receiver_that_is_killed_is_lost(&PLACE);
}

#[test]
fn a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on() {
    stopped::a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on(&PLACE);
}

#[test]
fn a_receiver_that_is_stopped_is_lost() {
    stopped::a_receiver_that_is_stopped_is_lost(&PLACE);
}

#[test]
fn a_peer_that_is_killed_at_any_instant_ends_every_wait() {
    a_fault_at_any_instant_ends_every_wait(&PLACE, Fault::Kill);
}

#[test]
fn a_peer_that_is_stopped_at_any_instant_ends_every_wait() {
    a_fault_at_any_instant_ends_every_wait(&PLACE, Fault::Stop);
}

#[test]
fn every_operation_ends_in_every_way() {
    table::every_operation_ends_in_every_way(&PLACE);
}

#[test]
fn memory_of_a_peer_that_is_stopped_in_a_copy_is_a_slice_by_the_deadline() {
    stopped::memory_of_a_peer_that_is_stopped_in_a_copy_is_a_slice_by_the_deadline(&PLACE, |_, _| ());
}

#[test]
fn a_revoke_of_a_peer_that_answers_takes_no_time() {
    let pair = Pair::new(&SHM);
    let (mut slowest, mut total) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..20 {
        let (grant, _) = pair.granted(1 << 20, Rights::WRITE);
        let start = Instant::now();
        let memory = grant.revoke(SOON).unwrap();
        slowest = slowest.max(start.elapsed());
        total += start.elapsed();
        assert!(memory.try_into_slice().is_ok(), "a peer that answers confirms it");
    }
    // A proof by an exchange is asked for after a second.
    assert!(slowest < Duration::from_millis(900), "{slowest:?} at most, {total:?} for twenty");
}

#[test]
fn memory_that_no_other_process_can_map_is_refused_with_a_fix() {
    let pair = Pair::new(&SHM);
    let mut memory = pair.b.allocate(8192).wait(SOON).unwrap();
    let part = memory.split_off(100);
    let refused = pair.b_to_a.grant(part, Rights::WRITE).wait(SOON).unwrap_err();
    let text = format!("{} {}", refused.error, refused.error.fix());
    assert!(text.contains("shares a page") && text.contains("multiples of the page size"), "{text}");
    assert!(refused.memory.is_some(), "it comes back");
}

#[test]
fn messages_that_no_ring_holds_are_refused_when_the_rail_is_opened() {
    let error = Engine::with(Settings::new().rails(["shm"]).message_max(1 << 20)).unwrap_err();
    assert!(error.to_string().contains("message") || error.cause().contains("message"), "{error}");
}

#[test]
fn an_engine_that_requires_rdma_does_not_take_it() {
    let error = Engine::with(Settings::new().rails(["shm"]).require_rdma()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRail, "{error}");
}
