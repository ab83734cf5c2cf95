//! Waits for several operations at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use farreach::{ErrorKind, PageMap, Pending, Rights, Waitable};

use super::pair::{Pair, RailUnderTest, SOON, join};

const BRIEF: Duration = Duration::from_millis(100);

pub(crate) fn the_first_of_several_results_is_found(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(64 << 10, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let map = PageMap::of(4096).first(16);
    let mut message = pair.b_to_a.recv();
    let mut pages = arrived.reach(16);
    let mut peer = pair.b.accept();
    let wait = |message: &mut Pending<Vec<u8>>, pages: &mut Pending<()>, peer: &mut Pending<_>, timeout| {
        pair.b.wait_any(&mut [message, pages, peer], timeout)
    };
    let nothing = wait(&mut message, &mut pages, &mut peer, BRIEF).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::TimedOut, "{nothing}");
    let mut transfer = pair.a_to_b.write_pages(pair.source(64 << 10, 1), &map, &remote, Some(&raises));
    assert_eq!(wait(&mut message, &mut pages, &mut peer, SOON).unwrap(), 1);
    pages.wait(Duration::ZERO).unwrap();
    // It is still available, and the first one that is available is found.
    assert_eq!(wait(&mut message, &mut pages, &mut peer, SOON).unwrap(), 1);
    pair.a_to_b.send("hello").wait(SOON).unwrap();
    assert_eq!(pair.b.wait_any(&mut [&mut message, &mut peer], SOON).unwrap(), 0);
    assert_eq!(message.wait(Duration::ZERO).unwrap(), b"hello");
    let mut message = pair.b_to_a.recv();
    let c = provider.engine("c");
    let address = pair.b.listen("127.0.0.1:0").unwrap();
    let mut connecting = c.connect(address).unwrap();
    assert_eq!(pair.b.wait_any(&mut [&mut message, &mut peer], SOON).unwrap(), 1);
    let accepted = peer.wait(Duration::ZERO).unwrap();
    assert_eq!(accepted.name(), "c");
    // An operation with several stages, and one of an engine that another thread drives.
    assert_eq!(c.wait_any(&mut [&mut message, &mut connecting], SOON).unwrap(), 1);
    let c_to_b = connecting.wait(Duration::ZERO).unwrap();
    c_to_b.send("from c").wait(SOON).unwrap();
    let mut of_c = accepted.recv();
    assert_eq!(pair.a.wait_any(&mut [&mut message, &mut of_c], SOON).unwrap(), 1);
    assert_eq!(of_c.wait(Duration::ZERO).unwrap(), b"from c");
    assert_eq!(pair.a.wait_any(&mut [], SOON).unwrap_err().kind(), ErrorKind::Argument);
    transfer.wait(SOON).unwrap();
}

pub(crate) fn all_of_several_results_are_waited_for(provider: &RailUnderTest) {
    const TRANSFERS: usize = 100;
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(64 << 10, Rights::WRITE);
    let map = PageMap::of(1024).first(64);
    let source = pair.source(64 << 10, 1).share();
    let mut transfers: Vec<_> =
        (0..TRANSFERS).map(|_| pair.a_to_b.write_pages(source.clone(), &map, &remote, None)).collect();
    let mut late = pair.a_to_b.recv();
    let answering = {
        let b_to_a = pair.b_to_a.clone();
        thread::spawn(move || {
            thread::sleep(BRIEF);
            b_to_a.send("late").wait(SOON).unwrap();
        })
    };
    let mut waits: Vec<&mut dyn Waitable> = transfers.iter_mut().map(|it| it as _).collect();
    waits.push(&mut late);
    pair.a.wait_all(&mut waits, SOON).unwrap();
    for transfer in &mut transfers {
        transfer.wait(Duration::ZERO).unwrap();
    }
    assert_eq!(late.wait(Duration::ZERO).unwrap(), b"late");
    answering.join().unwrap();
    pair.a.wait_all(&mut [], Duration::ZERO).unwrap();
    // One of them has no result in time: the others keep theirs.
    let (mut sent, mut never) = (pair.a_to_b.send("now"), pair.a_to_b.recv());
    let (start, waits) = (Instant::now(), &mut [&mut never as &mut dyn Waitable, &mut sent]);
    let error = pair.a.wait_all(waits, 2 * BRIEF).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(start.elapsed() >= 2 * BRIEF);
    sent.wait(Duration::ZERO).unwrap();
    assert_eq!(pair.b_to_a.recv().wait(SOON).unwrap(), b"now");
}

pub(crate) fn a_wait_for_several_ends_when_a_peer_is_lost(provider: &RailUnderTest) {
    let Pair { a, b, a_to_b, b_to_a } = Pair::new(provider);
    let c = provider.engine("c");
    let (c_to_b, b_to_c) = join(&c, &b);
    let (mut of_a, mut of_c) = (b_to_a.recv(), b_to_c.recv());
    let leaving = thread::spawn(move || {
        thread::sleep(BRIEF);
        drop((a_to_b, a));
    });
    assert_eq!(b.wait_any(&mut [&mut of_c, &mut of_a], SOON).unwrap(), 1);
    assert_eq!(of_a.wait(Duration::ZERO).unwrap_err().kind(), ErrorKind::PeerLost);
    leaving.join().unwrap();
    // Closed by another thread.
    let mut any = b.recv_any();
    let closing = {
        let b = b.clone();
        thread::spawn(move || {
            thread::sleep(BRIEF);
            b.close(SOON).unwrap();
        })
    };
    b.wait_all(&mut [&mut of_c, &mut any], SOON).unwrap();
    assert_eq!(of_c.wait(Duration::ZERO).unwrap_err().kind(), ErrorKind::PeerLost);
    assert_eq!(any.wait(Duration::ZERO).unwrap_err().kind(), ErrorKind::Ended);
    closing.join().unwrap();
    drop(c_to_b);
}

pub(crate) fn changes_without_a_result_extend_no_wait(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (_granted, remote) = pair.granted(64 << 10, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let (map, is_over) = (PageMap::of(8).first(64), AtomicBool::new(false));
    let source = pair.source(4096, 1).share();
    thread::scope(|scope| {
        // Each write raises the counter, and is no result.
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                pair.a_to_b.write_pages(source.clone(), &map, &remote, Some(&raises)).wait(SOON).unwrap();
            }
        });
        let (mut pages, mut message) = (arrived.reach(u64::MAX), pair.b_to_a.recv());
        let start = Instant::now();
        let error = pair.b.wait_any(&mut [&mut pages, &mut message], 2 * BRIEF).unwrap_err();
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let took = start.elapsed();
        assert!(took >= 2 * BRIEF && took < Duration::from_secs(3), "{took:?}");
    });
    assert!(arrived.reached() > 0);
}

pub(crate) fn threads_wait_for_several_results_at_once(provider: &RailUnderTest) {
    const ROUNDS: usize = 200;
    let pair = Pair::new(provider);
    let c = provider.engine("c");
    let (c_to_b, b_to_c) = join(&c, &pair.b);
    thread::scope(|scope| {
        for sender in [&pair.a_to_b, &c_to_b] {
            scope.spawn(|| (0..ROUNDS).for_each(|_| sender.send("x").wait(SOON).unwrap()));
        }
        // Followers as well as leaders.
        let takers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let (mut taken, deadline) = (0, Instant::now() + SOON);
                    let (mut of_a, mut of_c) = (pair.b_to_a.recv(), b_to_c.recv());
                    while Instant::now() < deadline {
                        let found = match pair.b.wait_any(&mut [&mut of_a, &mut of_c], 5 * BRIEF) {
                            Ok(0) => of_a.try_take(),
                            Ok(_) => of_c.try_take(),
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::TimedOut);
                                break;
                            }
                        };
                        taken += usize::from(found.is_some_and(|found| found.is_ok()));
                    }
                    taken
                })
            })
            .collect();
        let taken: usize = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        assert_eq!(taken, 2 * ROUNDS);
    });
}
