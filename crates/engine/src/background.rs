//! Work that would block its caller for long: large allocations, and names that have to be resolved.
//!
//! A thread that drives the engine must not do it either, because peers would consider the engine lost
//! meanwhile. Its threads exist only while there is work. A thread inherits the processors and the NUMA
//! policy of the caller for which it is started.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The limit of threads. More at once would not allocate pages faster, and a program that starts thousands
/// of allocations must not start thousands of threads.
const THREADS_MAX: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// Jobs of one kind. Those of another kind do not wait for them.
pub(crate) struct Background {
    name: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Invariant: there is no job that waits, or there is a thread.
    threads: usize,
    jobs: VecDeque<Job>,
}

impl Background {
    /// Returns a group without threads. `name` is that of its threads.
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name, state: Mutex::default() })
    }

    /// Runs a job on a thread of its own, or after others if there are many. If no thread can be started,
    /// the caller runs it.
    pub(crate) fn run(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut state = self.lock();
        state.jobs.push_back(Box::new(job));
        // One of these threads takes the job after its own.
        if state.threads == THREADS_MAX {
            return;
        }
        // Counted before it is started, so that callers at the same moment do not exceed the limit.
        state.threads += 1;
        drop(state);
        let group = Arc::clone(self);
        let started = thread::Builder::new().name(self.name.to_owned()).spawn(move || group.work());
        // No other thread may be there to take the job, and this one was counted.
        if started.is_err() {
            self.work();
        }
    }

    fn work(&self) {
        loop {
            let mut state = self.lock();
            let Some(job) = state.jobs.pop_front() else {
                // Under the lock that has shown no job: one that is added after this starts a
                // thread.
                state.threads -= 1;
                return;
            };
            drop(state);
            // The panic hook has reported it, and whoever waits for the job gets an error.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No job runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn all_jobs_run_on_few_threads_also_after_one_that_panics() {
        let (group, (sender, ended)) = (Background::new("test"), mpsc::channel());
        let (gate, is_open) = mpsc::channel::<()>();
        let is_open = Arc::new(Mutex::new(is_open));
        for number in 0..100 {
            let (sender, is_open) = (sender.clone(), Arc::clone(&is_open));
            group.run(move || {
                if number % 10 == 0 {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
                // Closed below: none of them ends before all are queued.
                let _ = is_open.lock().unwrap().recv();
                sender.send(number).unwrap();
            });
        }
        assert_eq!(group.lock().threads, THREADS_MAX);
        drop(gate);
        for _ in 0..90 {
            ended.recv_timeout(SOON).unwrap();
        }
        while group.lock().threads > 0 {
            thread::yield_now();
        }
        group.run(move || sender.send(100).unwrap());
        assert_eq!(ended.recv_timeout(SOON), Ok(100), "a thread is started again");
    }
}
