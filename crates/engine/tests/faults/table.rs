//! Every operation, ended in every way, with a peer that runs, is stopped or is killed. Memory that
//! was returned or freed is overwritten at once; then both sides look for unexpected bytes.

use std::mem;
use std::time::Duration;

use farreach::{
    Engine, Exposed, Grant, PageMap, Peer, Pending, RemoteSlice, Rights, Settings, Slice, Transfer,
};
use farreach_testkit::try_combinations;

use super::Place;
use super::node::Node;

/// The byte that returned memory is filled with. It is never sent.
const POISON: u8 = 0xEE;
/// The same as in the node.
const LEN: usize = 1 << 20;
const PAGE: usize = 64 << 10;
const SOON: Duration = Duration::from_secs(20);
/// How long a peer stays stopped if no wait depends on it.
const STOPPED: Duration = Duration::from_millis(100);
/// How long memory is watched.
const WATCHED: Duration = Duration::from_millis(100);
/// Transfers, messages or atomics at once.
const AT_ONCE: usize = 6;

#[derive(Debug, Clone, Copy)]
enum Operation {
    WriteSlice,
    WriteShared,
    Read,
    Send,
    Atomic,
    Grant,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Wait,
    TimeOut,
    Drop,
    Forget,
    Abort,
    DropPeer,
    CloseEngine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Well,
    Stopped,
    Killed,
}

const OPERATIONS: [Operation; 6] = [
    Operation::WriteSlice,
    Operation::WriteShared,
    Operation::Read,
    Operation::Send,
    Operation::Atomic,
    Operation::Grant,
];
const WAYS: [Way; 7] =
    [Way::Wait, Way::TimeOut, Way::Drop, Way::Forget, Way::Abort, Way::DropPeer, Way::CloseEngine];
const STATES: [State; 3] = [State::Well, State::Stopped, State::Killed];

/// The number of combinations, and a step that visits each once.
const COMBINATIONS: usize = OPERATIONS.len() * WAYS.len() * STATES.len();
const STEP: usize = 41;

pub(crate) fn every_operation_ends_in_every_way(place: &Place) {
    let of = |index: usize| {
        let operation = OPERATIONS[index % OPERATIONS.len()];
        let way = WAYS[index / OPERATIONS.len() % WAYS.len()];
        (operation, way, STATES[index / OPERATIONS.len() / WAYS.len()])
    };
    let run = |index| {
        let (operation, way, state) = of(index);
        combine(place, operation, way, state);
    };
    try_combinations(COMBINATIONS, STEP, |index| format!("{:?}", of(index)), run);
}

fn combine(place: &Place, operation: Operation, way: Way, state: State) {
    let settings = Settings::new().name("table").rails(place.rails.iter().copied());
    let engine = Engine::with(settings.heartbeat(place.heartbeat).peer_timeout(place.silence)).unwrap();
    let address = engine.listen("127.0.0.1:0").unwrap();
    let mut node = Node::connect(place, "hold", address);
    let peer = engine.accept().wait(SOON).unwrap();
    let token = String::from_utf8(peer.recv().wait(SOON).unwrap()).unwrap();
    let remote = peer.remote(token.parse().unwrap()).wait(SOON).unwrap();

    let begun = Begun::begin(operation, &engine, &peer, &remote);
    match state {
        State::Well => {}
        State::Stopped => drop(node.stop()),
        State::Killed => drop(node.kill()),
    }
    let (peer, back) = end(begun, way, engine, peer);
    // Returned memory belongs to this side, and freed memory may be what is allocated next.
    let mut ours = back.ours();
    let fresh = (0..AT_ONCE).map(|_| farreach::Memory::allocate(LEN).unwrap());
    ours.extend(fresh);
    ours.iter_mut().for_each(|slice| slice.fill(POISON));
    if state == State::Stopped {
        std::thread::sleep(STOPPED);
        node.cont();
    }
    std::thread::sleep(WATCHED);
    let changed = ours.iter().flat_map(|slice| slice.iter()).filter(|byte| **byte != POISON).count();
    assert_eq!(changed, 0, "bytes of ours were changed after they had come back");
    if let Some(peer) = peer {
        // The peer may be lost.
        let _ = peer.send("done").wait(SOON);
    }
    if state != State::Killed {
        assert_eq!(node.ends_well(), "clean");
    }
}

/// Operations that were begun.
enum Begun {
    Transfers(Vec<Transfer>),
    Messages(Vec<Pending<()>>),
    Atomics(Vec<Pending<u64>>),
    Grant(Grant),
}

/// Memory that was returned.
#[derive(Default)]
struct Back {
    slices: Vec<Slice>,
    exposed: Vec<Exposed>,
}

impl Back {
    /// Returns the slices that only this side can access.
    fn ours(self) -> Vec<Slice> {
        let proven = self.exposed.into_iter().filter_map(|memory| memory.try_into_slice().ok());
        self.slices.into_iter().chain(proven).collect()
    }
}

impl Begun {
    fn begin(operation: Operation, engine: &Engine, peer: &Peer, remote: &RemoteSlice) -> Self {
        let map = PageMap::of(PAGE as u64).first((LEN / PAGE) as u32);
        let source = || {
            let mut slice = engine.allocate(LEN).wait(SOON).unwrap();
            slice.fill(0x11);
            slice
        };
        let (all, word) = (0..AT_ONCE, remote.get(0..8).unwrap());
        match operation {
            Operation::WriteSlice => {
                Self::Transfers(all.map(|_| peer.write_pages(source(), &map, remote, None)).collect())
            }
            Operation::WriteShared => {
                let shared = source().share();
                Self::Transfers(all.map(|_| peer.write_pages(shared.clone(), &map, remote, None)).collect())
            }
            Operation::Read => {
                Self::Transfers(all.map(|_| peer.read_pages(remote, &map, source())).collect())
            }
            Operation::Send => Self::Messages(all.map(|_| peer.send(vec![0x11; 1000])).collect()),
            Operation::Atomic => Self::Atomics(all.map(|_| peer.fetch_add(&word, 0x11)).collect()),
            Operation::Grant => {
                let grant = peer.grant(source(), Rights::WRITE).wait(SOON).unwrap();
                peer.send(format!("write {}", grant.token())).wait(SOON).unwrap();
                std::thread::sleep(Duration::from_millis(5));
                Self::Grant(grant)
            }
        }
    }

    /// Waits this long for each operation.
    fn wait(self, time: Duration) -> Back {
        let mut back = Back::default();
        match self {
            Self::Transfers(transfers) => {
                for mut transfer in transfers {
                    let buffer = match transfer.wait(time) {
                        Ok(done) => Some(done.buffer),
                        Err(error) => error.buffer,
                    };
                    back.slices.extend(buffer.and_then(|buffer| buffer.into_slice().ok()));
                }
            }
            Self::Messages(messages) => messages.into_iter().for_each(|mut it| drop(it.wait(time))),
            Self::Atomics(words) => words.into_iter().for_each(|mut it| drop(it.wait(time))),
            Self::Grant(grant) => back.exposed.extend(grant.begin_revoke(SOON).wait(time)),
        }
        back
    }
}

/// Ends the operations in this way. Returns the memory that was returned, and the peer if its
/// handle still exists.
fn end(begun: Begun, way: Way, engine: Engine, peer: Peer) -> (Option<Peer>, Back) {
    let back = match way {
        Way::Wait => begun.wait(SOON),
        Way::TimeOut => begun.wait(Duration::from_millis(1)),
        Way::Drop => {
            drop(begun);
            Back::default()
        }
        Way::Forget => {
            mem::forget(begun);
            Back::default()
        }
        Way::Abort => {
            if let Begun::Transfers(transfers) = &begun {
                transfers.iter().for_each(Transfer::abort);
            }
            begun.wait(SOON)
        }
        Way::DropPeer => {
            drop((peer, engine));
            return (None, begun.wait(SOON));
        }
        Way::CloseEngine => {
            let _ = engine.close(Duration::from_secs(1));
            return (None, begun.wait(SOON));
        }
    };
    drop(engine);
    (Some(peer), back)
}
