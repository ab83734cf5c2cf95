//! What a leader does: apply queued commands, step, and sleep when there is nothing to do.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use super::backoff::{Action, Backoff};
use super::followers::Handover;
use super::leader::Leader;
use super::sync::{self, FAR_AWAY, Ordering, thread};
use super::{Awaited, Drive, LeaderFollowers, wake_all};

/// Why a leader has stepped down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Led {
    /// Its time is over, or what it waited for is there.
    Enough,
    /// There were wakers to run.
    ForWakers,
}

impl<M: Drive> LeaderFollowers<M> {
    /// Applies what was queued, and this command, makes one step, and steps down.
    pub(super) fn lead_once(&self, mut leader: Box<Leader<M>>, command: Option<M::Command>) {
        let mut command = command;
        let mut wakers = Vec::new();
        loop {
            leader = self.lead(leader, |leader| {
                leader.commands.drain(..).for_each(|command| leader.machine.apply(command));
                if let Some(command) = command.take() {
                    leader.machine.apply(command);
                }
                leader.machine.step();
            });
            wakers.append(leader.machine.wakers());
            let next = self.followers().step_down(leader);
            match next {
                Handover::Lead(again) => leader = again,
                next => {
                    self.hand_over(next);
                    return wake_all(wakers);
                }
            }
        }
    }

    /// Leads until `awaited` is ready, the deadline passes or a task is to be woken, and steps down.
    pub(super) fn lead_until(&self, leader: Box<Leader<M>>, awaited: &dyn Awaited, deadline: Instant) -> Led {
        let leader = self.lead(leader, |leader| self.run(leader, deadline, &|| awaited.is_ready()));
        self.step_down(leader)
    }

    /// Leads until a waiter wants to lead, a task is to be woken, or the worker is stopped.
    pub(super) fn lead_as_worker(&self, leader: Box<Leader<M>>) {
        let leader = self.lead(leader, |leader| self.run(leader, Instant::now() + FAR_AWAY, &|| false));
        self.step_down(leader);
    }

    /// Lets another one lead, and wakes the tasks that are to be woken.
    fn step_down(&self, mut leader: Box<Leader<M>>) -> Led {
        let wakers = std::mem::take(leader.machine.wakers());
        let mut followers = self.followers();
        if !wakers.is_empty() {
            // Those that wait for other futures are not forgotten meanwhile.
            followers.recall_worker();
        }
        let next = followers.step_down(leader);
        drop(followers);
        self.hand_over(next);
        let led = if wakers.is_empty() { Led::Enough } else { Led::ForWakers };
        wake_all(wakers);
        led
    }

    /// Steps, and sleeps where there is nothing to do.
    fn run(&self, leader: &mut Leader<M>, until: Instant, is_over: &dyn Fn() -> bool) {
        let mut backoff = Backoff::new(self.mode);
        loop {
            let must_step_down = self.collect(leader);
            let is_asked = !leader.commands.is_empty();
            leader.commands.drain(..).for_each(|command| leader.machine.apply(command));
            let has_moved = leader.machine.step() || is_asked;
            if must_step_down || is_over() || !leader.machine.wakers().is_empty() {
                return;
            }
            match backoff.after_step(has_moved, until) {
                Action::Step => {}
                Action::Yield => thread::yield_now(),
                Action::Sleep => {
                    self.sleep(leader, until);
                    backoff.slept();
                }
                Action::TimedOut => return,
            }
        }
    }

    /// Takes what was queued for the leader. Returns whether it is the worker and must step down.
    fn collect(&self, leader: &mut Leader<M>) -> bool {
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
        if !followers.fall_asleep() {
            return;
        }
        drop(followers);
        leader.machine.sleep(until);
        self.followers().wake_up();
    }

    /// Runs `drive` as the leader. A panic ends the machine: all that wait are told, and nobody leads any more.
    fn lead(&self, mut leader: Box<Leader<M>>, drive: impl FnOnce(&mut Leader<M>)) -> Box<Leader<M>> {
        let leading = sync::lead();
        // After a panic nobody sees the machine but its own drop.
        let driven = catch_unwind(AssertUnwindSafe(|| drive(&mut leader)));
        drop(leading);
        match driven {
            Ok(()) => leader,
            Err(panic) => {
                let (commands, woken) = self.followers().panicked();
                woken.iter().for_each(|parker| parker.unpark());
                // Receivers end with the senders in them. A panic in a drop has nothing to add to the first one.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(commands)));
                let _ = catch_unwind(AssertUnwindSafe(|| drop(leader)));
                resume_unwind(panic)
            }
        }
    }
}
