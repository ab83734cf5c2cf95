//! The work of a leader: apply queued commands, step, and sleep when there is nothing to do.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use super::backoff::{Action, Backoff};
use super::followers::Handover;
use super::leader::Leader;
use super::sync::{self, FAR_AWAY, Ordering, thread};
use super::{Awaited, Drive, LeaderFollowers, wake_all};

/// The reason why a leader has stepped down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Led {
    /// The deadline has passed, or the awaited result is ready.
    Enough,
    /// There are wakers to run.
    ForWakers,
}

impl<M: Drive> LeaderFollowers<M> {
    /// Applies the queued commands and `command`, makes one step, and steps down. Repeats this
    /// while commands were queued in the meantime and no other thread can lead.
    pub(super) fn lead_once(&self, leader: Box<Leader<M>>, command: &mut Option<M::Command>) {
        self.lead_briefly(leader, |leader| leader.step(command.take()));
    }

    /// Runs `drive` as the leader, and steps down. Steps while commands were queued in the meantime
    /// and no other thread can lead.
    pub(super) fn lead_briefly(&self, leader: Box<Leader<M>>, drive: impl FnOnce(&mut Leader<M>)) {
        let mut leader = self.lead(leader, drive);
        let mut wakers = Vec::new();
        loop {
            // Taken out before another thread can lead.
            wakers.append(leader.machine.wakers());
            // The lock is released before the next action.
            let next = self.followers().step_down(leader);
            match next {
                Handover::Lead(again) => leader = self.lead(again, |leader| leader.step(None)),
                next => {
                    self.hand_over(next);
                    // Last: a waker may block, and no thread has to wait for this one any more.
                    return wake_all(wakers);
                }
            }
        }
    }

    /// Leads until `awaited` is ready, the deadline passes or a task has to be woken, then steps
    /// down.
    pub(super) fn lead_until(&self, leader: Box<Leader<M>>, awaited: &dyn Awaited, deadline: Instant) -> Led {
        let leader = self.lead(leader, |leader| self.run(leader, deadline, &|| awaited.is_ready()));
        self.step_down(leader)
    }

    /// Leads until a waiter wants to lead, a task has to be woken, or the worker is stopped.
    pub(super) fn lead_as_worker(&self, leader: Box<Leader<M>>) {
        let leader = self.lead(leader, |leader| self.run(leader, Instant::now() + FAR_AWAY, &|| false));
        self.step_down(leader);
    }

    /// Hands the leadership over, and wakes the tasks that were collected.
    fn step_down(&self, mut leader: Box<Leader<M>>) -> Led {
        let wakers = std::mem::take(leader.machine.wakers());
        let mut followers = self.followers();
        if !wakers.is_empty() {
            // Other pending futures still need a leader afterwards.
            followers.recall_worker();
        }
        let next = followers.step_down(leader);
        drop(followers);
        self.hand_over(next);
        let led = if wakers.is_empty() { Led::Enough } else { Led::ForWakers };
        wake_all(wakers);
        led
    }

    /// Applies commands and steps, and sleeps while there is nothing to do.
    fn run(&self, leader: &mut Leader<M>, until: Instant, is_over: &dyn Fn() -> bool) {
        let mut backoff = Backoff::new(self.mode);
        loop {
            let must_step_down = self.collect(leader);
            let is_asked = !leader.commands.is_empty();
            leader.commands.drain(..).for_each(|command| leader.machine.apply(command));
            let has_moved = leader.machine.step() || is_asked;
            // After the step, because each command needs one: it posts what the command has queued.
            if must_step_down || is_over() || !leader.machine.wakers().is_empty() {
                return;
            }
            match backoff.after_step(has_moved, until) {
                Action::Step => {}
                Action::Yield => thread::yield_now(),
                Action::Sleep => {
                    // It returns at once if commands were queued, which the next step applies.
                    self.sleep(leader, until);
                    backoff.slept();
                }
                Action::TimedOut => return,
            }
        }
    }

    /// Takes the queued commands. Returns whether this thread is the worker and has to step down.
    fn collect(&self, leader: &mut Leader<M>) -> bool {
        // A stale value only delays this: `sleep` and `step_down` take the lock.
        if !self.has_news.load(Ordering::Relaxed) {
            return false;
        }
        let mut followers = self.followers();
        self.has_news.store(false, Ordering::Relaxed);
        followers.collect(leader);
        followers.must_worker_step_down()
    }

    fn sleep(&self, leader: &mut Leader<M>, until: Instant) {
        let mut followers = self.followers();
        // Under the lock: either the command is seen here, or its submitter sees the sleeper and
        // wakes it.
        if !followers.fall_asleep() {
            return;
        }
        drop(followers);
        leader.machine.sleep(until);
        // From now on a submitter needs no system call to wake it.
        self.followers().wake_up();
    }

    /// Runs `drive` as the leader. A panic ends the machine: all waiting threads are woken and get
    /// an error, and no thread leads any more.
    fn lead(&self, mut leader: Box<Leader<M>>, drive: impl FnOnce(&mut Leader<M>)) -> Box<Leader<M>> {
        // The marks tell a rail that calls the engine not to wait, and other threads in which C
        // function this one is.
        let leading = (sync::lead(), leader.machine.lead());
        // Unwind safety: after a panic, only the machine's own drop uses it.
        let driven = catch_unwind(AssertUnwindSafe(|| drive(&mut leader)));
        drop(leading);
        match driven {
            Ok(()) => leader,
            Err(panic) => {
                // First: from now on no thread parks to wait for a leader, and none is missing in
                // `woken`.
                let (commands, woken) = self.followers().panicked();
                woken.iter().for_each(|parker| parker.unpark());
                // Of tasks whose results are there.
                let wakers = std::mem::take(leader.machine.wakers());
                // Dropping the commands and the machine drops their senders, which closes the
                // receivers. A second panic in a drop would add nothing to the first one.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(commands)));
                let _ = catch_unwind(AssertUnwindSafe(|| drop(leader)));
                wake_all(wakers);
                resume_unwind(panic)
            }
        }
    }
}
