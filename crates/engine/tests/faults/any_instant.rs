//! A victim that is stopped or killed at a random instant under load, while threads are in several
//! kinds of waits for it.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use farreach::{Error, ErrorKind};
use rand_mt::Mt64;

use super::survivor::{LEN, SOON, Survivor};
use super::{DEADLINE, GRACE, Place};

/// What happens to the victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Kill,
    Stop,
}

/// The latest instant after the first page. Dozens of transfers have ended by then.
const LATEST: Duration = Duration::from_millis(60);

/// Every wait ends, with the loss of the peer, and the other peer is served all the time. Memory that
/// was granted comes back.
pub(crate) fn a_fault_at_any_instant_ends_every_wait(place: &Place, fault: Fault) {
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    eprintln!("seed {seed}");
    let mut random = Mt64::new(seed);
    let mut survivor = Survivor::new(place);
    for round in 0..(place.rounds)() {
        let memory = survivor.engine.allocate(LEN).wait(SOON).unwrap();
        let (mut victim, peer, grant, arrived) = survivor.sender(memory);
        arrived.reach(1).wait(SOON).unwrap();
        let before = survivor.steady().rounds();
        let instant = Duration::from_nanos(random.next_u64() % LATEST.as_nanos() as u64);
        let (ends, at) = thread::scope(|scope| {
            let reach = scope.spawn(|| arrived.reach(u64::MAX).wait(DEADLINE).unwrap_err());
            let recv = scope.spawn(|| peer.recv().wait(DEADLINE).unwrap_err());
            let send = scope.spawn(|| keep_sending(|| peer.send("never received").wait(DEADLINE)));
            let flush = scope.spawn(|| keep_sending(|| peer.flush().wait(DEADLINE)));
            thread::sleep(instant);
            let at = match fault {
                Fault::Kill => victim.kill(),
                Fault::Stop => victim.stop(),
            };
            let ends = [("reach", reach), ("recv", recv), ("send", send), ("flush", flush)];
            (ends.map(|(what, wait)| (what, wait.join().unwrap(), at.elapsed())), at)
        });
        let expected = if fault == Fault::Stop { place.silence } else { Duration::ZERO };
        for (what, error, took) in ends {
            assert_eq!(error.kind(), ErrorKind::PeerLost, "round {round}, {instant:?}, {what}: {error}");
            assert!(took < expected + GRACE, "round {round}, {instant:?}: {what} ended after {took:?}");
        }
        let _ = survivor.take_back(grant, &peer);
        survivor.ended(at, expected + GRACE);
        assert!(survivor.steady().rounds() > before, "round {round}: the other peer was served");
        assert!(survivor.engine.warnings().is_empty(), "{:?}", survivor.engine.warnings());
        // A stopped victim is killed when it is dropped.
    }
    survivor.finish();
}

/// Repeats a wait until it fails.
fn keep_sending(wait: impl Fn() -> Result<(), Error>) -> Error {
    loop {
        if let Err(error) = wait() {
            return error;
        }
        thread::sleep(Duration::from_millis(1));
    }
}
