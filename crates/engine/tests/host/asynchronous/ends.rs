//! Futures end with their engine: when it is closed, and when it has failed.

use std::future::Future;
use std::net::TcpListener;
use std::pin::Pin;
use std::thread;

use farreach::{Access, Engine, Error, ErrorKind, Rights, Shared, SharedCounter, TransferList};
use farreach_rail::RailCall;

use super::runtime::Runtime;
use super::{BRIEF, counter, engine, granted, on_each_executor, pair};
use crate::hung_call;
use crate::suite::{Pair, SOON};

on_each_executor! {
    futures_end_when_their_engine_is_closed;
    futures_end_when_their_engine_has_failed;
    futures_end_when_the_engine_of_the_peer_ends;
}

type Wait = (&'static str, Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>);

/// A wait that has no result before the end.
macro_rules! wait {
    ($wait:expr) => {{
        let wait = $wait;
        (stringify!($wait), Box::pin(async move { wait.await.map(drop).map_err(Error::from) }) as Pin<Box<_>>)
    }};
}

/// Waits of B for its peer A.
fn for_the_peer(pair: &Pair, counter: &farreach::Counter) -> Vec<Wait> {
    let Pair { b_to_a, .. } = pair;
    vec![
        wait!(b_to_a.recv()),
        wait!(b_to_a.recv()),
        wait!(counter.reach(1)),
        wait!(b_to_a.remote("g-77".parse().unwrap())),
        wait!(b_to_a.remote_counter("c-77".parse().unwrap())),
    ]
}

/// Waits of an engine for any peer.
fn for_anyone(engine: &Engine, silent: &TcpListener, shared: &SharedCounter) -> Vec<Wait> {
    vec![
        wait!(engine.accept()),
        wait!(engine.recv_any()),
        wait!(shared.opened_by(2)),
        wait!(shared.reach(1)),
        wait!(shared.reach_each(1)),
        wait!(engine.connect(silent.local_addr().unwrap()).unwrap()),
    ]
}

async fn shared_counter(pair: &Pair) -> SharedCounter {
    let shared = pair.b.open_counter(Access::Anyone).await.unwrap();
    pair.a_to_b.open_shared_counter(shared.token()).await.unwrap();
    shared.opened_by(1).await.unwrap();
    shared
}

/// Each wait is pending in a task of its own, then `end` is called, and each ends with an error.
async fn all_end(
    runtime: &Runtime,
    mut waits: Vec<Wait>,
    end: impl FnOnce(),
    is_expected: fn(ErrorKind) -> bool,
) {
    for (name, wait) in &mut waits {
        assert!(runtime.within(BRIEF / 5, wait.as_mut()).await.is_none(), "{name}");
    }
    let tasks: Vec<_> = waits.into_iter().map(|(name, wait)| (name, runtime.spawn(wait))).collect();
    runtime.yields().await;
    end();
    for (name, task) in tasks {
        let error = task.await.expect("it was not cancelled").expect_err(name);
        assert!(is_expected(error.kind()), "{name}: {error}");
    }
}

fn ended_or_lost(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Ended | ErrorKind::PeerLost)
}

async fn futures_end_when_their_engine_is_closed(runtime: Runtime) {
    let pair = pair().await;
    let (counter, _raises) = counter(&pair).await;
    let (shared, silent) = (shared_counter(&pair).await, TcpListener::bind("127.0.0.1:0").unwrap());
    let mut waits = for_the_peer(&pair, &counter);
    waits.extend(for_anyone(&pair.b, &silent, &shared));
    let engine = pair.b.clone();
    let closes = move || drop(thread::spawn(move || engine.close(SOON).unwrap()));
    all_end(&runtime, waits, closes, ended_or_lost).await;
    // Also those that begin later.
    assert_eq!(pair.b.accept().await.unwrap_err().kind(), ErrorKind::Ended);
    assert_eq!(pair.b_to_a.recv().await.unwrap_err().kind(), ErrorKind::PeerLost);
    assert_eq!(pair.b.recv_any().await.unwrap_err().kind(), ErrorKind::Ended);
}

/// A step of the engine panics, which is an error of a rail or of the engine itself.
async fn futures_end_when_their_engine_has_failed(runtime: Runtime) {
    // Calls of A pass the gate, so the names are exchanged.
    let (Pair { a, b, a_to_b, b_to_a }, gate) = hung_call::pair();
    let pair = Pair { a: b, b: a, a_to_b: b_to_a, b_to_a: a_to_b };
    let (counter, _raises) = counter(&pair).await;
    let (shared, silent) = (shared_counter(&pair).await, TcpListener::bind("127.0.0.1:0").unwrap());
    let mut waits = for_the_peer(&pair, &counter);
    waits.extend(for_anyone(&pair.b, &silent, &shared));
    waits.push(wait!(pair.b.next_event()));
    all_end(&runtime, waits, || gate.panic_in(RailCall::Poll), ended_or_lost).await;
    // Also those that begin later.
    let Pair { b, b_to_a, .. } = &pair;
    let ended = |error: Error| assert_eq!(error.kind(), ErrorKind::Ended, "{error}");
    ended(b_to_a.recv().await.unwrap_err());
    ended(b_to_a.send("late").await.unwrap_err());
    ended(b.allocate(4096).await.unwrap_err());
    ended(b.allocate(1 << 20).await.unwrap_err());
    ended(b.accept().await.unwrap_err());
    ended(counter.reach(1).await.unwrap_err());
    ended(b.connect(silent.local_addr().unwrap()).unwrap().await.unwrap_err());
    ended(b.connect(("localhost", 1)).unwrap().await.unwrap_err());
}

async fn futures_end_when_the_engine_of_the_peer_ends(runtime: Runtime) {
    let pair = pair().await;
    let (counter, raises) = counter(&pair).await;
    let waits = for_the_peer(&pair, &counter);
    let (grant, remote) = granted(&pair, 4096, Rights::WRITE).await;
    let mut list = TransferList::<Shared>::new();
    list.push(pair.a.allocate(4096).await.unwrap().share(), &remote);
    let prepared = pair.a_to_b.prepare_write(list, Some(&raises)).await.unwrap();
    let Pair { a, b, a_to_b, b_to_a } = pair;
    all_end(&runtime, waits, || drop((prepared, remote, raises, a_to_b, a)), ended_or_lost).await;
    // What B keeps is still usable.
    drop((grant, counter));
    assert_eq!(b_to_a.send("late").await.unwrap_err().kind(), ErrorKind::PeerLost);
    let c = engine("c");
    let c_to_b = c.connect(b.listen("127.0.0.1:0").unwrap()).unwrap().await.unwrap();
    assert_eq!((b.accept().await.unwrap().name(), c_to_b.name()), ("c", "b"));
}
