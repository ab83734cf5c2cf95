//! Engines with nothing to do.

use std::thread;
use std::time::{Duration, Instant};

use farreach::{Engine, Peer};

use super::crowd::{Crowd, PAGE, settings};
use super::usage::processor_time;
use super::{SOON, say};

const PEERS: usize = 100;
/// Longer than the interval at which peers that nothing waits for are pinged.
const MEASURED: Duration = Duration::from_secs(12);
/// The fraction of a core.
const SHARE_MAX: f64 = 0.003;

pub(crate) fn a_hundred_idle_peers_leave_the_core_alone(rail: &'static str) {
    let engine = Engine::with(settings(rail)).unwrap();
    let address = engine.listen("127.0.0.1:0").unwrap();
    let mut crowds = [0, 1].map(|half| Crowd::start(address, rail, (half * PEERS / 2, PEERS / 2), PAGE));
    let peers: Vec<Peer> = (0..PEERS).map(|_| engine.accept().wait(SOON).unwrap()).collect();
    crowds.iter_mut().for_each(|crowd| drop(crowd.wait_until_ready()));
    thread::sleep(Duration::from_secs(1));
    let (used_before, begun) = (processor_time(), Instant::now());
    thread::sleep(MEASURED);
    let (used, elapsed) = (processor_time() - used_before, begun.elapsed());
    let share = used.as_secs_f64() / elapsed.as_secs_f64();
    say(&format!("{PEERS} idle peers over {rail}: {:.3} % of a core over {elapsed:.1?}", share * 100.0));
    for peer in &peers {
        assert_eq!(peer.lost(), None);
        peer.send("nothing").wait(SOON).unwrap();
    }
    crowds.into_iter().for_each(Crowd::leave);
    assert!(share < SHARE_MAX, "an idle engine used {:.3} % of a core", share * 100.0);
}
