//! Memory that is kept back, because nothing proves that a stopped process writes to it no more.

use std::time::{Duration, Instant};

use farreach::Outcome;

use super::survivor::{LEN, SOON, Survivor, stays_marked};
use super::{DEADLINE, GRACE, Place};

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
    assert!(took >= patience && took < patience + GRACE, "{took:?}: {refused}");
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
