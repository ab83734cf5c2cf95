//! A loom model of the wakeup: `cargo xtask model` runs it.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::WakeupState;

/// The wakeup, with a lock in place of the eventfd, and data for the sleeper.
struct Room {
    state: WakeupState,
    is_signalled: Mutex<bool>,
    has_come: Condvar,
    /// Relaxed loads and stores, so that only the wakeup orders them.
    left: [AtomicU32; 2],
}

impl Room {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            state: WakeupState::new(),
            is_signalled: Mutex::new(false),
            has_come: Condvar::new(),
            left: [AtomicU32::new(0), AtomicU32::new(0)],
        })
    }

    fn leave_and_wake(&self, place: usize) {
        self.left[place].store(1, Ordering::Relaxed);
        if self.state.signal() {
            *self.is_signalled.lock().unwrap() = true;
            self.has_come.notify_one();
        }
    }

    fn sleep(&self) {
        if self.state.fall_asleep() {
            let mut is_signalled = self.is_signalled.lock().unwrap();
            while !*is_signalled {
                is_signalled = self.has_come.wait(is_signalled).unwrap();
            }
            *is_signalled = false;
            drop(is_signalled);
            self.state.wake_up();
        }
    }

    fn has_all(&self, places: usize) -> bool {
        self.left[..places].iter().all(|left| left.load(Ordering::Relaxed) == 1)
    }
}

#[test]
fn a_sleeper_sees_what_was_left_before_a_wakeup() {
    loom::model(|| {
        let room = Room::new();
        let waker = {
            let room = Arc::clone(&room);
            thread::spawn(move || room.leave_and_wake(0))
        };
        // A lost wakeup is a deadlock, which loom reports.
        while !room.has_all(1) {
            room.sleep();
        }
        waker.join().unwrap();
    });
}

#[test]
fn two_wakeups_are_one_and_hide_nothing() {
    let mut builder = loom::model::Builder::new();
    // Every interleaving with at most this many preemptions. Without a bound it takes a minute.
    builder.preemption_bound = Some(4);
    builder.check(|| {
        let room = Room::new();
        let wakers = [0, 1].map(|place| {
            let room = Arc::clone(&room);
            thread::spawn(move || room.leave_and_wake(place))
        });
        while !room.has_all(2) {
            room.sleep();
        }
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}
