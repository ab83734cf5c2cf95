//! Every wait ends.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::helm::ticket::Broken;

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_deadline_ends_the_wait_of_who_drives() {
    for progress in [Progress::Busy, Progress::Event, Progress::Adaptive] {
        let rig = Rig::new(progress);
        let (_promise, ticket) = promise::<u64>();
        let begun = Instant::now();
        assert_eq!(rig.helm.wait(&ticket, begun + SHORT), Ok(false));
        assert!(begun.elapsed() >= SHORT && begun.elapsed() < PATIENCE / 10, "{:?}", begun.elapsed());
    }
}

#[test]
fn a_deadline_ends_the_wait_of_who_is_parked() {
    let rig = Rig::new(Progress::Adaptive);
    let ((_long, long), (_short, short)) = (promise::<u64>(), promise::<u64>());
    thread::scope(|scope| {
        let driver = scope.spawn(|| rig.helm.wait(&long, Instant::now() + 4 * SHORT));
        while rig.log.steps() == 0 {
            thread::yield_now();
        }
        let begun = Instant::now();
        assert_eq!(rig.helm.wait(&short, begun + SHORT), Ok(false));
        assert!(begun.elapsed() >= SHORT && !driver.is_finished(), "{:?}", begun.elapsed());
        assert_eq!(driver.join().unwrap(), Ok(false));
    });
}

/// What was awaited when the time was over can be awaited again.
#[test]
fn a_wait_that_timed_out_can_be_waited_for_again() {
    let rig = Rig::new(Progress::Adaptive);
    let ticket = rig.submit(Command::AskPeer);
    let _ = rig.helm.wait(&ticket, Instant::now());
    assert_eq!(rig.wait(&ticket), 0);
}

#[test]
fn a_panic_at_the_helm_ends_every_wait() {
    let rig = Rig::with_worker(Progress::Adaptive);
    let (_never, never) = promise::<u64>();
    thread::scope(|scope| {
        let waits: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| catch_unwind(AssertUnwindSafe(|| rig.helm.wait(&never, patience())))))
            .collect();
        thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        let _ = catch_unwind(AssertUnwindSafe(|| rig.helm.submit(Command::Panic)));
        let ends: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
        assert!(begun.elapsed() < PATIENCE / 10);
        assert!(ends.iter().filter(|end| end.is_err()).count() <= 1, "one of them may have been at the helm");
        for end in ends.into_iter().flatten() {
            assert_eq!(end, Err(HelmLost));
        }
    });
    let ticket = rig.submit(Command::Count);
    assert_eq!(ticket.take(), Some(Err(Broken)));
    assert_eq!(rig.helm.wait(&never, patience()), Err(HelmLost));
}

/// Also those are told that nobody polls for.
#[test]
fn a_panic_at_the_helm_ends_every_future() {
    let rig = Rig::with_worker(Progress::Adaptive);
    let kept = rig.submit(Command::AskPeer);
    worker::block_on(&rig, kept).unwrap();
    let (promise, never) = promise();
    // The machine has this one, and goes with it.
    rig.helm.submit(Command::AskPeer(promise));
    let _ = catch_unwind(AssertUnwindSafe(|| rig.helm.submit(Command::Panic)));
    // The peer may have been faster.
    let end = worker::block_on(&rig, never);
    assert!(end.is_ok() || end == Err(Broken));
    let later = rig.submit(Command::AskPeer);
    assert_eq!(worker::block_on(&rig, later), Err(Broken));
}
