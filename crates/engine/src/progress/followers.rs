//! Decides which thread leads, which ones park and which one is woken, and keeps the commands
//! queued for the leader.
//!
//! The state is behind one lock. Invariant: no action is performed while the lock is held. Each
//! method returns an action, and the caller performs it after releasing the lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Drive;
use super::backoff::{WORKER_RETRY, WORKER_RETRY_BUSY};
use super::leader::Leader;
use super::sync::Parker;

/// The threads that wait, the queued commands, and the leader while no thread leads.
pub(super) struct Followers<M: Drive> {
    /// The leader while no thread leads. It is lost for good if a step panics.
    leader: Option<Box<Leader<M>>>,
    /// Commands queued for the leader. While no thread leads, this is empty, or the first parked
    /// thread or else the worker is about to apply them.
    commands: Vec<M::Command>,
    kind: LeaderKind,
    /// Whether the leader sleeps and no wakeup was sent yet.
    is_asleep: bool,
    /// Parked followers in order of arrival. While no thread leads, the first one is awake or is
    /// being woken.
    parked: VecDeque<(PlaceId, Arc<Parker>)>,
    next_place: u64,
    /// Raised when a caller becomes the leader to wait or to perform an operation, and when a waiter
    /// steps down for which the worker has rested. The worker compares it to learn whether callers
    /// lead.
    terms: u64,
    worker: Worker,
    has_panicked: bool,
}

/// The kind of the leading thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaderKind {
    /// No thread, or the submitter of a command for one step.
    Brief,
    /// A caller that waits.
    Waiter,
    Worker,
}

/// State of the worker thread.
#[derive(Default)]
struct Worker {
    /// Parks the worker while other threads lead; `None` without a worker.
    parker: Option<Arc<Parker>>,
    /// The worker sleeps until no thread leads. A leader that steps down wakes it.
    is_resting: bool,
    /// A future is pending, and it is possible that no thread leads for it.
    is_called: bool,
    is_stopping: bool,
    terms_seen: u64,
}

/// Identifies a place in the queue of parked followers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaceId(u64);

/// The next action of the submitter of a command.
pub(super) enum SubmitAction<M: Drive> {
    /// Apply the command, which was not taken, and lead for one step.
    Lead(Box<Leader<M>>),
    /// Send a wakeup if one is needed. The leader applies the command.
    Queued { must_wake: bool },
    /// Drop the command, because no thread will apply it.
    Ended,
}

/// The next action of a caller that has queued a command for others.
pub(super) enum QueueAction {
    /// Send a wakeup if one is needed, and wake the worker, if there is one here.
    Queued { must_wake: bool, worker: Option<Arc<Parker>> },
    /// Drop the command, because no thread will apply it.
    Ended,
}

/// The next action of a waiter.
pub(super) enum WaitAction<M: Drive> {
    Lead(Box<Leader<M>>),
    /// Ask again, because another thread leads for one step only.
    Retry,
    /// Park in the place that was assigned. The leader may need a wakeup, so that it steps down.
    Park {
        must_wake: bool,
    },
    Ended,
}

/// The action that remains after a thread has stepped down or left its place.
pub(super) enum Handover<M: Drive> {
    Nothing,
    /// Wake the thread that leads next.
    Wake(Arc<Parker>),
    /// Lead for one more step: commands were queued in the meantime, and no other thread would
    /// apply them.
    Lead(Box<Leader<M>>),
}

/// The next action of the worker.
pub(super) enum WorkerAction<M: Drive> {
    Lead(Box<Leader<M>>),
    /// Ask again after this time, because waiters lead in turn.
    Retry(Duration),
    /// Sleep. The leader wakes the worker when it steps down.
    Rest,
    End,
}

impl<M: Drive> Followers<M> {
    pub(super) fn new(machine: M) -> Self {
        Self {
            leader: Some(Box::new(Leader { machine, commands: Vec::new() })),
            commands: Vec::new(),
            kind: LeaderKind::Brief,
            is_asleep: false,
            parked: VecDeque::new(),
            next_place: 0,
            terms: 0,
            worker: Worker::default(),
            has_panicked: false,
        }
    }

    /// Queues a command, or leaves it to the caller as the new leader.
    pub(super) fn submit(&mut self, command: &mut Option<M::Command>) -> SubmitAction<M> {
        if self.has_panicked {
            return SubmitAction::Ended;
        }
        // The command stays where it is. The caller applies it after the queued ones.
        if let Some(leader) = self.take(LeaderKind::Brief) {
            return SubmitAction::Lead(leader);
        }
        self.commands.extend(command.take());
        SubmitAction::Queued { must_wake: self.must_wake() }
    }

    /// Queues a command for another thread. If none leads and none is parked, the worker is called.
    pub(super) fn queue(&mut self, command: &mut Option<M::Command>) -> QueueAction {
        if self.has_panicked {
            return QueueAction::Ended;
        }
        self.commands.extend(command.take());
        // A thread that leads applies it before it sleeps or steps down.
        let worker = if self.leader.is_some() { self.call_worker() } else { None };
        QueueAction::Queued { must_wake: self.must_wake(), worker }
    }

    /// Returns whether no thread will lead any more.
    pub(super) fn has_ended(&self) -> bool {
        self.has_panicked
    }

    /// Makes the caller the leader for a moment, if no thread leads.
    pub(super) fn lead_briefly(&mut self) -> Option<Box<Leader<M>>> {
        let leader = self.take(LeaderKind::Brief)?;
        // A caller whose operations are all performed never waits. The worker stays away from it as
        // from one that does.
        self.terms += 1;
        Some(leader)
    }

    /// Makes a waiter the leader, or assigns it a place among the parked.
    pub(super) fn lead_or_park(
        &mut self,
        place: &mut Option<PlaceId>,
        parker: impl FnOnce() -> Arc<Parker>,
        may_retry: bool,
    ) -> WaitAction<M> {
        if self.has_panicked {
            return WaitAction::Ended;
        }
        if let Some(leader) = self.take(LeaderKind::Waiter) {
            self.terms += 1;
            self.remove(place);
            return WaitAction::Lead(leader);
        }
        // A thread that was woken in vain keeps its place, and its turn to lead.
        if place.is_none() {
            // A thread that submits a command steps down after one step.
            if may_retry && self.kind == LeaderKind::Brief {
                return WaitAction::Retry;
            }
            let id = PlaceId(self.next_place);
            self.next_place += 1;
            self.parked.push_back((id, parker()));
            *place = Some(id);
        }
        // Only the worker steps down for a follower. A caller leads until its own wait ends.
        WaitAction::Park { must_wake: self.kind == LeaderKind::Worker && self.must_wake() }
    }

    /// Leaves a place. Its owner may have been woken to lead, so another thread may have to be
    /// woken.
    pub(super) fn leave(&mut self, mut place: Option<PlaceId>) -> Handover<M> {
        self.remove(&mut place);
        self.next()
    }

    /// Takes the leader back from a thread that steps down.
    pub(super) fn step_down(&mut self, leader: Box<Leader<M>>) -> Handover<M> {
        self.leader = Some(leader);
        self.kind = LeaderKind::Brief;
        self.next()
    }

    /// Moves the queued commands to the leader.
    pub(super) fn collect(&mut self, leader: &mut Leader<M>) {
        if leader.commands.is_empty() {
            // Swapping keeps the capacity of both vectors.
            std::mem::swap(&mut self.commands, &mut leader.commands);
        } else {
            leader.commands.append(&mut self.commands);
        }
    }

    /// Returns whether the leader may sleep. If so, it needs a wakeup from now on.
    pub(super) fn fall_asleep(&mut self) -> bool {
        // A follower that has parked since the last step also keeps the worker awake.
        self.is_asleep = self.commands.is_empty() && !self.must_worker_step_down();
        self.is_asleep
    }

    pub(super) fn wake_up(&mut self) {
        self.is_asleep = false;
    }

    /// Returns whether the worker leads and has to step down.
    pub(super) fn must_worker_step_down(&self) -> bool {
        self.kind == LeaderKind::Worker && (!self.parked.is_empty() || self.worker.is_stopping)
    }

    /// Registers a worker that has started.
    pub(super) fn add_worker(&mut self, parker: Arc<Parker>) {
        // Callers that have led before it was there must not keep it away.
        self.worker.terms_seen = self.terms;
        self.worker.parker = Some(parker);
    }

    /// Returns the next action of the worker. It leads only if it was called, or if no waiter has
    /// led since it last asked.
    pub(super) fn worker_action(&mut self) -> WorkerAction<M> {
        if self.has_panicked || self.worker.is_stopping {
            // From now on no handover chooses the worker.
            self.worker.parker = None;
            return WorkerAction::End;
        }
        // Callers that have led since the last question are likely to lead again at once.
        let is_quiet = std::mem::replace(&mut self.worker.terms_seen, self.terms) == self.terms;
        self.worker.is_resting = false;
        // The first parked thread leads before the worker: its own result then needs no switch of
        // threads.
        let is_wanted = self.parked.is_empty() && (is_quiet || self.worker.is_called);
        if let Some(leader) = is_wanted.then(|| self.take(LeaderKind::Worker)).flatten() {
            self.worker.is_called = false;
            return WorkerAction::Lead(leader);
        }
        // One caller has led since the last question, and may do so for hours. It wakes the worker
        // when it steps down, so that the worker does not run every 2 ms meanwhile.
        self.worker.is_resting = is_quiet && self.kind == LeaderKind::Waiter;
        if self.worker.is_resting {
            return WorkerAction::Rest;
        }
        // Without a leader nobody polls, so what is in flight makes no progress meanwhile.
        let is_busy = self.leader.as_ref().is_some_and(|leader| leader.machine.is_busy());
        WorkerAction::Retry(if is_busy { WORKER_RETRY_BUSY } else { WORKER_RETRY })
    }

    /// Calls the worker for a future. Returns its parker if the caller has to wake it now;
    /// otherwise the leader wakes it when it steps down.
    pub(super) fn call_worker(&mut self) -> Option<Arc<Parker>> {
        // The worker leads already, and steps for the future as well.
        if self.leader.is_none() && self.kind == LeaderKind::Worker {
            return None;
        }
        self.worker.is_called = true;
        // A parked thread leads next, and wakes the worker when it steps down.
        if self.leader.is_some() && self.parked.is_empty() { self.worker.parker.clone() } else { None }
    }

    /// Notes that a worker that leads has to step down for a moment. It leads again afterwards,
    /// even if another thread has led in the meantime.
    pub(super) fn recall_worker(&mut self) {
        self.worker.is_called |= self.kind == LeaderKind::Worker;
    }

    /// Marks the worker as stopping. Returns whether it needs a wakeup, and its parker.
    pub(super) fn stop_worker(&mut self) -> (bool, Option<Arc<Parker>>) {
        self.worker.is_stopping = true;
        // It sleeps on descriptors if it leads, and on its parker otherwise. Either has to end.
        (self.kind == LeaderKind::Worker && self.must_wake(), self.worker.parker.clone())
    }

    /// Records that the leader has panicked. Returns the queued commands, which are never applied,
    /// and the parkers of all waiting threads, which the caller wakes.
    pub(super) fn panicked(&mut self) -> (Vec<M::Command>, Vec<Arc<Parker>>) {
        // The leader is not put back: no thread may step a machine that a panic has left half
        // changed.
        self.has_panicked = true;
        self.is_asleep = false;
        self.kind = LeaderKind::Brief;
        let worker = self.worker.parker.take();
        let woken = self.parked.drain(..).map(|(_, parker)| parker).chain(worker).collect();
        (std::mem::take(&mut self.commands), woken)
    }

    fn take(&mut self, kind: LeaderKind) -> Option<Box<Leader<M>>> {
        let mut leader = self.leader.take()?;
        self.kind = kind;
        if !self.commands.is_empty() {
            self.collect(&mut leader);
        }
        Some(leader)
    }

    fn next(&mut self) -> Handover<M> {
        if self.leader.is_none() {
            return Handover::Nothing;
        }
        if let Some((_, first)) = self.parked.front() {
            // It takes the queued commands together with the leader.
            return Handover::Wake(Arc::clone(first));
        }
        if !self.commands.is_empty() {
            return self.take(LeaderKind::Brief).map_or(Handover::Nothing, Handover::Lead);
        }
        let was_resting = std::mem::take(&mut self.worker.is_resting);
        // It only looks whether another waiter follows: most callers wait again at once, and if the
        // worker led, its steps would delay them.
        self.terms += u64::from(was_resting);
        let is_worker_due = was_resting || self.worker.is_called;
        match &self.worker.parker {
            Some(worker) if is_worker_due => Handover::Wake(Arc::clone(worker)),
            _ => Handover::Nothing,
        }
    }

    /// Returns whether the leader sleeps, and clears the flag, because one wakeup is enough.
    fn must_wake(&mut self) -> bool {
        std::mem::take(&mut self.is_asleep)
    }

    fn remove(&mut self, place: &mut Option<PlaceId>) {
        if let Some(place) = place.take() {
            self.parked.retain(|(id, _)| *id != place);
        }
    }
}
