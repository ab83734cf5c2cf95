//! The suite over memory that two processes map, and real faults of such processes.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farreach::{Engine, ErrorKind, PageMap, Rights, Settings};
use farreach_testkit::example;

use crate::faults::Place;
use crate::faults::any_instant::{Fault, a_fault_at_any_instant_ends_every_wait};
use crate::faults::node::Node;
use crate::faults::survivor::{SOON, Survivor};
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

/// Writes of one page are performed by the thread that asks for them. None of them lands after its
/// memory has come back, and each that has succeeded is counted.
#[test]
fn no_short_write_lands_or_is_counted_after_a_revoke() {
    const MARK: u8 = 0xa5;
    let pair = Pair::new(&SHM);
    let map = PageMap::of(64).first(1);
    for round in 0..20_u64 {
        let (grant, there) = pair.granted(4096, Rights::WRITE);
        let (counter, raises) = pair.counter();
        let source = pair.source(64, round).share();
        let (succeeded, failed) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut succeeded = 0;
                loop {
                    let mut write = pair.a_to_b.write_pages(source.clone(), &map, &there, Some(&raises));
                    match write.wait(SOON) {
                        Ok(_) => succeeded += 1,
                        Err(failed) => return (succeeded, failed),
                    }
                }
            });
            counter.reach(round * 50).wait(SOON).unwrap();
            let back = grant.revoke(SOON).unwrap();
            let mut slice = back.try_into_slice().expect("the peer has confirmed that it has stopped");
            slice.fill(MARK);
            let ended = writer.join().unwrap();
            assert!(slice.iter().all(|byte| *byte == MARK), "round {round}: a late byte");
            ended
        });
        // A grant whose end this side has confirmed is not known any more.
        let is_expected = matches!(failed.error.kind(), ErrorKind::Revoked | ErrorKind::NotGranted);
        assert!(is_expected, "{failed}");
        counter.reach(succeeded).wait(SOON).unwrap();
        assert_eq!(counter.reached(), succeeded, "round {round}");
    }
}

/// In a process of its own, because it counts its descriptors. `cargo xtask soak` makes more faults.
#[test]
fn faults_at_random_instants_leave_nothing_behind() {
    let run = Command::new(example("soak")).args(["rails=shm", "faults=2"]).output().unwrap();
    let told = [run.stdout, run.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(run.status.success() && told.contains("as before"), "{told}");
}

/// A grant belongs to one peer, so each process has a word of its own, and this one changes all of
/// them at the same time. Eight processes on one word: `farreach-shm`, `host/processes`.
#[test]
fn words_that_eight_processes_and_their_owner_change_have_the_right_sums() {
    /// The same as in the node.
    const ADDS: u64 = 2000;
    let survivor = Survivor::alone(&PLACE);
    let mut adders = Vec::new();
    for _ in 0..8 {
        let node = Node::connect(&PLACE, "add", survivor.address);
        let peer = survivor.engine.accept().wait(SOON).unwrap();
        let memory = survivor.engine.allocate(4096).wait(SOON).unwrap();
        let grant = peer.grant(memory, Rights::ATOMIC).wait(SOON).unwrap();
        adders.push((node, peer, grant));
    }
    for (_, peer, grant) in &adders {
        peer.send(grant.token().to_string()).wait(SOON).unwrap();
    }
    let (mut own, mut swapped, until) = (0, 0, Instant::now() + SOON);
    let first = |at| adders.iter().map(|(_, _, grant)| grant.atomic_at(at).load(Ordering::SeqCst)).min();
    // For as long as one of them has not finished.
    while first(0) < Some(ADDS + own) || first(8) < Some(ADDS + swapped) {
        assert!(Instant::now() < until, "{:?} and {:?} after {own} and {swapped}", first(0), first(8));
        for (_, _, grant) in &adders {
            grant.atomic_at(0).fetch_add(1, Ordering::SeqCst);
            let swap = |word: u64| Some(word + 1);
            grant.atomic_at(8).fetch_update(Ordering::SeqCst, Ordering::SeqCst, swap).unwrap();
        }
        (own, swapped) = (own + 1, swapped + 1);
    }
    for (node, peer, grant) in adders {
        assert_eq!(peer.recv().wait(SOON).unwrap(), b"added");
        let sums = [0, 8].map(|at| grant.atomic_at(at).load(Ordering::SeqCst));
        assert_eq!(sums, [ADDS + own, ADDS + swapped]);
        peer.send("done").wait(SOON).unwrap();
        assert_eq!(node.ends_well(), "with all sums");
    }
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
