//! Atomics.

use std::thread;

use farreach::{CompareSwap, ErrorKind, Rights};

use super::pair::{Pair, RailUnderTest, SOON};

pub(crate) fn atomics_add_and_swap_where_a_rail_can(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(4096, Rights::ATOMIC | Rights::READ | Rights::WRITE);
    let has_atomics = pair.a.rail_properties().iter().any(|rail| rail.has_atomics);
    assert!(provider.has_atomics.is_none_or(|expected| expected == has_atomics));
    if !has_atomics {
        assert_eq!(
            pair.a_to_b.fetch_add(&remote.get(0..8).unwrap(), 1).wait(SOON).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
        return;
    }
    assert_eq!(pair.a_to_b.fetch_add(&remote.get(8..16).unwrap(), 5).wait(SOON).unwrap(), 0);
    assert_eq!(pair.a_to_b.fetch_add(&remote.get(8..16).unwrap(), 5).wait(SOON).unwrap(), 5);
    assert_eq!(
        pair.a_to_b
            .compare_and_swap(&remote.get(8..16).unwrap(), CompareSwap { expected: 10, desired: 99 })
            .wait(SOON)
            .unwrap(),
        10
    );
    assert_eq!(
        pair.a_to_b
            .compare_and_swap(&remote.get(8..16).unwrap(), CompareSwap { expected: 10, desired: 1 })
            .wait(SOON)
            .unwrap(),
        99,
        "it was not as expected"
    );
    let mut word = [0; 8];
    granted.read_at(8, &mut word);
    assert_eq!(u64::from_ne_bytes(word), 99);
    for bytes in [4..12, 0..16, 0..4, 0..0, 4088..4095] {
        let refused = pair.a_to_b.fetch_add(&remote.get(bytes).unwrap(), 1).wait(SOON);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Argument);
    }
    // Each is done once, however many threads request one at the same time.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (peer, remote) = (pair.a_to_b.clone(), remote.clone());
            thread::spawn(move || {
                for _ in 0..50 {
                    peer.fetch_add(&remote.get(16..24).unwrap(), 1).wait(SOON).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(pair.a_to_b.fetch_add(&remote.get(16..24).unwrap(), 0).wait(SOON).unwrap(), 200);
    let (_other, unprotected) = pair.granted(4096, Rights::WRITE);
    assert_eq!(
        pair.a_to_b.fetch_add(&unprotected.get(0..8).unwrap(), 1).wait(SOON).unwrap_err().kind(),
        ErrorKind::NotGranted
    );
}
