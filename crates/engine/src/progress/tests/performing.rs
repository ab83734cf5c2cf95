//! Work that a caller does at once instead of queueing a command.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;

impl Rig {
    /// Performs work that counts as a command, if `can` allows it. Returns the number before it, or the
    /// receiver of the command's answer.
    fn perform(&self, can: bool) -> Result<u64, oneshot::Receiver<u64>> {
        let (sender, oneshot) = oneshot::channel();
        let perform = |asker: &mut Asker, _: &mut oneshot::Sender<u64>| {
            can.then(|| {
                asker.count += 1;
                asker.count - 1
            })
        };
        match self.progress.perform_or_submit(sender, perform, Command::Count) {
            Some((_, count)) => Ok(count),
            None => Err(oneshot),
        }
    }
}

#[test]
fn it_is_done_without_a_step_if_nobody_leads() {
    let rig = Rig::new(Progress::Adaptive);
    assert_eq!((rig.perform(true).ok(), rig.perform(true).ok(), rig.log.steps()), (Some(0), Some(1), 0));
    let submitted = rig.perform(false).expect_err("it is submitted instead");
    assert_eq!((submitted.take(), rig.log.steps()), (Some(Ok(2)), 1), "at once");
}

#[test]
fn it_is_left_to_the_one_who_leads() {
    let rig = Rig::new(Progress::Event);
    let (_never, never) = oneshot::channel::<u64>();
    thread::scope(|scope| {
        let leader = scope.spawn(|| rig.progress.wait(&never, Instant::now() + Duration::from_millis(300)));
        while rig.log.steps() == 0 {
            thread::yield_now();
        }
        let submitted = rig.perform(true).expect_err("another thread leads");
        assert_eq!(rig.wait(&submitted), 0);
        assert_eq!(leader.join().unwrap(), Ok(false));
    });
    assert_eq!(rig.perform(true).ok(), Some(1), "nobody leads any more");
}

/// Callers and waiters lead in turn. Each command and each work is counted once.
#[test]
fn nothing_is_lost_or_done_twice_among_many_threads() {
    let rig = Rig::with_worker(Progress::Adaptive);
    let mut counts: Vec<u64> = thread::scope(|scope| {
        let each = |number: usize| {
            let rig = &rig;
            move || -> Vec<u64> {
                (0..200)
                    .map(|turn| match turn % 3 {
                        0 => rig.wait(&rig.submit(Command::Count)),
                        _ => rig
                            .perform(!(turn + number).is_multiple_of(5))
                            .unwrap_or_else(|oneshot| rig.wait(&oneshot)),
                    })
                    .collect()
            }
        };
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(each(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    counts.sort_unstable();
    assert_eq!(counts, (0..800).collect::<Vec<u64>>());
}

#[test]
fn a_panic_ends_the_machine_and_later_work_is_answered() {
    let rig = Rig::new(Progress::Adaptive);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        rig.progress.perform_or_submit(
            (),
            |_, ()| -> Option<()> { panic!("on purpose") },
            |()| Command::Panic,
        )
    }));
    assert!(panicked.is_err());
    let submitted = rig.perform(true).expect_err("nobody leads any more");
    assert_eq!(submitted.take(), Some(Err(oneshot::Closed)));
}
