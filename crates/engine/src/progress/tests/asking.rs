//! Many threads submit commands, and each command is answered once.

use super::*;
use crate::progress::oneshot::Closed;

const THREADS: u64 = 8;
const COMMANDS: u64 = 10_000;

const ALL: [Progress; 3] = [Progress::Busy, Progress::Event, Progress::Adaptive];

/// Each thread submits all of its commands, and then waits for each.
fn many_ask(rig: &Rig) {
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let receivers: Vec<_> = (0..COMMANDS).map(|_| rig.submit(Command::Count)).collect();
                let counts: Vec<_> = receivers.iter().map(|oneshot| rig.wait(oneshot)).collect();
                assert!(counts.is_sorted(), "what one leaves is applied in its order");
            });
        }
    });
    assert_eq!(rig.wait(&rig.submit(Command::Count)), THREADS * COMMANDS, "each once");
}

/// Each thread asks the peer one question after the other.
fn many_ask_the_peer(rig: &Rig, questions: u64) {
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..questions {
                    rig.wait(&rig.submit(Command::AskPeer));
                }
            });
        }
    });
    assert_eq!(rig.wait(&rig.submit(Command::Count)), THREADS * questions);
}

#[test]
fn eight_threads_without_a_worker() {
    for progress in ALL {
        many_ask(&Rig::new(progress));
    }
}

#[test]
fn eight_threads_with_a_worker() {
    for progress in ALL {
        many_ask(&Rig::with_worker(progress));
    }
}

#[test]
fn eight_threads_and_a_peer_without_a_worker() {
    for progress in ALL {
        many_ask_the_peer(&Rig::new(progress), 300);
    }
}

#[test]
fn eight_threads_and_a_peer_with_a_worker() {
    for progress in ALL {
        many_ask_the_peer(&Rig::with_worker(progress), 300);
    }
}

#[test]
fn who_submits_has_it_applied_on_its_own_thread() {
    let rig = Rig::new(Progress::Adaptive);
    let oneshot = rig.submit(Command::Count);
    assert!(oneshot.is_ready(), "nobody else drives, and nobody waits");
    assert_eq!(rig.log.steps_by(thread::current().id()), 1);
}

#[test]
fn a_value_that_nobody_wants_is_sent_to_nobody() {
    let rig = Rig::new(Progress::Adaptive);
    drop(rig.submit(Command::AskPeer));
    assert_eq!(rig.wait(&rig.submit(Command::AskPeer)), 1);
}

#[test]
fn a_sender_that_is_dropped_closes_the_channel() {
    let (sender, oneshot) = oneshot::channel::<u64>();
    assert_eq!(oneshot.take(), None);
    drop(sender);
    assert_eq!(oneshot.take(), Some(Err(Closed)));
}
