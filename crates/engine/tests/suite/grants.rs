//! Memory that is granted and revoked.

use std::time::Duration;

use farreach::{ErrorKind, PageMap, Rights};
use farreach_testkit::wait_for;

use super::pair::{Pair, RailUnderTest, SOON, byte_at, copy_of, proves};

pub(crate) fn a_slice_comes_back_with_what_was_written(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    for seed in 1..5 {
        let (granted, remote) = pair.granted(64 * 1024, Rights::WRITE | Rights::READ);
        let map = PageMap::of(4096).first(16);
        pair.a_to_b.write_pages(pair.source(64 * 1024, seed), &map, &remote, None).wait(SOON).unwrap();
        let memory = granted.revoke(SOON).unwrap();
        assert!(memory.to_vec().iter().enumerate().all(|(at, byte)| *byte == byte_at(at as u64, seed)));
        // A card proves that the peer has stopped; over tcp, there is only the peer's answer.
        assert_eq!(memory.try_into_slice().is_ok(), proves(&pair.b));
    }
}

pub(crate) fn what_was_revoked_takes_no_more_pages(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(4 << 20, Rights::WRITE);
    let token = granted.token();
    let (_arrived, raises) = pair.counter();
    let source = pair.source(4 << 20, 1).share();
    let map = PageMap::of(4096).first(1024);
    let mut under_way: Vec<_> =
        (0..20).map(|_| pair.a_to_b.write_pages(source.clone(), &map, &remote, Some(&raises))).collect();
    // In the middle of the transfers.
    let memory = granted.revoke(SOON).unwrap();
    memory.write_at(0, &vec![0xEE; memory.len()]);
    for transfer in &mut under_way {
        match transfer.wait(SOON) {
            Ok(_) => {}
            // It was in flight, or was begun when the grant was revoked already.
            Err(error) => {
                let is_told = matches!(error.error.kind(), ErrorKind::Revoked | ErrorKind::NotGranted);
                assert!(is_told, "{error}");
            }
        }
    }
    let late = pair.a_to_b.write_pages(source, &map, &remote, None).wait(SOON).unwrap_err();
    assert_eq!(late.error.kind(), ErrorKind::NotGranted);
    let gone = pair.a_to_b.remote(token).wait(Duration::from_millis(20));
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotGranted);
    std::thread::sleep(Duration::from_millis(50));
    assert!(memory.to_vec().iter().all(|byte| *byte == 0xEE), "a late write has landed");
}

pub(crate) fn rights_are_kept(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let map = PageMap::of(4096).first(1);
    let (readable, remote) = pair.granted(4096, Rights::READ);
    let error = pair.a_to_b.write_pages(pair.source(4096, 1), &map, &remote, None).wait(SOON).unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::NotGranted);
    assert!(error.buffer.is_some());
    assert!(copy_of(&readable).iter().all(|byte| *byte == 0));
    let (_writable, remote) = pair.granted(4096, Rights::WRITE);
    let into = pair.a.allocate(4096).wait(SOON).unwrap();
    let error = pair.a_to_b.read_pages(&remote, &map, into).wait(SOON).unwrap_err();
    assert_eq!(error.error.kind(), ErrorKind::NotGranted);
}

pub(crate) fn a_grant_of_a_lost_peer_comes_back(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(1 << 20, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let map = PageMap::of(65536).first(16);
    pair.a_to_b.write_pages(pair.source(1 << 20, 1), &map, &remote, Some(&raises)).wait(SOON).unwrap();
    arrived.reach(16).wait(SOON).unwrap();
    let Pair { a, a_to_b, b: _b, b_to_a } = pair;
    drop((a_to_b, a));
    assert_eq!(arrived.reach(17).wait(SOON).unwrap_err().kind(), ErrorKind::PeerLost);
    let memory = granted.revoke(SOON).unwrap();
    assert!(memory.to_vec().iter().enumerate().all(|(at, byte)| *byte == byte_at(at as u64, 1)));
    drop(b_to_a);
}

/// Granted repeatedly, also if nothing proves that the peer has stopped. When the engine is closed,
/// all keys to the memory end.
pub(crate) fn what_came_back_is_granted_again(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let mut memory = pair.b.allocate(64 * 1024).wait(SOON).unwrap().expose();
    for seed in 1..5 {
        let granted = pair.b_to_a.grant(memory, Rights::WRITE).wait(SOON).unwrap();
        let remote = pair.a_to_b.remote(granted.token()).wait(SOON).unwrap();
        let map = PageMap::of(4096).first(16);
        pair.a_to_b.write_pages(pair.source(64 * 1024, seed), &map, &remote, None).wait(SOON).unwrap();
        memory = granted.revoke(SOON).unwrap();
        assert!(memory.to_vec().iter().enumerate().all(|(at, byte)| *byte == byte_at(at as u64, seed)));
    }
    let Pair { a, b, a_to_b, b_to_a } = pair;
    b.close(SOON).unwrap();
    drop((a, a_to_b, b_to_a));
    wait_for("a slice", || (memory.keys() == 0).then_some(()));
    assert_eq!(memory.try_into_slice().unwrap().len(), 64 * 1024);
}
