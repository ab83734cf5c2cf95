//! Every wait ends: by its deadline, or by a panic of the leader.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::progress::oneshot::Closed;

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn a_deadline_ends_the_wait_of_who_drives() {
    for progress in [Progress::Busy, Progress::Event, Progress::Adaptive] {
        let rig = Rig::new(progress);
        let (_sender, oneshot) = oneshot::channel::<u64>();
        let begun = Instant::now();
        assert_eq!(rig.progress.wait(&oneshot, begun + SHORT), Ok(false));
        assert!(begun.elapsed() >= SHORT && begun.elapsed() < PATIENCE / 10, "{:?}", begun.elapsed());
    }
}

#[test]
fn a_deadline_ends_the_wait_of_who_is_parked() {
    let rig = Rig::new(Progress::Adaptive);
    let ((_long, long), (_short, short)) = (oneshot::channel::<u64>(), oneshot::channel::<u64>());
    thread::scope(|scope| {
        let driver = scope.spawn(|| rig.progress.wait(&long, Instant::now() + 4 * SHORT));
        while rig.log.steps() == 0 {
            thread::yield_now();
        }
        let begun = Instant::now();
        assert_eq!(rig.progress.wait(&short, begun + SHORT), Ok(false));
        assert!(begun.elapsed() >= SHORT && !driver.is_finished(), "{:?}", begun.elapsed());
        assert_eq!(driver.join().unwrap(), Ok(false));
    });
}

/// A oneshot whose wait has timed out can be waited for again.
#[test]
fn a_wait_that_timed_out_can_be_waited_for_again() {
    let rig = Rig::new(Progress::Adaptive);
    let oneshot = rig.submit(Command::AskPeer);
    let _ = rig.progress.wait(&oneshot, Instant::now());
    assert_eq!(rig.wait(&oneshot), 0);
}

#[test]
fn a_panic_of_the_leader_ends_every_wait() {
    let rig = Rig::with_worker(Progress::Adaptive);
    let (_never, never) = oneshot::channel::<u64>();
    thread::scope(|scope| {
        let waits: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| catch_unwind(AssertUnwindSafe(|| rig.progress.wait(&never, patience())))))
            .collect();
        thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        let _ = catch_unwind(AssertUnwindSafe(|| rig.progress.submit(Command::Panic)));
        let ends: Vec<_> = waits.into_iter().map(|wait| wait.join().unwrap()).collect();
        assert!(begun.elapsed() < PATIENCE / 10);
        assert!(
            ends.iter().filter(|end| end.is_err()).count() <= 1,
            "one of them may have been at the progress"
        );
        for end in ends.into_iter().flatten() {
            assert_eq!(end, Err(LeaderPanicked));
        }
    });
    let oneshot = rig.submit(Command::Count);
    assert_eq!(oneshot.take(), Some(Err(Closed)));
    assert_eq!(rig.progress.wait(&never, patience()), Err(LeaderPanicked));
}

/// Futures end too, although no thread waits for them.
#[test]
fn a_panic_of_the_leader_ends_every_future() {
    let rig = Rig::with_worker(Progress::Adaptive);
    let kept = rig.submit(Command::AskPeer);
    worker::block_on(&rig, kept).unwrap();
    let (sender, never) = oneshot::channel();
    // The machine owns this sender and drops it when it ends.
    rig.progress.submit(Command::AskPeer(sender));
    let _ = catch_unwind(AssertUnwindSafe(|| rig.progress.submit(Command::Panic)));
    // The peer may have answered before the panic.
    let end = worker::block_on(&rig, never);
    assert!(end.is_ok() || end == Err(Closed));
    let later = rig.submit(Command::AskPeer);
    assert_eq!(worker::block_on(&rig, later), Err(Closed));
}

/// A machine with a task to wake after each step.
#[derive(Default)]
struct Waking(Vec<Waker>);

impl crate::progress::Wakeup for Waking {
    fn wake(&self) {}
}

impl Drive for Waking {
    type Command = ();
    type Wakeup = Self;
    type Leading = ();

    fn wakeup(&self) -> Self {
        Self::default()
    }

    fn apply(&mut self, _command: ()) {}

    fn step(&mut self) -> bool {
        self.0.push(Waker::noop().clone());
        true
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn sleep(&mut self, _until: Instant) {}

    fn lead(&self) {}

    fn wakers(&mut self) -> &mut Vec<Waker> {
        &mut self.0
    }
}

/// Waking the tasks of other threads does not delay a waiter's deadline.
#[test]
fn a_wait_ends_in_time_though_a_task_is_woken_after_each_step() {
    let progress = LeaderFollowers::new(Waking::default(), Progress::Adaptive);
    let (_never, never) = oneshot::channel::<u64>();
    let begun = Instant::now();
    assert_eq!(progress.wait(&never, begun + Duration::from_millis(20)), Ok(false));
    assert!(begun.elapsed() < PATIENCE / 2, "{:?}", begun.elapsed());
}
