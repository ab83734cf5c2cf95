//! Another peer, which is served while the fault happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farreach::{Engine, PageMap, Peer, Rights};

use super::Place;
use super::node::Node;

/// The same as in the node.
const LEN: usize = 256 << 10;
const PAGE: usize = 4 << 10;
const PAGES: u64 = (LEN / PAGE) as u64;

/// A round takes milliseconds, and seconds while a rail is reset.
const SOON: Duration = Duration::from_secs(20);

/// A process that writes back what is written to it, and the thread that writes to it and verifies
/// the result.
pub(crate) struct Steady {
    node: Node,
    rounds: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Steady {
    pub(crate) fn start(place: &Place, engine: &Engine, address: std::net::SocketAddr) -> Self {
        let node = Node::connect(place, "echo", address);
        let peer = engine.accept().wait(SOON).unwrap();
        assert_eq!(peer.name(), "echo");
        let (rounds, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (engine, counted, over) = (engine.clone(), Arc::clone(&rounds), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || serve(&engine, &peer, &counted, &over));
        let steady = Self { node, rounds, is_over, thread: Some(thread) };
        steady.goes_on();
        steady
    }

    /// Returns how many rounds have succeeded.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::SeqCst)
    }

    /// Waits for two more rounds, of which the second has begun after this call.
    #[track_caller]
    pub(crate) fn goes_on(&self) {
        let (before, deadline) = (self.rounds(), Instant::now() + SOON);
        while self.rounds() < before + 2 {
            let is_serving = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
            if !is_serving {
                panic!(
                    "the other peer is not served any more, see above; it says: ended {}",
                    self.node.says("ended")
                );
            }
            assert!(Instant::now() < deadline, "the other peer is not served");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it. Returns how many rounds there were.
    pub(crate) fn finish(mut self) -> u64 {
        self.is_over.store(true, Ordering::SeqCst);
        let thread = self.thread.take().expect("it is finished once");
        thread.join().expect("every round went well");
        let rounds = self.rounds();
        assert!(self.node.says("ended").starts_with("PeerLost"), "the engine has said goodbye");
        rounds
    }
}

/// Exchanges round after round with the node.
fn serve(engine: &Engine, peer: &Peer, rounds: &AtomicU64, is_over: &AtomicBool) {
    let told = String::from_utf8(peer.recv().wait(SOON).unwrap()).unwrap();
    let (grant, counter) = told.split_once(' ').unwrap();
    let there = peer.remote(grant.parse().unwrap()).wait(SOON).unwrap();
    let raises = peer.remote_counter(counter.parse().unwrap()).wait(SOON).unwrap();
    let here = peer.grant(engine.allocate(LEN).wait(SOON).unwrap(), Rights::WRITE).wait(SOON).unwrap();
    let arrived = peer.open_counter().wait(SOON).unwrap();
    peer.send(format!("{} {}", here.token(), arrived.token())).wait(SOON).unwrap();

    let map = PageMap::of(PAGE as u64).first(PAGES as u32);
    let (mut source, mut back) = (engine.allocate(LEN).wait(SOON).unwrap(), vec![0; LEN]);
    let mut round = 0;
    while !is_over.load(Ordering::SeqCst) {
        round += 1;
        fill(&mut source, round);
        let done = peer.write_pages(source, &map, &there, Some(&raises)).wait(SOON);
        let done = done.unwrap_or_else(|error| panic!("to the other peer, round {round}: {error}, {peer:?}"));
        source = done.buffer.into_slice().unwrap();
        let arrival = arrived.reach(round * PAGES).wait(SOON);
        assert!(arrival.is_ok(), "from the other peer, round {round}: {arrival:?}, {peer:?}");
        here.read_at(0, &mut back);
        assert!(back == *source, "round {round} came back changed");
        assert_eq!(arrived.reached(), round * PAGES, "counted once each");
        rounds.store(round, Ordering::SeqCst);
    }
    assert!(peer.lost().is_none(), "{peer:?}");
}

/// Fills with words that differ by place and round.
fn fill(bytes: &mut [u8], round: u64) {
    for (place, word) in bytes.chunks_exact_mut(8).enumerate() {
        let mixed = (place as u64 ^ round.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word.copy_from_slice(&mixed.to_le_bytes());
    }
}
