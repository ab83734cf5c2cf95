//! Each public function that returns a `Pending` is awaited.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use farreach::{
    Access, CompareSwap, Engine, ErrorKind, Memory, MemoryOptions, PageMap, PeerEvent, Rights, Shared, Slice,
    TransferList,
};

use super::runtime::Runtime;
use super::{counter, engine, granted, on_each_executor, pair};
use crate::suite::{Pair, SOON};

on_each_executor! {
    everything_of_an_engine_is_awaited;
    everything_of_a_peer_is_awaited;
    everything_of_memory_is_awaited;
    everything_of_counters_is_awaited;
    lists_and_prepared_transfers_are_awaited;
}

async fn everything_of_an_engine_is_awaited(_: Runtime) {
    let (a, b) = (engine("a"), engine("b"));
    let mut events = a.next_event();
    let address = b.listen("127.0.0.1:0").unwrap();
    let a_to_b = a.connect(address).unwrap().await.unwrap();
    let b_to_a = b.accept().await.unwrap();
    assert_eq!((a_to_b.name(), b_to_a.name()), ("b", "a"));
    let event = (&mut events).await.unwrap();
    assert!(matches!(event, PeerEvent::Connected { peer, .. } if peer == a_to_b.id()), "{event:?}");

    a_to_b.send("to anyone").await.unwrap();
    let (from, message) = b.recv_any().await.unwrap();
    assert_eq!((from.id(), message.as_slice()), (b_to_a.id(), &b"to anyone"[..]));

    assert_eq!(a.allocate(4096).await.unwrap().len(), 4096);
    assert_eq!(a.allocate_with(&MemoryOptions::new(), 100).await.unwrap().len(), 100);
    let memory = Memory::from_vec(vec![7; 4096]);
    a.register(memory.memory()).await.unwrap();

    let readable = b.publish(b.allocate(4096).await.unwrap(), Access::Anyone).await.unwrap();
    let exposed = b.allocate(4096).await.unwrap();
    let writable = b.publish_exposed(exposed, Rights::WRITE, Access::Anyone).await.unwrap();
    assert_eq!(a_to_b.open(readable.token()).await.unwrap().len(), 4096);
    assert_eq!(a_to_b.open(writable.token()).await.unwrap().rights(), Rights::WRITE);
    drop(b.open_counter(Access::Anyone).await.unwrap());

    let (c, listener) = (engine("c"), TcpListener::bind("127.0.0.1:0").unwrap());
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let accepting = b.accept_over(listener.accept().unwrap().0).unwrap();
    let c_to_b = c.connect_over(stream).unwrap().await.unwrap();
    assert_eq!((c_to_b.name(), accepting.await.unwrap().name()), ("b", "c"));
}

async fn everything_of_a_peer_is_awaited(_: Runtime) {
    let pair = pair().await;
    let (grant, remote) = granted(&pair, 4096, Rights::READ | Rights::WRITE | Rights::ATOMIC).await;
    let (counter, raises) = counter(&pair).await;
    let Pair { a, a_to_b, b_to_a, .. } = &pair;

    let mut source = a.allocate(4096).await.unwrap();
    source.fill(1);
    let map = PageMap::of(1024).first(4);
    let written = a_to_b.write_pages(source, &map, &remote, Some(&raises)).await.unwrap();
    let into = written.buffer.into_slice().unwrap();
    counter.reach(4).await.unwrap();
    let read = a_to_b.read_pages(&remote, &map, into).await.unwrap();
    assert!(read.buffer.into_slice().unwrap().iter().all(|byte| *byte == 1));

    a_to_b.write(vec![2; 100], &remote).await.unwrap();
    a_to_b.write_and_count(vec![3; 100], &remote.at(100), &raises).await.unwrap();
    counter.reach(5).await.unwrap();
    let read = a_to_b.read(&remote.range(..200), vec![0; 200]).await.unwrap();
    assert_eq!(read.buffer, [[2; 100], [3; 100]].concat());

    grant.atomic_at(1024).store(5, std::sync::atomic::Ordering::SeqCst);
    let word = remote.range(1024..1032);
    assert_eq!(a_to_b.fetch_add(&word, 1).await.unwrap(), 5);
    let swap = CompareSwap { expected: 6, desired: 9 };
    assert_eq!(a_to_b.compare_and_swap(&word, swap).await.unwrap(), 6);

    a_to_b.send("one").await.unwrap();
    drop(a_to_b.send("two"));
    a_to_b.flush().await.unwrap();
    assert_eq!((b_to_a.recv().await.unwrap(), b_to_a.recv().await.unwrap()), (b"one".into(), b"two".into()));
}

async fn everything_of_memory_is_awaited(_: Runtime) {
    let pair = pair().await;
    let Pair { b, a_to_b, b_to_a, .. } = &pair;
    let (grant, _) = granted(&pair, 4096, Rights::WRITE).await;
    assert_eq!(grant.begin_revoke(SOON).await.unwrap().len(), 4096);

    let memory = b.allocate(4096).await.unwrap();
    let published = b.publish_exposed(memory, Rights::READ, Access::Anyone).await.unwrap();
    a_to_b.open(published.token()).await.unwrap();
    let refused = published.admit("trainer.example").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Argument, "everybody may open it: {refused}");
    published.revoke_peer(b_to_a, SOON).await.unwrap();
    published.expel("nobody", SOON).await.unwrap();
    assert_eq!(published.begin_revoke(SOON).await.unwrap().len(), 4096);
}

async fn everything_of_counters_is_awaited(_: Runtime) {
    let pair = pair().await;
    let (_grant, remote) = granted(&pair, 4096, Rights::WRITE).await;
    let (counter, raises) = counter(&pair).await;
    pair.a_to_b.write_and_count(vec![1; 8], &remote, &raises).await.unwrap();
    counter.reach(1).await.unwrap();

    let shared = pair.b.open_counter(Access::Anyone).await.unwrap();
    let refused = shared.admit("trainer.example").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Argument, "everybody may open it: {refused}");
    let raises = pair.a_to_b.open_shared_counter(shared.token()).await.unwrap();
    shared.opened_by(1).await.unwrap();
    pair.a_to_b.write_and_count(vec![2; 8], &remote, &raises).await.unwrap();
    shared.reach(1).await.unwrap();
    shared.reach_each(1).await.unwrap();
}

async fn lists_and_prepared_transfers_are_awaited(_: Runtime) {
    let pair = pair().await;
    let (_grant, remote) = granted(&pair, 4096, Rights::READ | Rights::WRITE).await;
    let Pair { a, a_to_b, .. } = &pair;
    let mut list = TransferList::<Vec<u8>>::new();
    list.push(vec![1; 10], &remote);
    list.push(vec![2; 10], &remote.at(10));
    a_to_b.write_list(list, None).await.unwrap();
    let mut list = TransferList::<Vec<u8>>::new();
    list.push(vec![0; 20], &remote);
    assert_eq!(a_to_b.read_list(list).await.unwrap().buffer, [[[1; 10], [2; 10]].concat()]);

    let mut list = TransferList::<Shared>::new();
    list.push(shared(a, 3).await, &remote);
    let prepared = a_to_b.prepare_write(list, None).await.unwrap();
    prepared.start(&prepared.all().unwrap()).await.unwrap();
    assert_eq!(prepared.finish().await.unwrap().len(), 1);
    let mut list = TransferList::<Slice>::new();
    list.push(a.allocate(4096).await.unwrap(), &remote);
    let prepared = a_to_b.prepare_read(list).await.unwrap();
    prepared.start(&prepared.all().unwrap()).await.unwrap();
    let back = prepared.finish().await.unwrap();
    assert!(back[0].iter().all(|byte| *byte == 3));
}

async fn shared(engine: &Engine, byte: u8) -> Shared {
    let mut slice = engine.allocate(4096).await.unwrap();
    slice.fill(byte);
    slice.share()
}

/// Returns the names of all public functions whose result is awaited, from the engine's source files.
fn that_wait() -> Vec<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut names = Vec::new();
    for file in fs::read_dir(sources).unwrap() {
        let path = file.unwrap().path();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for function in text.split("\n    pub fn ").skip(1) {
            let head = function.split([';', '{']).next().unwrap_or_default();
            let (name, result) = (head.split(['(', '<']).next(), head.rsplit_once("->"));
            let is_awaited = |result: &str| result.contains("Pending<") || result.contains("Transfer");
            if result.is_some_and(|(_, result)| is_awaited(result)) {
                names.extend(name.map(ToOwned::to_owned));
            }
        }
    }
    names
}

#[test]
fn no_function_that_waits_is_missing() {
    let awaited = [include_str!("awaited.rs"), include_str!("mod.rs")].concat();
    let found = that_wait();
    assert!(found.len() > 35, "{found:?}");
    let missing: Vec<_> = found.iter().filter(|name| !awaited.contains(&format!(".{name}("))).collect();
    assert!(missing.is_empty(), "add them to the tests above: {missing:?}");
}
