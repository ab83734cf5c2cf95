//! The survivor: one engine, the peer that it keeps serving, and the time that each fault took.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farreach::{Counter, Engine, Exposed, Grant, Peer, RemoteCounter, RemoteSlice, Rights, Settings};

use super::node::Node;
use super::steady::Steady;
use super::{DEADLINE, GRACE, MARK, Place, WATCHED};

/// The same as in the node.
pub(crate) const LEN: usize = 4 << 20;
pub(crate) const PAGE: usize = 64 << 10;
pub(crate) const PAGES: u64 = (LEN / PAGE) as u64;

/// Time limit of operations that succeed.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Survivor {
    pub(crate) place: Place,
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    steady: Option<Steady>,
    /// The time from the fault to the end of the wait, for each round.
    pub(crate) took: Vec<Duration>,
}

impl Survivor {
    /// Creates one that serves another peer meanwhile.
    pub(crate) fn new(place: &Place) -> Self {
        let mut survivor = Self::alone(place);
        survivor.steady = Some(Steady::start(place, &survivor.engine, survivor.address));
        survivor
    }

    /// Creates one without another peer.
    pub(crate) fn alone(place: &Place) -> Self {
        let settings = Settings::new().name("survivor").rails(place.rails.iter().copied());
        let engine = Engine::with(settings.heartbeat(place.heartbeat).peer_timeout(place.silence)).unwrap();
        let address = engine.listen("127.0.0.1:0").unwrap();
        Self { place: *place, engine, address, steady: None, took: Vec::new() }
    }

    /// Starts a victim that sends. Returns the grant and the counter that it writes to.
    pub(crate) fn sender(&self, memory: impl Into<Exposed>) -> (Node, Peer, Grant, Counter) {
        let node = Node::connect(&self.place, "send", self.address);
        let peer = self.engine.accept().wait(SOON).unwrap();
        assert_eq!(peer.name(), "send");
        let grant = peer.grant(memory, Rights::WRITE).wait(SOON).unwrap();
        let counter = peer.open_counter().wait(SOON).unwrap();
        peer.send(format!("{} {}", grant.token(), counter.token())).wait(SOON).unwrap();
        (node, peer, grant, counter)
    }

    /// Starts a victim that receives. Returns its memory and its counter.
    pub(crate) fn receiver(&self) -> (Node, Peer, RemoteSlice, RemoteCounter) {
        let node = Node::start(&self.place, "receive", &[]);
        let address: SocketAddr = node.says("listening at").parse().unwrap();
        let peer = self.engine.connect(address).unwrap().wait(SOON).unwrap();
        let told = String::from_utf8(peer.recv().wait(SOON).unwrap()).unwrap();
        let (grant, counter) = told.split_once(' ').unwrap();
        let memory = peer.remote(grant.parse().unwrap()).wait(SOON).unwrap();
        let counter = peer.remote_counter(counter.parse().unwrap()).wait(SOON).unwrap();
        (node, peer, memory, counter)
    }

    /// Checks that a wait has ended in time after a fault, and that the other peer is served.
    #[track_caller]
    pub(crate) fn ended(&mut self, fault: Instant, expected: Duration) {
        let took = fault.elapsed();
        self.took.push(took);
        assert!(took < expected + GRACE, "the wait ended {took:?} after the fault");
        assert!(took < DEADLINE + GRACE, "and after its deadline");
        self.steady().goes_on();
    }

    pub(crate) fn steady(&self) -> &Steady {
        self.steady.as_ref().expect("it is there until the end")
    }

    /// Revokes the victim's grant. Returns the memory, filled with the mark.
    #[track_caller]
    pub(crate) fn take_back(&self, grant: Grant, peer: &Peer) -> Exposed {
        let revoked = grant.revoke(DEADLINE);
        let memory = revoked.unwrap_or_else(|error| panic!("{error}: {peer:?}, {:?}", peer.link_errors()));
        assert_eq!(memory.keys(), 0, "nothing proves it: {peer:?}, {:?}", peer.link_errors());
        mark(&memory);
        memory
    }

    pub(crate) fn finish(mut self) {
        let steady = self.steady.take().expect("it is there until the end");
        drop(self.engine);
        let rounds = steady.finish();
        let (count, max) = (self.took.len(), self.took.iter().max().copied().unwrap_or_default());
        let mean = self.took.iter().sum::<Duration>() / count.max(1) as u32;
        eprintln!(
            "{count} faults: the wait ended after {mean:?} on average, {max:?} at most; {rounds} rounds of the other peer"
        );
    }
}

pub(crate) fn mark(memory: &Exposed) {
    memory.write_at(0, &vec![MARK; memory.len()]);
}

/// Checks that nothing lands in marked memory for a while.
#[track_caller]
pub(crate) fn stays_marked(memory: &Exposed) {
    std::thread::sleep(WATCHED);
    let changed = memory.to_vec().iter().filter(|byte| **byte != MARK).count();
    assert_eq!(changed, 0, "bytes that a late write has changed");
}
