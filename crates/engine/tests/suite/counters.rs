//! How waits for a counter end.

use std::time::{Duration, Instant};

use farreach::{ErrorKind, PageMap, Rights};

use super::pair::{Pair, RailUnderTest, SOON, counter, join};

pub(crate) fn a_wait_ends_at_its_deadline(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (arrived, _raises) = pair.counter();
    let start = Instant::now();
    assert_eq!(arrived.reach(1).wait(Duration::from_millis(100)).unwrap_err().kind(), ErrorKind::TimedOut);
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(2), "{took:?}");
    arrived.reach(0).wait(Duration::ZERO).unwrap();
}

pub(crate) fn a_wait_ends_when_the_peer_is_gone(provider: &RailUnderTest) {
    let Pair { a, b, a_to_b, b_to_a } = Pair::new(provider);
    let (arrived, _raises) = counter(&b_to_a, &a_to_b);
    let waiting = std::thread::spawn(move || (arrived.reach(1).wait(SOON), Instant::now()));
    std::thread::sleep(Duration::from_millis(50));
    let left = Instant::now();
    drop((a_to_b, a));
    let (outcome, ended) = waiting.join().unwrap();
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PeerLost);
    assert!(ended - left < Duration::from_secs(3), "{:?}", ended - left);
    assert!(b_to_a.lost().is_some());
    assert!(b_to_a.open_counter().wait(SOON).is_err(), "a peer that is lost stays lost");
    drop(b);
}

pub(crate) fn a_wait_ends_when_the_transfer_is_given_up(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(64 << 20, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let source = pair.source(64 << 20, 1).share();
    let map = PageMap::of(4096).first(16384);
    let mut transfer = pair.a_to_b.write_pages(source, &map, &remote, Some(&raises));
    transfer.abort();
    match transfer.wait(SOON) {
        Err(error) => {
            assert_eq!(error.error.kind(), ErrorKind::Aborted);
            assert!(error.buffer.is_some(), "nothing is under way any more");
            assert_eq!(arrived.reach(16384).wait(SOON).unwrap_err().kind(), ErrorKind::Aborted);
        }
        // The transfer was faster than the abort.
        Ok(_) => arrived.reach(16384).wait(SOON).unwrap(),
    }
}

pub(crate) fn a_counter_counts_for_its_own_peer_alone(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let c = provider.engine("c");
    let (c_to_b, b_to_c) = join(&c, &pair.b);
    let (arrived, raises) = pair.counter();
    let (_granted, remote) = pair.granted(4096, Rights::WRITE);
    let map = PageMap::of(8).first(4);
    // A counter of another peer is refused.
    let refused =
        c_to_b.write_pages(c.allocate(4096).wait(SOON).unwrap(), &map, &remote, Some(&raises)).wait(SOON);
    assert_eq!(refused.unwrap_err().error.kind(), ErrorKind::NotGranted);
    pair.a_to_b.write_pages(pair.source(4096, 1), &map, &remote, Some(&raises)).wait(SOON).unwrap();
    arrived.reach(4).wait(SOON).unwrap();
    // The end of another peer does not end this wait.
    drop((c_to_b, c, b_to_c));
    assert_eq!(arrived.reach(5).wait(Duration::from_millis(300)).unwrap_err().kind(), ErrorKind::TimedOut);
}
