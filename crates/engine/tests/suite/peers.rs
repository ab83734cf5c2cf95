//! Several peers, several threads, futures, and ends.

use std::future::Future;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use farreach::{ErrorKind, PageMap, Rights};

use super::pair::{Pair, RailUnderTest, SOON, copy_of, counter, fill, grant, join};

pub(crate) fn eight_peers_at_once(provider: &RailUnderTest) {
    let hub = provider.engine("hub");
    let spokes: Vec<_> = (0..8)
        .map(|number| {
            let spoke = provider.engine(&format!("spoke {number}"));
            let (spoke_to_hub, hub_to_spoke) = join(&spoke, &hub);
            (spoke, spoke_to_hub, hub_to_spoke)
        })
        .collect();
    let mut source = hub.allocate(256 * 1024).wait(SOON).unwrap();
    fill(&mut source, 9);
    let source = source.share();
    let mut under_way = Vec::new();
    for (spoke, spoke_to_hub, hub_to_spoke) in &spokes {
        let (granted, remote) = grant(spoke, spoke_to_hub, hub_to_spoke, 256 * 1024, Rights::WRITE);
        let (arrived, raises) = counter(spoke_to_hub, hub_to_spoke);
        let map = PageMap::of(1024).first(256);
        let transfer = hub_to_spoke.write_pages(source.clone(), &map, &remote, Some(&raises));
        under_way.push((transfer, granted, arrived));
    }
    for (transfer, granted, arrived) in &mut under_way {
        transfer.wait(SOON).unwrap();
        arrived.reach(256).wait(SOON).unwrap();
        assert!(copy_of(granted) == *source);
    }
}

struct Unpark {
    thread: thread::Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Runs a future to its end. This thread never leads; the engine's worker does. The future is polled
/// only if it was woken, as by any executor.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let unpark = Arc::new(Unpark { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let (mut future, deadline) = (pin!(future), Instant::now() + SOON);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !unpark.is_woken.swap(false, Ordering::SeqCst) {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(left > Duration::ZERO, "the future was not woken");
            thread::park_timeout(left);
        }
    }
}

pub(crate) fn futures_need_no_thread_that_waits(provider: &RailUnderTest) {
    let (a, b) = (provider.engine("a"), provider.engine("b"));
    let address = b.listen("127.0.0.1:0").unwrap();
    block_on(async {
        let a_to_b = a.connect(address).unwrap().await.unwrap();
        let b_to_a = b.accept().await.unwrap();
        let granted =
            b_to_a.grant(b.allocate(64 * 4096).wait(SOON).unwrap(), Rights::WRITE).wait(SOON).unwrap();
        let arrived = b_to_a.open_counter().wait(SOON).unwrap();
        b_to_a.send(granted.token().to_string()).await.unwrap();
        b_to_a.send(arrived.token().to_string()).await.unwrap();
        let grant = String::from_utf8(a_to_b.recv().await.unwrap()).unwrap();
        let counter = String::from_utf8(a_to_b.recv().await.unwrap()).unwrap();
        let remote = a_to_b.remote(grant.parse().unwrap()).await.unwrap();
        let raises = a_to_b.remote_counter(counter.parse().unwrap()).await.unwrap();
        let map = PageMap::of(4096).first(64);
        let transfer =
            a_to_b.write_pages(a.allocate(64 * 4096).wait(SOON).unwrap(), &map, &remote, Some(&raises));
        arrived.reach(64).await.unwrap();
        transfer.await.unwrap();
        granted.begin_revoke(SOON).await.unwrap();
    });
}

pub(crate) fn threads_share_an_engine(provider: &RailUnderTest) {
    let pair = Arc::new(Pair::new(provider));
    let threads: Vec<_> = (0..4_u64)
        .map(|seed| {
            let pair = Arc::clone(&pair);
            thread::spawn(move || {
                for round in 0..10 {
                    let (granted, remote) = pair.granted(32 * 1024, Rights::WRITE);
                    let (arrived, raises) = pair.counter();
                    let source = pair.source(32 * 1024, seed * 100 + round).share();
                    let map = PageMap::of(512).first(64);
                    let mut transfer = pair.a_to_b.write_pages(source.clone(), &map, &remote, Some(&raises));
                    arrived.reach(64).wait(SOON).unwrap();
                    transfer.wait(SOON).unwrap();
                    assert!(copy_of(&granted) == *source);
                    granted.revoke(SOON).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

pub(crate) fn a_peer_that_leaves_and_comes_again_is_served(provider: &RailUnderTest) {
    let hub = provider.engine("hub");
    for round in 0..3 {
        let spoke = provider.engine(&format!("round {round}"));
        let (spoke_to_hub, hub_to_spoke) = join(&spoke, &hub);
        assert_eq!(hub_to_spoke.name(), format!("round {round}"));
        let (granted, remote) = grant(&hub, &hub_to_spoke, &spoke_to_hub, 64 * 1024, Rights::WRITE);
        let map = PageMap::of(4096).first(16);
        let source = spoke.allocate(64 * 1024).wait(SOON).unwrap();
        spoke_to_hub.write_pages(source, &map, &remote, None).wait(SOON).unwrap();
        drop((spoke_to_hub, spoke));
        let lost = hub_to_spoke.recv().wait(SOON);
        assert_eq!(lost.unwrap_err().kind(), ErrorKind::PeerLost);
        let refused = hub_to_spoke.grant(granted.revoke(SOON).unwrap(), Rights::READ).wait(SOON).unwrap_err();
        assert!(refused.error.kind() == ErrorKind::PeerLost && refused.memory.is_some(), "{refused:?}");
        // The engine may have forgotten the peer by now, but the handle knows the reason.
        let unsent = hub_to_spoke.send("too late").wait(SOON).unwrap_err();
        let reason = hub_to_spoke.lost().unwrap().clone();
        assert_eq!(unsent.lost(), Some(&reason));
    }
}

pub(crate) fn nobody_listens_and_a_stranger_are_told_of(provider: &RailUnderTest) {
    let a = provider.engine("a");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let start = Instant::now();
    let error = a.connect(free).unwrap().wait(SOON).unwrap_err();
    assert!(error.to_string().contains(&free.to_string()) && error.cause().contains("refused"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(2));
    // A stranger is refused, and the engine keeps accepting peers.
    let address = a.listen("127.0.0.1:0").unwrap();
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let b = provider.engine("b");
    let b_to_a = b.connect(address).unwrap().wait(SOON).unwrap();
    assert_eq!(b_to_a.name(), "a");
    assert_eq!(a.accept().wait(SOON).unwrap().name(), "b");
}

pub(crate) fn an_engine_that_ends_ends_all_waits(provider: &RailUnderTest) {
    let pair = Pair::new(provider);
    let (granted, remote) = pair.granted(4 << 20, Rights::WRITE);
    let (arrived, raises) = pair.counter();
    let map = PageMap::of(4096).first(1024);
    let source = pair.source(4 << 20, 1).share();
    let mut transfers: Vec<_> =
        (0..10).map(|_| pair.a_to_b.write_pages(source.clone(), &map, &remote, Some(&raises))).collect();
    let Pair { a, b, a_to_b, b_to_a } = pair;
    drop((granted, arrived, b_to_a, b));
    let start = Instant::now();
    for transfer in &mut transfers {
        match transfer.wait(SOON) {
            Ok(_) => {}
            // The grant and the counter end before the peer is lost.
            Err(error) => assert!(
                matches!(
                    error.error.kind(),
                    ErrorKind::PeerLost | ErrorKind::Revoked | ErrorKind::NotGranted
                ),
                "{error}"
            ),
        }
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop((a_to_b, a));
}
