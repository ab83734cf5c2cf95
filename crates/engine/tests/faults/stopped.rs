//! A victim that is stopped for longer than the silence after which a peer is lost, and then
//! continues.

use std::time::Duration;

use farreach::{ErrorKind, PageMap, Slice};

use super::survivor::{LEN, PAGE, PAGES, SOON, Survivor, stays_marked};
use super::{DEADLINE, GRACE, MARK, Place};

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
        // The victim's own wait ends too. Over shared memory, its copy finds that the key was ended.
        let said = victim.ends_well();
        assert!(said.contains("the peer is lost") || said.contains("has revoked"), "{said}");
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

/// Over shared memory. The peer is not lost: only the deadline of the revoke ends the wait for it. It
/// is in the middle of a copy, because it does little else. `use_it` may use the memory meanwhile.
#[allow(dead_code, reason = "not every program has memory that two processes map")]
pub(crate) fn memory_of_a_peer_that_is_stopped_in_a_copy_is_a_slice_by_the_deadline(
    place: &Place,
    use_it: impl Fn(&Survivor, &mut Slice),
) {
    const PATIENCE: Duration = Duration::from_secs(2);
    let place = Place { silence: Duration::from_secs(30), ..*place };
    let survivor = Survivor::new(&place);
    for round in 0..(place.rounds)() {
        let memory = survivor.engine.allocate(LEN).wait(SOON).unwrap();
        let (victim, peer, grant, arrived) = survivor.sender(memory);
        arrived.reach(u64::from(round) * 37 % (3 * PAGES) + 1).wait(SOON).unwrap();
        let fault = victim.stop();
        let revoked = grant.revoke(PATIENCE).unwrap();
        let took = fault.elapsed();
        assert!(took < PATIENCE + Duration::from_millis(500), "the deadline has passed: {took:?}");
        if let Some(reason) = peer.lost() {
            victim.cont();
            panic!("round {round}: {reason:?}, {:?}, {}", peer.link_errors(), victim.ends_well());
        }
        assert_eq!(revoked.keys(), 0, "nothing proves it: {:?}", peer.link_errors());
        let mut slice = revoked.try_into_slice().expect("it has no key");
        slice.fill(MARK);
        use_it(&survivor, &mut slice);
        let memory = slice.expose();
        stays_marked(&memory);
        victim.cont();
        stays_marked(&memory);
        survivor.steady().goes_on();
    }
    survivor.finish();
}
