//! Counters that several peers raise.

use std::thread;
use std::time::{Duration, Instant};

use farreach::{
    Access, Engine, ErrorKind, Grant, PageMap, Peer, RemoteCounter, RemoteSlice, Rights, SharedCounter,
    SharedCounterToken,
};
use farreach_testkit::wait_for;

use super::pair::{RailUnderTest, SOON, grant, join};
use super::peers::block_on;

const BRIEF: Duration = Duration::from_millis(100);
const LEN: usize = 64 << 10;

/// A peer that writes to a store.
struct Writer {
    engine: Engine,
    to_store: Peer,
    peer: Peer,
    remote: RemoteSlice,
    _granted: Grant,
}

impl Writer {
    fn new(provider: &RailUnderTest, store: &Engine, number: usize) -> Self {
        let engine = provider.engine(&format!("writer {number}"));
        let (to_store, peer) = join(&engine, store);
        let (granted, remote) = grant(store, &peer, &to_store, LEN, Rights::WRITE);
        Self { engine, to_store, peer, remote, _granted: granted }
    }

    fn open(&self, counter: &SharedCounter) -> RemoteCounter {
        self.to_store.open_shared_counter(counter.token()).wait(SOON).unwrap()
    }

    fn write(&self, counter: &RemoteCounter, pages: u32) {
        let source = self.engine.allocate(LEN).wait(SOON).unwrap();
        let map = PageMap::of(1024).first(pages);
        self.to_store.write_pages(source, &map, &self.remote, Some(counter)).wait(SOON).unwrap();
    }

    fn leave(self) -> Peer {
        let Self { engine, to_store, peer, .. } = self;
        drop((to_store, engine));
        wait_for("the writer is lost", || peer.lost().map(drop));
        peer
    }
}

fn store(provider: &RailUnderTest, writers: usize) -> (Engine, Vec<Writer>, SharedCounter) {
    let engine = provider.engine("store");
    let writers = (0..writers).map(|number| Writer::new(provider, &engine, number)).collect();
    let counter = engine.open_counter(Access::Anyone).wait(SOON).unwrap();
    (engine, writers, counter)
}

pub(crate) fn pages_of_several_peers_are_added_up(provider: &RailUnderTest) {
    let (store, writers, arrived) = store(provider, 3);
    assert_eq!((arrived.peers(), arrived.reached()), (0, 0));
    let raises: Vec<RemoteCounter> = writers.iter().map(|writer| writer.open(&arrived)).collect();
    assert_eq!(writers[0].open(&arrived), raises[0], "the same counter");
    arrived.opened_by(3).wait(SOON).unwrap();
    assert_eq!(arrived.peers(), 3);
    thread::scope(|scope| {
        for (number, (writer, raises)) in writers.iter().zip(&raises).enumerate() {
            scope.spawn(move || (0..10).for_each(|_| writer.write(raises, 10 * (number as u32 + 1))));
        }
        arrived.reach(600).wait(SOON).unwrap();
    });
    assert_eq!(arrived.reached(), 600);
    for (number, writer) in writers.iter().enumerate() {
        assert_eq!(arrived.reached_by(&writer.peer), Some(100 * (number as u64 + 1)));
    }
    assert_eq!(arrived.reach(601).wait(BRIEF).unwrap_err().kind(), ErrorKind::TimedOut);
    // Counters of one writer are refused for another one.
    let source = writers[1].engine.allocate(LEN).wait(SOON).unwrap();
    let map = PageMap::of(1024).first(1);
    let refused = writers[1].to_store.write_pages(source, &map, &writers[1].remote, Some(&raises[0]));
    assert_eq!({ refused }.wait(SOON).unwrap_err().error.kind(), ErrorKind::NotGranted);
    let unknown: SharedCounterToken = "s-1".parse().unwrap();
    let error = writers[0].to_store.open_shared_counter(unknown).wait(SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotGranted, "{error}");
    let token = arrived.token();
    drop(arrived);
    // The thread that drives the store ends it in its next step.
    let refused = || writers[0].to_store.open_shared_counter(token).wait(SOON).err();
    let error = wait_for("a closed counter is not opened", refused);
    assert_eq!(error.kind(), ErrorKind::NotGranted, "{error}");
    let refused = || {
        let source = writers[0].engine.allocate(LEN).wait(SOON).unwrap();
        writers[0].to_store.write_pages(source, &map, &writers[0].remote, Some(&raises[0])).wait(SOON).err()
    };
    wait_for("a closed counter is refused", refused);
    drop(store);
}

pub(crate) fn each_of_several_peers_is_waited_for(provider: &RailUnderTest) {
    let (store, writers, arrived) = store(provider, 3);
    let error = arrived.reach_each(1).wait(SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument, "{error}");
    let raises: Vec<RemoteCounter> = writers.iter().map(|writer| writer.open(&arrived)).collect();
    // A writer may know of it before the store does.
    arrived.opened_by(3).wait(SOON).unwrap();
    let mut each = arrived.reach_each(16);
    writers[2].write(&raises[2], 16);
    writers[0].write(&raises[0], 40);
    writers[1].write(&raises[1], 15);
    // A write may be done before the store has counted it.
    arrived.reach(16 + 40 + 15).wait(SOON).unwrap();
    let error = each.wait(BRIEF).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("2 have written"), "{error}");
    // One that comes later does not count.
    let late = Writer::new(provider, &store, 3);
    late.open(&arrived);
    arrived.opened_by(4).wait(SOON).unwrap();
    let waiting = thread::spawn(move || block_on(each));
    thread::sleep(BRIEF / 2);
    writers[1].write(&raises[1], 1);
    waiting.join().unwrap().unwrap();
    arrived.reach_each(16).wait(BRIEF).unwrap_err();
    assert_eq!(arrived.reached(), 72);
}

pub(crate) fn waits_for_several_peers_end_when_one_is_lost(provider: &RailUnderTest) {
    let (store, mut writers, arrived) = store(provider, 3);
    let raises: Vec<RemoteCounter> = writers.iter().map(|writer| writer.open(&arrived)).collect();
    arrived.opened_by(3).wait(SOON).unwrap();
    writers[0].write(&raises[0], 8);
    arrived.reach(8).wait(SOON).unwrap();
    let (mut sum, mut each) = (arrived.reach(16), arrived.reach_each(8));
    let mut peers = arrived.opened_by(4);
    let task = {
        let sum = arrived.reach(16);
        thread::spawn(move || block_on(sum).unwrap_err().kind())
    };
    thread::sleep(BRIEF);
    let (start, lost) = (Instant::now(), writers.remove(0).leave());
    assert_eq!(sum.wait(SOON).unwrap_err().lost(), lost.lost());
    assert_eq!(task.join().unwrap(), ErrorKind::PeerLost);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    // The lost one has written its pages: they stay, and the wait for each goes on.
    assert_eq!((arrived.reached(), arrived.peers(), arrived.reached_by(&lost)), (8, 2, None));
    assert_eq!(each.wait(BRIEF).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(peers.wait(BRIEF).unwrap_err().kind(), ErrorKind::TimedOut);
    // One that has not.
    let lost = writers.remove(0).leave();
    assert_eq!(each.wait(SOON).unwrap_err().lost(), lost.lost());
    assert_eq!(each.wait(SOON).unwrap_err().lost(), lost.lost(), "it never will");
    // The wait for the sum goes on once the losses are reported, and others take over.
    assert_eq!(sum.wait(SOON).unwrap_err().lost(), lost.lost());
    writers[0].write(&raises[2], 7);
    assert_eq!(sum.wait(BRIEF).unwrap_err().kind(), ErrorKind::TimedOut);
    let again = Writer::new(provider, &store, 4);
    let raises_again = again.open(&arrived);
    again.write(&raises_again, 1);
    sum.wait(SOON).unwrap();
    arrived.reach_each(7).wait(BRIEF).unwrap_err();
    assert_eq!(arrived.reached(), 16);
    // The end of the engine ends them too.
    let mut waits = [arrived.reach(17), arrived.reach_each(100), arrived.opened_by(9)];
    let waiting: Vec<_> = waits.iter_mut().map(|wait| wait.try_take().is_none()).collect();
    assert_eq!(waiting, [true; 3]);
    store.close(SOON).unwrap();
    let kinds = waits.map(|mut wait| wait.wait(SOON).unwrap_err().kind());
    assert_eq!(kinds, [ErrorKind::PeerLost, ErrorKind::PeerLost, ErrorKind::Ended]);
    assert_eq!(arrived.reach(17).wait(SOON).unwrap_err().kind(), ErrorKind::Ended);
}

pub(crate) fn a_request_to_open_a_counter_ends_with_its_peer(provider: &RailUnderTest) {
    let (store, mut writers, arrived) = store(provider, 1);
    let Writer { engine, to_store, peer, remote, _granted: granted } = writers.remove(0);
    drop((store, peer, granted));
    // Either the store was there to answer, or it was not.
    match to_store.open_shared_counter(arrived.token()).wait(SOON) {
        Ok(_) => {}
        Err(error) => assert!(matches!(error.kind(), ErrorKind::PeerLost | ErrorKind::NotGranted), "{error}"),
    }
    wait_for("the store leaves", || to_store.lost().map(drop));
    let error = to_store.open_shared_counter(arrived.token()).wait(SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PeerLost, "{error}");
    drop((engine, remote));
}
