//! Models of the table of operations: every interleaving of its threads, with every value that a
//! load may see. Run by `cargo xtask model`.

use farreach_memory::Buffers;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::slots::{Slot, Slots};
use crate::OperationKind;

/// A table that another thread may use at any step.
struct Shared {
    slots: Slots,
    /// Loom tries the orders of an access and the previous access to the same location. A thread
    /// that reads a location and then changes it hides that another thread read it, too: each step
    /// is therefore announced, and read, here. It orders nothing.
    step: AtomicU32,
}

impl Shared {
    fn new(depth: u32) -> Arc<Self> {
        Arc::new(Self { slots: Slots::new(depth), step: AtomicU32::new(0) })
    }

    fn tell_step(&self, step: u32) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Continues after any step of the other thread.
    fn after_any_step(&self) {
        self.step.load(Ordering::Relaxed);
    }

    fn put(&self, tag: u64) -> Option<Slot<'_>> {
        // SAFETY: the buffers and the peer are empty, which may be duplicated.
        unsafe { self.slots.put(false, tag, OperationKind::Receive, false, &Buffers::None, None) }
    }

    /// Takes the operation of a place, as a completion does.
    fn take(&self, place: usize) -> Option<u64> {
        Some(self.slots.at(place).take()?.into_inner().tag)
    }

    /// Takes everything, as the close of the endpoint does.
    fn take_all(&self) -> Vec<u64> {
        self.slots.take_all().iter().map(|operation| operation.tag).collect()
    }
}

/// A place is written again only after its content was taken.
#[test]
fn one_posts_while_another_takes() {
    loom::model(|| {
        let shared = Shared::new(1);
        assert!(shared.put(10).is_some());
        let poller = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let first = shared.take(0);
                shared.tell_step(1);
                let second = shared.take(1);
                shared.tell_step(2);
                (first, second)
            })
        };
        shared.after_any_step();
        let mut posted: Vec<u64> = [11, 12].into_iter().filter(|tag| shared.put(*tag).is_some()).collect();
        let (first, second) = poller.join().unwrap();
        assert_eq!(first, Some(10));
        let mut taken = shared.take_all();
        taken.extend(second);
        posted.sort_unstable();
        taken.sort_unstable();
        assert_eq!(taken, posted, "each once");
        assert_eq!(shared.slots.in_flight(), 0);
    });
}

/// An operation may be completed right after it was posted. A thread that sees that it is in flight
/// sees all of it.
#[test]
fn one_takes_what_another_posts() {
    loom::model(|| {
        let shared = Shared::new(1);
        let poster = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                assert!(shared.put(10).is_some());
                shared.tell_step(1);
            })
        };
        shared.after_any_step();
        let mut taken: Vec<u64> = shared.take(0).into_iter().collect();
        poster.join().unwrap();
        taken.extend(shared.take(0));
        assert_eq!(taken, [10]);
    });
}

/// One thread polls while another, which has closed the endpoint, takes everything; both put a
/// place back in the queue.
#[test]
fn two_who_take_share_what_is_left() {
    loom::model(|| {
        let shared = Shared::new(2);
        assert!(shared.put(10).is_some() && shared.put(11).is_some());
        let closer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.take_all())
        };
        let mut taken: Vec<u64> = [1, 0].into_iter().filter_map(|place| shared.take(place)).collect();
        taken.extend(closer.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [10, 11], "each once");
        // Both places are in the queue again, and the one that always is.
        assert!(shared.put(12).is_some() && shared.put(13).is_some());
        assert!(shared.put(14).is_none());
    });
}

/// A thread that appends a place behind another one also publishes that the other one is empty.
#[test]
fn two_put_places_back_while_another_posts() {
    loom::model(|| {
        let shared = Shared::new(2);
        assert!(shared.put(10).is_some() && shared.put(11).is_some());
        let [first, second] = [0, 1].map(|place| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.take(place))
        });
        let posted: Vec<u64> = [12, 13].into_iter().filter(|tag| shared.put(*tag).is_some()).collect();
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (Some(10), Some(11)));
        let mut taken = shared.take_all();
        taken.sort_unstable();
        assert_eq!(taken, posted);
    });
}

/// Two threads post at once: each gets a place of its own.
#[test]
fn two_post_at_once() {
    loom::model(|| {
        let shared = Shared::new(2);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || assert!(shared.put(10).is_some()))
        };
        assert!(shared.put(11).is_some());
        other.join().unwrap();
        let mut taken = shared.take_all();
        taken.sort_unstable();
        assert_eq!(taken, [10, 11]);
    });
}

/// The provider refuses an operation and completes it nevertheless, and its place holds another one
/// by then: that one stays.
#[test]
fn who_was_refused_takes_back_only_his_own() {
    loom::model(|| {
        let shared = Shared::new(1);
        let refused = shared.put(10).unwrap();
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let taken = shared.take(0);
                shared.tell_step(1);
                if taken.is_some() {
                    // The next place in the queue, and then the one that was refused.
                    assert!(shared.put(11).is_some());
                    assert_eq!(shared.take(1), Some(11));
                    assert!(shared.put(12).is_some());
                    shared.tell_step(2);
                }
                taken
            })
        };
        shared.after_any_step();
        let back = shared.slots.take_refused(refused).map(|operation| operation.tag);
        let taken = other.join().unwrap();
        match back {
            Some(tag) => assert_eq!((tag, taken), (10, None)),
            None => assert_eq!((taken, shared.take_all()), (Some(10), vec![12])),
        }
    });
}
