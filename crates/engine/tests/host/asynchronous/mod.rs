//! Everything that waits, as a future: under tokio with one thread and with several, and under the thread
//! pool of `futures-executor`, which knows nothing of tokio.
//!
//! | file | what it shows |
//! |---|---|
//! | `awaited` | each public function that returns a `Pending` is awaited |
//! | `selected` | `select!` and timeouts lose no message and no count |
//! | `dropped` | futures are dropped at every point, and nothing leaks |
//! | `crowd` | 10,000 tasks on one engine |
//! | `blocking` | starting an operation does not block an executor |
//! | `ends` | futures end with their engine |
//! | `wakers` | wakers that are replaced, late, or shared |

mod awaited;
mod blocking;
mod crowd;
mod dropped;
mod ends;
mod runtime;
mod selected;
mod wakers;

use std::time::Duration;

use farreach::{Counter, Engine, Grant, RemoteCounter, RemoteSlice, Rights, Settings};

use crate::suite::{Pair, settings};

/// A timeout that ends a wait for something that does not happen.
const BRIEF: Duration = Duration::from_millis(5);

/// An engine over memory that two processes map. No peer is considered lost because a test keeps an
/// engine from running.
fn engine(name: &str) -> Engine {
    let patient: Settings = settings(name).peer_timeout(Duration::from_secs(120));
    Engine::with(patient.rails(["shm"])).unwrap()
}

/// Two engines that are connected without a thread that waits.
async fn pair() -> Pair {
    pair_of(engine("a"), engine("b")).await
}

async fn pair_of(a: Engine, b: Engine) -> Pair {
    let address = b.listen("127.0.0.1:0").unwrap();
    let a_to_b = a.connect(address).unwrap().await.unwrap();
    let b_to_a = b.accept().await.unwrap();
    Pair { a, b, a_to_b, b_to_a }
}

/// Memory of B that A may access: B's grant, and A's view of it.
async fn granted(pair: &Pair, len: usize, rights: Rights) -> (Grant, RemoteSlice) {
    let memory = pair.b.allocate(len).await.unwrap();
    let grant = pair.b_to_a.grant(memory, rights).await.unwrap();
    let remote = pair.a_to_b.remote(grant.token()).await.unwrap();
    (grant, remote)
}

/// A counter of B that A raises: B's counter, and A's view of it.
async fn counter(pair: &Pair) -> (Counter, RemoteCounter) {
    let counter = pair.b_to_a.open_counter().await.unwrap();
    let remote = pair.a_to_b.remote_counter(counter.token()).await.unwrap();
    (counter, remote)
}

/// Runs each test on every executor.
macro_rules! on_each_executor {
    ($($test:ident;)*) => {
        mod tokio_current_thread {
            $(#[test] fn $test() { super::super::runtime::tokio_current_thread(super::$test); })*
        }
        mod tokio_multi_thread {
            $(#[test] fn $test() { super::super::runtime::tokio_multi_thread(super::$test); })*
        }
        mod futures_thread_pool {
            $(#[test] fn $test() { super::super::runtime::thread_pool(super::$test); })*
        }
    };
}

use on_each_executor;
