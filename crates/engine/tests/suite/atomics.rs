//! Words.

use std::thread;

use farreach::{AtomicError, Rights};

use super::pair::{Pair, RailUnderTest, SOON};

pub(crate) fn atomics_add_and_swap_where_a_rail_can(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(4096, Rights::ATOMIC | Rights::READ | Rights::WRITE);
    let has_atomics = pair.a.rails().iter().any(|rail| rail.has_atomics);
    assert!(provider.has_atomics.is_none_or(|expected| expected == has_atomics));
    if !has_atomics {
        assert_eq!(pair.a_to_b.fetch_add(&remote, 0, 1).wait(SOON), Err(AtomicError::Unsupported));
        return;
    }
    assert_eq!(pair.a_to_b.fetch_add(&remote, 8, 5).wait(SOON), Ok(0));
    assert_eq!(pair.a_to_b.fetch_add(&remote, 8, 5).wait(SOON), Ok(5));
    assert_eq!(pair.a_to_b.compare_and_swap(&remote, 8, 10, 99).wait(SOON), Ok(10));
    assert_eq!(pair.a_to_b.compare_and_swap(&remote, 8, 10, 1).wait(SOON), Ok(99), "it was not as expected");
    let mut word = [0; 8];
    granted.read_at(8, &mut word);
    assert_eq!(u64::from_ne_bytes(word), 99);
    for offset in [4, 4096, u64::MAX] {
        let refused = pair.a_to_b.fetch_add(&remote, offset, 1).wait(SOON);
        assert!(matches!(refused, Err(AtomicError::NotEightAlignedBytes { .. })), "{refused:?}");
    }
    // Each is done once, however many ask at a time.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (peer, remote) = (pair.a_to_b.clone(), remote.clone());
            thread::spawn(move || {
                for _ in 0..50 {
                    peer.fetch_add(&remote, 16, 1).wait(SOON).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(pair.a_to_b.fetch_add(&remote, 16, 0).wait(SOON), Ok(200));
    let (_other, unprotected) = pair.granted(4096, Rights::WRITE);
    assert_eq!(pair.a_to_b.fetch_add(&unprotected, 0, 1).wait(SOON), Err(AtomicError::NotGranted));
}
