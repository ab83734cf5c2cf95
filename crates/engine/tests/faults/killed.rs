//! A victim that is killed.

use std::time::Duration;

use farreach::{ErrorKind, PageMap};
use farreach_testkit::wait_for;

use super::survivor::{LEN, PAGE, PAGES, SOON, Survivor, stays_marked};
use super::{DEADLINE, Place};

/// The kernel closes the connections of a killed process, and the survivor notices it at once.
const AT_ONCE: Duration = Duration::ZERO;

pub(crate) fn a_sender_that_is_killed_is_lost_and_its_memory_comes_back(place: &Place) {
    let mut survivor = Survivor::new(place);
    let mut memory = survivor.engine.allocate(LEN).wait(SOON).unwrap().expose();
    for round in 0..(place.rounds)() {
        memory.write_at(0, &vec![0; LEN]);
        let (mut victim, peer, grant, arrived) = survivor.sender(memory);
        // In the middle of a transfer: of the first one, or of a later one.
        let reached = u64::from(round) * 37 % (3 * PAGES) + 1;
        arrived.reach(reached).wait(SOON).unwrap();
        let fault = victim.kill();
        assert_eq!(arrived.reach(u64::MAX).wait(DEADLINE).unwrap_err().kind(), ErrorKind::PeerLost);
        survivor.ended(fault, AT_ONCE);
        assert!(peer.lost().is_some());
        memory = survivor.take_back(grant, &peer);
        stays_marked(&memory);
    }
    survivor.finish();
}

pub(crate) fn a_receiver_that_is_killed_is_lost(place: &Place) {
    let mut survivor = Survivor::new(place);
    let map = PageMap::of(PAGE as u64).first(PAGES as u32);
    let mut returned = 0;
    for round in 0..(place.rounds)() {
        let (mut victim, peer, there, raises) = survivor.receiver();
        let source = survivor.engine.allocate(LEN).wait(SOON).unwrap().share();
        // Enough transfers that the fault falls into one of them.
        let write = || peer.write_pages(source.clone(), &map, &there, Some(&raises));
        write().wait(SOON).unwrap();
        let mut transfers: Vec<_> = (0..8).map(|_| write()).collect();
        std::thread::sleep(Duration::from_micros(u64::from(round) * 373 % 4000));
        let fault = victim.kill();
        let failed = transfers.iter_mut().filter_map(|transfer| transfer.wait(DEADLINE).err());
        let failed: Vec<_> = failed.collect();
        // Over shared memory a write needs no answer, so all may have ended well.
        wait_for("the loss of the peer", || peer.lost().map(|_| ()));
        survivor.ended(fault, AT_ONCE);
        for error in &failed {
            assert_eq!(error.error.kind(), ErrorKind::PeerLost, "{error}");
            returned += u32::from(error.buffer.is_some());
        }
        let late = write().wait(DEADLINE).unwrap_err();
        assert_eq!(late.error.kind(), ErrorKind::PeerLost, "{late}");
        assert!(late.buffer.is_some(), "nothing was posted");
        eprintln!("round {round}: {} of 8 transfers had not ended, {returned} buffers", failed.len());
    }
    survivor.finish();
}
