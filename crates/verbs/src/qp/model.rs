//! Models of the ring for loom, which tries every order of threads and every value that a load may
//! see: `cargo xtask model`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::ring::Ring;

/// A ring of depth two that another thread uses at the same time.
struct Shared {
    ring: Ring<Box<u32>>,
    /// Loom explores the order of an access and the previous access to the same location. A read
    /// followed by a write of one location hides reads of other threads from it. So each step is
    /// stored and loaded here too, without adding any ordering.
    step: AtomicU32,
}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self { ring: Ring::new(2), step: AtomicU32::new(0) })
    }

    fn tell_step(&self, step: u32) {
        self.step.store(step, Ordering::Relaxed);
    }

    /// Continues after any step of the other thread.
    fn after_any_step(&self) {
        self.step.load(Ordering::Relaxed);
    }

    fn push(&self, value: u32) -> bool {
        let mut poster = self.ring.poster();
        poster.room().map(|room| room.push(Box::new(value))).is_some()
    }

    /// Returns the work requests that a completion of number `last` retires: all up to it, in
    /// order.
    fn retire(&self, last: u32) -> Vec<u32> {
        let mut values = Vec::new();
        while let Some((number, request)) = self.ring.retire_up_to(last) {
            values.push(*request.into_inner());
            if number == last {
                break;
            }
        }
        values
    }

    /// Returns the work requests that are left when the queue pair is destroyed.
    fn take_back(&self) -> Vec<u32> {
        std::iter::from_fn(|| self.ring.retire_next().map(|request| *request.into_inner())).collect()
    }
}

/// A place is written again only after its value has been taken.
#[test]
fn one_posts_while_another_retires() {
    loom::model(|| {
        let shared = Shared::new();
        assert!(shared.push(10) && shared.push(11));
        let poller = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let first = shared.retire(0);
                shared.tell_step(1);
                (first, shared.retire(1))
            })
        };
        shared.after_any_step();
        let is_posted = shared.push(12);
        assert_eq!(poller.join().unwrap(), (vec![10], vec![11]));
        assert_eq!(shared.retire(2), if is_posted { vec![12] } else { vec![] });
    });
}

/// One thread polls while the other posts once more, and then takes back all, as after destroying
/// the queue pair. The poller may see that the last work request was taken back before it sees that
/// it was posted.
#[test]
fn one_polls_while_another_posts_and_destroys() {
    loom::model(|| {
        let shared = Shared::new();
        assert!(shared.push(10));
        let destroyer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                assert!(shared.push(11));
                shared.tell_step(1);
                let taken = shared.take_back();
                shared.tell_step(2);
                taken
            })
        };
        shared.after_any_step();
        let mut values = shared.retire(0);
        values.extend(destroyer.join().unwrap());
        assert_eq!(values, [10, 11], "each once, in order");
        assert_eq!(shared.ring.len(), 0);
    });
}

/// A work request may complete directly after its post. A thread that sees it in flight sees all of
/// it.
#[test]
fn one_retires_what_another_posts() {
    loom::model(|| {
        let shared = Shared::new();
        let poster = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                assert!(shared.push(10));
                shared.tell_step(1);
            })
        };
        shared.after_any_step();
        let mut values = shared.retire(0);
        poster.join().unwrap();
        values.extend(shared.retire(0));
        assert_eq!(values, [10]);
    });
}
