//! Memory that is granted, and wanted back.

use std::time::Duration;

use farreach::{Error, Outcome, PageMap, Rights, TransferReason};

use farreach_testkit::wait_for;

use super::pair::{Pair, RailUnderTest, SOON, byte_at, copy_of, proves};

pub(crate) fn a_slice_comes_back_with_what_was_written(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    for seed in 1..5 {
        let (granted, remote) = pair.granted(64 * 1024, Rights::WRITE | Rights::READ);
        let map = PageMap::contiguous(4096, 16);
        pair.a_to_b.write_pages(pair.source(64 * 1024, seed), &map, &remote, None).wait(SOON).unwrap();
        let memory = granted.revoke(SOON).unwrap();
        assert!(memory.to_vec().iter().enumerate().all(|(at, byte)| *byte == byte_at(at as u64, seed)));
        // A card proves that the peer has stopped; over tcp its word is all there is.
        assert_eq!(memory.try_into_slice().is_ok(), proves(&pair.b));
    }
}

pub(crate) fn what_was_revoked_takes_no_more_pages(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(4 << 20, Rights::WRITE);
    let token = granted.token();
    let (_arrived, raises) = pair.counter();
    let source = pair.source(4 << 20, 1).share();
    let map = PageMap::contiguous(4096, 1024);
    let mut under_way: Vec<_> =
        (0..20).map(|_| pair.a_to_b.write_pages(source.clone(), &map, &remote, Some(&raises))).collect();
    // In the middle of it.
    let memory = granted.revoke(SOON).unwrap();
    memory.write_at(0, &vec![0xEE; memory.len()]);
    for transfer in &mut under_way {
        match transfer.wait(SOON) {
            Ok(_) => {}
            // It was under way, or came when the grant was gone already.
            Err(error) => {
                let is_told = matches!(error.reason, TransferReason::Revoked | TransferReason::NotGranted);
                assert!(is_told, "{error}");
            }
        }
    }
    let late = pair.a_to_b.write_pages(source, &map, &remote, None).wait(SOON).unwrap_err();
    assert_eq!(late.reason, TransferReason::NotGranted);
    let gone = pair.a_to_b.remote(token).wait(Duration::from_millis(20));
    assert!(matches!(gone, Err(Error::NotOffered { .. })), "{gone:?}");
    std::thread::sleep(Duration::from_millis(50));
    assert!(memory.to_vec().iter().all(|byte| *byte == 0xEE), "a late write has landed");
}

pub(crate) fn rights_are_kept(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let map = PageMap::contiguous(4096, 1);
    let (readable, remote) = pair.granted(4096, Rights::READ);
    let error = pair.a_to_b.write_pages(pair.source(4096, 1), &map, &remote, None).wait(SOON).unwrap_err();
    assert_eq!(error.reason, TransferReason::NotGranted);
    assert!(error.buffer.is_some());
    assert!(copy_of(&readable).iter().all(|byte| *byte == 0));
    let (_writable, remote) = pair.granted(4096, Rights::WRITE);
    let into = pair.a.allocate(4096).unwrap();
    let error = pair.a_to_b.read_pages(&remote, &map, into).wait(SOON).unwrap_err();
    assert_eq!(error.reason, TransferReason::NotGranted);
}

pub(crate) fn a_grant_of_a_lost_peer_comes_back(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(1 << 20, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let map = PageMap::contiguous(65536, 16);
    pair.a_to_b.write_pages(pair.source(1 << 20, 1), &map, &remote, Some(&raises)).wait(SOON).unwrap();
    assert_eq!(arrived.wait(16, SOON), Outcome::Reached);
    let Pair { a, a_to_b, b: _b, b_to_a } = pair;
    drop((a_to_b, a));
    assert_eq!(arrived.wait(17, SOON), Outcome::PeerLost);
    let memory = granted.revoke(SOON).unwrap();
    assert!(memory.to_vec().iter().enumerate().all(|(at, byte)| *byte == byte_at(at as u64, 1)));
    drop(b_to_a);
}

/// Again and again, also where nothing proves that the peer has stopped; and with the engine goes whatever could reach it.
pub(crate) fn what_came_back_is_granted_again(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let mut memory = pair.b.allocate(64 * 1024).unwrap().expose();
    for seed in 1..5 {
        let granted = pair.b_to_a.grant(memory, Rights::WRITE).unwrap();
        let remote = pair.a_to_b.remote(granted.token()).wait(SOON).unwrap();
        let map = PageMap::contiguous(4096, 16);
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
