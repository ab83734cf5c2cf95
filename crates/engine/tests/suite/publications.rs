//! Memory that is published once and opened by many peers.

use std::time::{Duration, Instant};

use farreach::{
    Access, Engine, ErrorKind, PageMap, Peer, Publication, PublicationToken, RemoteSlice, Rights, Transfer,
};
use farreach_testkit::wait_for;

use super::pair::{RailUnderTest, SOON, byte_at, fill, join, proves};

const LEN: usize = 256 * 1024;
const PAGES: u32 = 64;

/// A store, and peers of it.
struct Store {
    engine: Engine,
    readers: Vec<Reader>,
}

/// A peer of the store.
struct Reader {
    engine: Engine,
    /// The store, as the reader sees it.
    store: Peer,
    /// The reader, as the store sees it.
    peer: Peer,
}

impl Store {
    fn new(provider: &RailUnderTest, readers: usize) -> Self {
        let engine = provider.engine("store");
        let reader = |number: usize| {
            let reader = provider.engine(&format!("reader {number}"));
            let (store, peer) = join(&reader, &engine);
            Reader { engine: reader, store, peer }
        };
        let readers = (0..readers).map(reader).collect();
        Self { engine, readers }
    }

    fn publish(&self, rights: Rights) -> Publication {
        let mut memory = self.engine.allocate(LEN).wait(SOON).unwrap();
        fill(&mut memory, 1);
        self.engine.publish_exposed(memory, rights, Access::Anyone).wait(SOON).unwrap()
    }
}

impl Reader {
    fn open(&self, token: PublicationToken) -> RemoteSlice {
        self.store.open(token).wait(SOON).unwrap()
    }

    fn read(&self, remote: &RemoteSlice) -> Transfer {
        let into = self.engine.allocate(LEN).wait(SOON).unwrap();
        self.store.read_pages(remote, &PageMap::of(4096).first(PAGES), into)
    }

    fn write(&self, remote: &RemoteSlice, seed: u64) -> Transfer {
        let mut from = self.engine.allocate(LEN).wait(SOON).unwrap();
        fill(&mut from, seed);
        self.store.write_pages(from, &PageMap::of(4096).first(PAGES), remote, None)
    }

    /// Reads all and checks it.
    fn check(&self, remote: &RemoteSlice, seed: u64) {
        let read = self.read(remote).wait(SOON).unwrap();
        let bytes = read.buffer.into_slice().expect("a slice was given");
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == byte_at(at as u64, seed)));
    }
}

/// Checks that a transfer was refused because the memory was revoked.
fn is_refused(mut transfer: Transfer) {
    let kind = transfer.wait(SOON).unwrap_err().error.kind();
    assert!(matches!(kind, ErrorKind::NotGranted | ErrorKind::Revoked), "{kind:?}");
}

pub(crate) fn many_peers_open_what_was_published_once(provider: &RailUnderTest) {
    let store = Store::new(provider, 4);
    let published = store.publish(Rights::READ);
    for reader in &store.readers {
        let remote = reader.open(published.token());
        assert_eq!((remote.len(), remote.rights()), (LEN as u64, Rights::READ));
        assert_eq!(reader.open(published.token()), remote, "the same memory");
        reader.check(&remote, 1);
        is_refused(reader.write(&remote, 2));
    }
    let unknown: PublicationToken = "p-1".parse().unwrap();
    let error = store.readers[0].store.open(unknown).wait(SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotGranted, "{error}");
}

pub(crate) fn a_publication_is_revoked_for_one_peer_alone(provider: &RailUnderTest) {
    let store = Store::new(provider, 3);
    let published = store.publish(Rights::READ | Rights::WRITE);
    let remotes: Vec<RemoteSlice> =
        store.readers.iter().map(|reader| reader.open(published.token())).collect();
    let [first, second, third] = &store.readers[..] else { unreachable!("there are three") };
    // In the middle of its transfers.
    let mut under_way: Vec<Transfer> = (0..10).map(|_| first.write(&remotes[0], 1)).collect();
    published.revoke_peer(&first.peer, SOON).wait(SOON).unwrap();
    for transfer in &mut under_way {
        if let Err(error) = transfer.wait(SOON) {
            let is_told = matches!(error.error.kind(), ErrorKind::Revoked | ErrorKind::NotGranted);
            assert!(is_told, "{error}");
        }
    }
    is_refused(first.write(&remotes[0], 9));
    is_refused(first.read(&remotes[0]));
    let error = first.store.open(published.token()).wait(SOON).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotGranted, "{error}");
    second.write(&remotes[1], 2).wait(SOON).unwrap();
    third.check(&remotes[2], 2);
    // A peer that never had it, or has it no more, needs no revocation.
    published.revoke_peer(&first.peer, SOON).wait(SOON).unwrap();
}

/// The owner's engine makes the grant of a peer that opens, and is told to revoke it meanwhile.
pub(crate) fn a_peer_that_is_revoked_while_it_opens_has_nothing_afterwards(provider: &RailUnderTest) {
    const ROUNDS: u32 = 60;
    let store = Store::new(provider, 1);
    let reader = &store.readers[0];
    for round in 0..ROUNDS {
        let memory = store.engine.allocate(4096).wait(SOON).unwrap();
        let published =
            store.engine.publish_exposed(memory, Rights::WRITE, Access::Anyone).wait(SOON).unwrap();
        let mut opening = reader.store.open(published.token());
        // Steps of the two engines are at other moments in each round.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_micros(u64::from(round) * 10) {
            std::hint::spin_loop();
        }
        published.revoke_peer(&reader.peer, SOON).wait(SOON).unwrap();
        match opening.wait(SOON) {
            Ok(remote) => drop(reader.store.write(vec![7_u8; 64], &remote).wait(SOON).unwrap_err()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotGranted, "{error}"),
        }
        let error = reader.store.open(published.token()).wait(SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotGranted, "{error}");
    }
}

pub(crate) fn published_memory_comes_back_from_all_peers(provider: &RailUnderTest) {
    let store = Store::new(provider, 3);
    let published = store.publish(Rights::READ | Rights::WRITE);
    let token = published.token();
    let remotes: Vec<RemoteSlice> = store.readers.iter().map(|reader| reader.open(token)).collect();
    let mut under_way: Vec<Transfer> =
        store.readers.iter().zip(&remotes).map(|(reader, remote)| reader.write(remote, 3)).collect();
    let memory = published.revoke(SOON).unwrap();
    memory.write_at(0, &vec![0xEE; LEN]);
    for transfer in &mut under_way {
        // Whether it was done before is open.
        drop(transfer.wait(SOON));
    }
    for (reader, remote) in store.readers.iter().zip(&remotes) {
        is_refused(reader.write(remote, 4));
        assert_eq!(reader.store.open(token).wait(SOON).unwrap_err().kind(), ErrorKind::NotGranted);
    }
    std::thread::sleep(Duration::from_millis(50));
    assert!(memory.to_vec().iter().all(|byte| *byte == 0xEE), "a late write has landed");
    assert_eq!(memory.try_into_slice().is_ok(), proves(&store.engine));
}

pub(crate) fn published_memory_outlives_a_peer(provider: &RailUnderTest) {
    let mut store = Store::new(provider, 2);
    let published = store.publish(Rights::READ);
    let remotes: Vec<RemoteSlice> =
        store.readers.iter().map(|reader| reader.open(published.token())).collect();
    let Reader { engine, store: to_store, peer } = store.readers.remove(0);
    drop((to_store, engine));
    wait_for("the reader is lost", || peer.lost().map(drop));
    drop(peer);
    store.readers[0].check(&remotes[1], 1);
    wait_for("the lost reader is forgotten", || (store.engine.peer_count().unwrap() == 1).then_some(()));
    let memory = published.revoke(SOON).unwrap();
    assert!(memory.to_vec().iter().enumerate().all(|(at, byte)| *byte == byte_at(at as u64, 1)));
    assert_eq!(memory.try_into_slice().is_ok(), proves(&store.engine));
}

pub(crate) fn shared_memory_is_published_for_reading(provider: &RailUnderTest) {
    let store = Store::new(provider, 3);
    let mut memory = store.engine.allocate(LEN).wait(SOON).unwrap();
    fill(&mut memory, 5);
    let shared = memory.share();
    let refused = store.engine.publish_exposed(shared.clone(), Rights::WRITE, Access::Anyone).wait(SOON);
    assert_eq!(refused.unwrap_err().error.kind(), ErrorKind::Argument);
    let published = store.engine.publish(shared, Access::Anyone).wait(SOON).unwrap();
    let remotes: Vec<RemoteSlice> =
        store.readers.iter().map(|reader| reader.open(published.token())).collect();
    for (reader, remote) in store.readers.iter().zip(&remotes) {
        assert_eq!(remote.rights(), Rights::READ);
        reader.check(remote, 5);
        is_refused(reader.write(remote, 6));
    }
    // Its owner reads it, and sends it.
    assert_eq!(published[7], byte_at(7, 5));
    let [first, second, _] = &store.readers[..] else { unreachable!("there are three") };
    published.revoke_peer(&first.peer, SOON).wait(SOON).unwrap();
    is_refused(first.read(&remotes[0]));
    second.check(&remotes[1], 5);
    let shared = published.revoke(SOON).unwrap();
    assert_eq!(shared[7], byte_at(7, 5));
    is_refused(second.read(&remotes[1]));
    assert_eq!(shared.try_unshare().is_ok(), proves(&store.engine));
}

pub(crate) fn a_publication_that_is_dropped_ends(provider: &RailUnderTest) {
    let store = Store::new(provider, 2);
    let published = store.publish(Rights::READ);
    let token = published.token();
    let remote = store.readers[0].open(token);
    drop(published);
    // The thread that drives the store ends it in its next step.
    let refused = || store.readers[1].store.open(token).wait(SOON).err();
    let error = wait_for("what was published is not opened", refused);
    assert_eq!(error.kind(), ErrorKind::NotGranted, "{error}");
    wait_for("its reader is refused", || store.readers[0].read(&remote).wait(SOON).err());
    // An owner that leaves a reader in order takes the memory from it first.
    let published = store.publish(Rights::READ);
    store.readers[0].open(published.token());
    store.readers[0].peer.clone().close(SOON).unwrap();
    assert_eq!(published.revoke(SOON).unwrap().len(), LEN);
}
