//! Late writes: what a peer writes to memory that is not its to write to any more.

use std::time::{Duration, Instant};

use farreach::provider::Provider;
use farreach::{Outcome, Rights};

use super::rogue::{Answer, Rogue};
use super::survivor::{LEN, SOON, Survivor, stays_marked};
use super::{DEADLINE, MARK, Place};

/// How long a peer goes on by a key that is dead.
const LATE: Duration = Duration::from_millis(500);

pub(crate) fn a_peer_that_has_promised_to_stop_and_goes_on_changes_nothing(
    place: &Place,
    open: fn() -> Box<dyn Provider>,
) {
    let survivor = Survivor::new(place);
    let rogue = Rogue::start(survivor.address, Answer::AtOnce, open);
    let peer = survivor.engine.accept().wait(SOON).unwrap();
    let grant = peer.grant(survivor.engine.allocate(LEN).unwrap(), Rights::WRITE).unwrap();
    rogue.has_written_to(&grant);
    let memory = survivor.take_back(grant, &peer);
    let before = rogue.posts_by_a_dead_key();
    std::thread::sleep(LATE);
    stays_marked(&memory);
    let posts = rogue.posts_by_a_dead_key() - before;
    assert!(posts > 0, "the peer has stopped, which it should not");
    eprintln!("{posts} posts by a dead key");
    survivor.steady().goes_on();
    rogue.finish();
    stays_marked(&memory);
    survivor.finish();
}

pub(crate) fn a_peer_that_does_not_answer_and_goes_on_changes_nothing(
    place: &Place,
    open: fn() -> Box<dyn Provider>,
) {
    const PATIENCE: Duration = Duration::from_millis(500);
    let survivor = Survivor::new(place);
    let rogue = Rogue::start(survivor.address, Answer::Never, open);
    let peer = survivor.engine.accept().wait(SOON).unwrap();
    let mut grant = Some(peer.grant(survivor.engine.allocate(LEN).unwrap(), Rights::WRITE).unwrap());
    rogue.has_written_to(grant.as_ref().expect("it was made"));
    let start = Instant::now();
    let mut attempts = 0;
    // The first time the proof may not be there when the patience is over; the rail begins anew then, and the next one has it.
    let mut memory = loop {
        attempts += 1;
        match grant.take().expect("it is handed back").revoke(PATIENCE) {
            Ok(memory) => break memory,
            Err(error) => grant = error.grant,
        }
        assert!(start.elapsed() < DEADLINE, "the memory does not come back");
    };
    eprintln!("the memory was back after {:?}, by {attempts} attempts", start.elapsed());
    memory.fill(MARK);
    let before = rogue.posts_by_a_dead_key();
    std::thread::sleep(LATE);
    stays_marked(&memory);
    assert!(rogue.posts_by_a_dead_key() > before, "the peer has stopped, which it should not");
    survivor.steady().goes_on();
    rogue.finish();
    stays_marked(&memory);
    survivor.finish();
}

/// Where no key is enforced: the end of the process is the proof, and nothing before it.
pub(crate) fn memory_does_not_come_back_while_a_stopped_process_may_write_to_it(place: &Place) {
    let survivor = Survivor::alone(place);
    let (mut victim, peer, grant, arrived) = survivor.sender(survivor.engine.allocate(LEN).unwrap());
    assert_eq!(arrived.wait(10, SOON), Outcome::Reached);
    victim.stop();
    let patience = place.silence * 2;
    let start = Instant::now();
    let refused = grant.revoke(patience).expect_err("a stopped process may go on writing");
    let took = start.elapsed();
    assert!(took >= patience && took < patience + super::GRACE, "{took:?}: {refused}");
    assert_eq!(arrived.wait(u64::MAX, DEADLINE), Outcome::PeerLost, "that it is lost proves nothing");
    let grant = refused.grant.expect("it is handed back");
    let refused = grant.revoke(patience).expect_err("it still may");
    victim.kill();
    let memory = survivor.take_back(refused.grant.expect("it is handed back"), &peer);
    stays_marked(&memory);
}

/// And its word, as long as there is somebody to say it to.
pub(crate) fn memory_comes_back_when_a_stopped_process_goes_on_and_says_so(place: &Place) {
    let place = Place { silence: Duration::from_secs(20), ..*place };
    let survivor = Survivor::alone(&place);
    let (victim, peer, grant, arrived) = survivor.sender(survivor.engine.allocate(LEN).unwrap());
    assert_eq!(arrived.wait(10, SOON), Outcome::Reached);
    victim.stop();
    let refused = grant.revoke(Duration::from_secs(1)).expect_err("a stopped process may go on writing");
    victim.cont();
    let memory = survivor.take_back(refused.grant.expect("it is handed back"), &peer);
    stays_marked(&memory);
    // Of a transfer that was under way, or of the next one.
    let said = victim.ends_well();
    assert!(said.contains("revoked") || said.contains("not granted"), "{said}");
    stays_marked(&memory);
}
