//! Late writes: what a peer writes to memory that is not its to write to any more.

use std::time::{Duration, Instant};

use farreach::Rights;
use farreach::provider::Provider;

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
    rogue.goes_on(before);
    stays_marked(&memory);
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
    rogue.goes_on(before);
    stays_marked(&memory);
    survivor.steady().goes_on();
    rogue.finish();
    stays_marked(&memory);
    survivor.finish();
}
