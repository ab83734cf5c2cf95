//! Late writes: a peer writes to memory after its grant was revoked.

use std::time::{Duration, Instant};

use farreach::{Exposed, Grant, Peer, Rights};
use farreach_rail::{EndedKeys, Rail};
use farreach_testkit::wait_for;

use super::rogue::{Answer, Rogue};
use super::survivor::{LEN, SOON, Survivor, mark, stays_marked};
use super::{DEADLINE, Place};

/// How long a peer keeps writing with an ended key.
const LATE: Duration = Duration::from_millis(500);

pub(crate) fn a_peer_that_has_promised_to_stop_and_goes_on_changes_nothing(
    place: &Place,
    open: fn() -> Box<dyn Rail>,
) {
    let (survivor, rogue, _peer, grant) = written_to(place, Answer::AtOnce, open);
    let memory = grant.revoke(DEADLINE).unwrap();
    let proves = survivor.engine.rail_properties().iter().all(|rail| rail.ended_keys != EndedKeys::StopNew);
    assert_eq!(memory.keys() == 0, proves, "its word is no proof, and a card's key is");
    let before = rogue.posts_by_a_dead_key();
    // Writes that were in flight when the key ended are done by then.
    std::thread::sleep(LATE);
    mark(&memory);
    stays_marked_to_the_end(&memory, survivor, rogue, before);
}

pub(crate) fn a_peer_that_does_not_answer_and_goes_on_changes_nothing(
    place: &Place,
    open: fn() -> Box<dyn Rail>,
) {
    const PATIENCE: Duration = Duration::from_millis(500);
    let (survivor, rogue, _peer, grant) = written_to(place, Answer::Never, open);
    let start = Instant::now();
    let memory = grant.revoke(PATIENCE).unwrap();
    // On a card, the end of the key is the proof. Elsewhere the rail is reset, because the peer has
    // not answered.
    wait_for("proof that it has stopped", || (memory.keys() == 0).then_some(()));
    eprintln!("the memory was proven to be free after {:?}", start.elapsed());
    mark(&memory);
    let before = rogue.posts_by_a_dead_key();
    std::thread::sleep(LATE);
    stays_marked_to_the_end(&memory, survivor, rogue, before);
}

/// Starts a peer that writes to a grant, and waits until it has.
fn written_to(place: &Place, answer: Answer, open: fn() -> Box<dyn Rail>) -> (Survivor, Rogue, Peer, Grant) {
    let survivor = Survivor::new(place);
    let rogue = Rogue::start(survivor.address, answer, open);
    let peer = survivor.engine.accept().wait(SOON).unwrap();
    let grant =
        peer.grant(survivor.engine.allocate(LEN).wait(SOON).unwrap(), Rights::WRITE).wait(SOON).unwrap();
    rogue.has_written_to(&grant);
    (survivor, rogue, peer, grant)
}

/// Checks that the peer goes on, that the memory keeps its content, and that other peers are served.
fn stays_marked_to_the_end(memory: &Exposed, survivor: Survivor, rogue: Rogue, before: u64) {
    stays_marked(memory);
    rogue.goes_on(before);
    stays_marked(memory);
    survivor.steady().goes_on();
    rogue.finish();
    stays_marked(memory);
    survivor.finish();
}
