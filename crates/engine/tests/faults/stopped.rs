//! A victim that is stopped for longer than the silence after which a peer is lost, and then
//! continues.

use farreach::{ErrorKind, PageMap};

use super::survivor::{LEN, PAGE, PAGES, SOON, Survivor, stays_marked};
use super::{DEADLINE, GRACE, Place};

pub(crate) fn a_sender_that_is_stopped_is_lost_and_nothing_of_it_lands_when_it_goes_on(place: &Place) {
    let mut survivor = Survivor::new(place);
    let mut memory = survivor.engine.allocate(LEN).wait(SOON).unwrap().expose();
    for round in 0..(place.rounds)() {
        memory.write_at(0, &vec![0; LEN]);
        let (victim, peer, grant, arrived) = survivor.sender(memory);
        let reached = u64::from(round) * 37 % (3 * PAGES) + 1;
        arrived.reach(reached).wait(SOON).unwrap();
        let fault = victim.stop();
        assert_eq!(arrived.reach(u64::MAX).wait(DEADLINE).unwrap_err().kind(), ErrorKind::PeerLost);
        survivor.ended(fault, place.silence);
        memory = survivor.take_back(grant, &peer);
        stays_marked(&memory);
        victim.cont();
        // The victim's own wait ends too.
        let said = victim.ends_well();
        assert!(said.contains("the peer is lost"), "{said}");
        stays_marked(&memory);
    }
    survivor.finish();
}

pub(crate) fn a_receiver_that_is_stopped_is_lost(place: &Place) {
    let mut survivor = Survivor::new(place);
    let map = PageMap::of(PAGE as u64).first(PAGES as u32);
    for round in 0..(place.rounds)() {
        let (victim, peer, there, raises) = survivor.receiver();
        let mut source = survivor.engine.allocate(LEN).wait(SOON).unwrap();
        source.fill(round as u8);
        let source = source.share();
        let write = || peer.write_pages(source.clone(), &map, &there, Some(&raises));
        write().wait(SOON).unwrap();
        let mut transfers: Vec<_> = (0..8).map(|_| write()).collect();
        let fault = victim.stop();
        let failed = transfers.iter_mut().filter_map(|transfer| transfer.wait(DEADLINE).err());
        let mut failed: Vec<_> = failed.collect();
        // A card accepts writes while its process is stopped, so no transfer fails before the
        // silence of the peer is noticed.
        while failed.is_empty() {
            assert!(fault.elapsed() < place.silence + GRACE, "a stopped receiver is not found out");
            failed.extend(write().wait(DEADLINE).err());
        }
        survivor.ended(fault, place.silence);
        for error in &failed {
            assert_eq!(error.error.kind(), ErrorKind::PeerLost, "{error}");
        }
        victim.cont();
        // The victim gets its memory back, and has verified that nothing landed late.
        let said = victim.ends_well();
        assert!(said.starts_with("PeerLost"), "{said}");
    }
    survivor.finish();
}
