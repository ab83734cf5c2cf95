//! The starts of a prepared transfer that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use crate::watch::{Watch, Watcher};

/// The starts of a prepared transfer that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    running: AtomicUsize,
    watch: Arc<Watch>,
}

impl Starts {
    /// Notes that one begins.
    pub(crate) fn begin(&self) {
        // Relaxed: the end is counted by the thread that takes the command, which a lock passes on.
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes the end of a start, after its memory was released.
    pub(crate) fn end_one(&self, wakers: &mut Vec<Waker>) {
        // Sequentially consistent with `Watcher::listen`, as the notification requires.
        if self.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.watch.notify(wakers);
        }
    }

    /// Tells whoever waits for the starts that the engine has ended.
    pub(crate) fn notify(&self, wakers: &mut Vec<Waker>) {
        self.watch.notify(wakers);
    }

    /// Returns whether all have ended.
    pub(crate) fn are_over(&self) -> bool {
        self.running.load(Ordering::SeqCst) == 0
    }

    /// Returns a watcher of the moment in which all have ended.
    pub(crate) fn watcher(&self) -> Watcher {
        self.watch.watcher()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_are_over_when_each_has_ended() {
        let starts = Starts::default();
        assert!(starts.are_over());
        starts.begin();
        starts.begin();
        starts.end_one(&mut Vec::new());
        assert!(!starts.are_over());
        starts.end_one(&mut Vec::new());
        assert!(starts.are_over());
    }
}
