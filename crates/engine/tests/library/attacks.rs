//! Safe programs that once got memory changed, or read, that was not theirs any more, or held others up. The
//! peers are processes that are stopped in the middle of what they do; `cargo xtask soundness` runs these tests.

use std::time::{Duration, Instant};

use farreach::{Access, Engine, Exposed, Peer, Publication, RemoteSlice, Rights, Slice, leaked_bytes};

use crate::faults::node::Node;
use crate::faults::survivor::{LEN, Survivor};
use crate::faults::{MARK, Place};
use crate::suite::{SOON, settings};

const SHM: Place = Place {
    rails: &["shm"],
    rounds: || 4,
    heartbeat: Duration::from_millis(200),
    // Longer than a test: nobody is lost.
    silence: Duration::from_secs(120),
};

/// How long a revocation waits for a peer that is stopped.
const PATIENCE: Duration = Duration::from_secs(1);

/// Starts a process with access to this memory, and waits until it is busy.
fn start(survivor: &Survivor, role: &str, token: impl FnOnce(&Peer) -> String) -> (Node, Peer) {
    let node = Node::connect(&SHM, role, survivor.address);
    let peer = survivor.engine.accept().wait(SOON).unwrap();
    let token = token(&peer);
    peer.send(token).wait(SOON).unwrap();
    node.says("works");
    (node, peer)
}

fn publish(survivor: &Survivor, len: usize) -> Publication<Exposed> {
    let memory = survivor.engine.allocate(len).wait(SOON).unwrap().expose();
    survivor.engine.publish_exposed(memory, Rights::READ | Rights::WRITE, Access::Anyone).wait(SOON).unwrap()
}

/// Connects an engine to the survivor, and opens its publication.
fn open(survivor: &Survivor, publication: &Publication<Exposed>) -> (Engine, [Peer; 2], RemoteSlice) {
    let engine = Engine::with(settings("other").rails(SHM.rails.iter().copied())).unwrap();
    let peer = engine.connect(survivor.address).unwrap().wait(SOON).unwrap();
    let accepted = survivor.engine.accept().wait(SOON).unwrap();
    let remote = peer.open(publication.token()).wait(SOON).unwrap();
    (engine, [peer, accepted], remote)
}

/// Waits until the memory is proven to be out of reach.
fn slice_of(memory: Exposed) -> Slice {
    let (mut memory, until) = (Some(memory), Instant::now() + SOON);
    loop {
        match memory.take().expect("it was put back").try_into_slice() {
            Ok(slice) => return slice,
            Err(exposed) => memory = Some(exposed),
        }
        assert!(Instant::now() < until, "nothing proves it");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_reader_that_is_stopped_in_its_copy_reads_nothing_of_the_owners_slice() {
    let survivor = Survivor::alone(&SHM);
    for _ in 0..(SHM.rounds)() {
        let memory = survivor.engine.allocate(LEN).wait(SOON).unwrap();
        let mut grant = None;
        let (node, _peer) = start(&survivor, "read", |peer| {
            grant = Some(peer.grant(memory, Rights::READ).wait(SOON).unwrap());
            grant.as_ref().expect("it was just made").token().to_string()
        });
        node.stop();
        let memory = grant.take().expect("it was made").revoke(PATIENCE).unwrap();
        let mut slice = memory.try_into_slice().expect("the exchange of its pages proves it");
        slice.fill(0xEE);
        node.cont();
        let said = node.ends_well();
        assert!(said.starts_with("0 bytes"), "{said}");
        drop(slice);
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn shared_memory_stays_shared_while_a_reader_is_stopped_in_its_copy() {
    let survivor = Survivor::alone(&SHM);
    let memory = survivor.engine.allocate(LEN).wait(SOON).unwrap();
    let publication = survivor.engine.publish(memory, Access::Anyone).wait(SOON).unwrap();
    let token = publication.token().to_string();
    let (mut node, peer) = start(&survivor, "open-read", |_| token);
    node.stop();
    publication.revoke_peer(&peer, PATIENCE).wait(SOON).expect("it reads nothing new");
    let mut shared = publication.revoke(PATIENCE).unwrap();
    shared = shared.try_unshare().expect_err("the reader may go on");
    node.kill();
    let until = Instant::now() + SOON;
    while let Err(still) = shared.try_unshare() {
        shared = still;
        assert!(Instant::now() < until, "the end of its process is the proof");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_reference_to_an_atomic_locks_nobody_out() {
    let survivor = Survivor::alone(&SHM);
    let publication = publish(&survivor, LEN);
    publication.atomic_at(8);
    let (mut node, peer) = start(&survivor, "open", |_| publication.token().to_string());
    let (_engine, [other, _accepted], remote) = open(&survivor, &publication);
    // Of other memory, and of another writer.
    let second = publish(&survivor, LEN);
    let (second_node, second_peer) = start(&survivor, "open", |_| second.token().to_string());
    node.stop();
    second_node.stop();
    publication.revoke_peer(&peer, PATIENCE).wait(SOON).expect_err("nothing proves it");
    second.revoke_peer(&second_peer, PATIENCE).wait(SOON).expect("an exchange proves it");
    other.write(vec![MARK; LEN], &remote).wait(SOON).unwrap();
    assert!(other.link_errors().is_empty(), "it need not pause: {:?}", other.link_errors());
    open(&survivor, &publication);
    node.kill();
    // It waits for the end of the process.
    while publication.revoke_peer(&peer, PATIENCE).wait(SOON).is_err() {}
    let mut bytes = vec![0; LEN];
    publication.read_at(0, &mut bytes);
    assert!(bytes[..LEN].iter().all(|byte| *byte == MARK));
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_deadline_in_an_exchange_leaks_nothing_and_holds_nobody_up() {
    let survivor = Survivor::alone(&SHM);
    let leaked = leaked_bytes();
    let (long, short) = (128 * LEN, LEN);
    let granted = [long, short].map(|len| {
        let memory = survivor.engine.allocate(len).wait(SOON).unwrap();
        let mut grant = None;
        let (node, _) = start(&survivor, "read", |peer| {
            grant = Some(peer.grant(memory, Rights::READ).wait(SOON).unwrap());
            grant.as_ref().expect("it was just made").token().to_string()
        });
        node.stop();
        (node, grant.expect("it was made"))
    });
    let [(_one, first), (_two, second)] = granted;
    // Too little time for the first one. Its exchange goes on, beside that of the second one.
    let memory = first.revoke(Duration::from_millis(20)).unwrap();
    let other = second.revoke(PATIENCE).unwrap();
    slice_of(other);
    slice_of(memory);
    assert_eq!(leaked_bytes(), leaked);
}
