//! Decides who leads, who parks and who is woken, and keeps what was queued for the leader.
//!
//! All of it is behind one lock, which is never held while anything is done: each method returns an action, and the caller does it after it has
//! released the lock.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Drive;
use super::leader::Leader;
use super::sync::Parker;

pub(super) struct Followers<M: Drive> {
    /// Here while nobody leads, until a panic in a step ends it for good.
    leader: Option<Box<Leader<M>>>,
    /// Queued for the leader. While nobody leads there are none, or the first of the parked is about to apply them.
    commands: Vec<M::Command>,
    kind: LeaderKind,
    /// Whether the leader sleeps, and nobody has sent a wakeup yet.
    is_asleep: bool,
    /// Followers, the first one first. While nobody leads, the first one is awake or being woken.
    parked: VecDeque<(PlaceId, Arc<Parker>)>,
    next_place: u64,
    /// How often a waiter became the leader. It tells the worker that others lead.
    terms: u64,
    worker: Worker,
    has_panicked: bool,
}

/// Who leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaderKind {
    /// Nobody, or the submitter of a command, for one step.
    Brief,
    /// A caller that waits.
    Waiter,
    Worker,
}

#[derive(Default)]
struct Worker {
    /// Where it sleeps while others lead; none where there is no worker.
    parker: Option<Arc<Parker>>,
    /// It sleeps until nobody leads: whoever steps down wakes it.
    is_resting: bool,
    /// A future is pending that nobody may be leading for.
    is_called: bool,
    is_stopping: bool,
    terms_seen: u64,
}

/// A place among the parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaceId(u64);

/// What the submitter of a command does next.
pub(super) enum SubmitAction<M: Drive> {
    /// Applies it, which is handed back here, and leads for one step.
    Lead(Box<Leader<M>>, M::Command),
    /// Nothing but a wakeup: the leader will apply it.
    Queued { must_wake: bool },
    /// Drops it: nobody will apply it.
    Ended(M::Command),
}

/// What a waiter does next.
pub(super) enum WaitAction<M: Drive> {
    Lead(Box<Leader<M>>),
    /// Looks again: somebody leads for one step only.
    Retry,
    /// Parks: it has a place now. The leader may need a wakeup, so that it steps down.
    Park {
        must_wake: bool,
    },
    Ended,
}

/// What is left to do after stepping down, or leaving a place.
pub(super) enum Handover<M: Drive> {
    Nothing,
    /// Wakes the one that leads next.
    Wake(Arc<Parker>),
    /// Leads for one more step: commands were queued meanwhile, and there is nobody else.
    Lead(Box<Leader<M>>),
}

/// What the worker does next.
pub(super) enum WorkerAction<M: Drive> {
    Lead(Box<Leader<M>>),
    /// Looks again later: others come and go.
    Retry,
    /// Sleeps: the leader wakes it when it steps down.
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

    /// Queues a command, or hands it back to a new leader.
    pub(super) fn submit(&mut self, command: M::Command) -> SubmitAction<M> {
        if self.has_panicked {
            return SubmitAction::Ended(command);
        }
        if let Some(leader) = self.take(LeaderKind::Brief) {
            return SubmitAction::Lead(leader, command);
        }
        self.commands.push(command);
        SubmitAction::Queued { must_wake: self.must_wake() }
    }

    /// Makes a waiter the leader, or gives it a place.
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
        if place.is_none() {
            if may_retry && self.kind == LeaderKind::Brief {
                return WaitAction::Retry;
            }
            let id = PlaceId(self.next_place);
            self.next_place += 1;
            self.parked.push_back((id, parker()));
            *place = Some(id);
        }
        WaitAction::Park { must_wake: self.kind == LeaderKind::Worker && self.must_wake() }
    }

    /// Leaves a place. Its owner may have been woken to lead, so that somebody else has to be.
    pub(super) fn leave(&mut self, mut place: Option<PlaceId>) -> Handover<M> {
        self.remove(&mut place);
        self.next()
    }

    /// The leader steps down.
    pub(super) fn step_down(&mut self, leader: Box<Leader<M>>) -> Handover<M> {
        self.leader = Some(leader);
        self.kind = LeaderKind::Brief;
        self.next()
    }

    /// Gives the leader what was queued for it.
    pub(super) fn collect(&mut self, leader: &mut Leader<M>) {
        if leader.commands.is_empty() {
            // Both vectors keep their capacity.
            std::mem::swap(&mut self.commands, &mut leader.commands);
        } else {
            leader.commands.append(&mut self.commands);
        }
    }

    /// Returns whether the leader may sleep. If so, it gets a wakeup from now on.
    pub(super) fn fall_asleep(&mut self) -> bool {
        self.is_asleep = self.commands.is_empty() && !self.must_worker_step_down();
        self.is_asleep
    }

    pub(super) fn wake_up(&mut self) {
        self.is_asleep = false;
    }

    /// Returns whether the worker leads and must not any longer.
    pub(super) fn must_worker_step_down(&self) -> bool {
        self.kind == LeaderKind::Worker && (!self.parked.is_empty() || self.worker.is_stopping)
    }

    /// The worker has started.
    pub(super) fn add_worker(&mut self, parker: Arc<Parker>) {
        self.worker.terms_seen = self.terms;
        self.worker.parker = Some(parker);
    }

    /// Returns what the worker does next. It leads only if no waiter has led since it last asked, or if it is called.
    pub(super) fn worker_action(&mut self) -> WorkerAction<M> {
        if self.has_panicked || self.worker.is_stopping {
            self.worker.parker = None;
            return WorkerAction::End;
        }
        let is_quiet = std::mem::replace(&mut self.worker.terms_seen, self.terms) == self.terms;
        self.worker.is_resting = false;
        let is_wanted = self.parked.is_empty() && (is_quiet || self.worker.is_called);
        if let Some(leader) = is_wanted.then(|| self.take(LeaderKind::Worker)).flatten() {
            self.worker.is_called = false;
            return WorkerAction::Lead(leader);
        }
        self.worker.is_resting = is_quiet && self.kind == LeaderKind::Waiter;
        if self.worker.is_resting { WorkerAction::Rest } else { WorkerAction::Retry }
    }

    /// Calls the worker for a future: the caller wakes it now, or the leader does when it steps down.
    pub(super) fn call_worker(&mut self) -> Option<Arc<Parker>> {
        if self.leader.is_none() && self.kind == LeaderKind::Worker {
            return None;
        }
        self.worker.is_called = true;
        if self.leader.is_some() && self.parked.is_empty() { self.worker.parker.clone() } else { None }
    }

    /// The worker leads, and has to step down for a moment: it leads again, whoever else has led by then.
    pub(super) fn recall_worker(&mut self) {
        self.worker.is_called |= self.kind == LeaderKind::Worker;
    }

    /// Tells the worker to end. Returns whether it needs a wakeup, and where it sleeps.
    pub(super) fn stop_worker(&mut self) -> (bool, Option<Arc<Parker>>) {
        self.worker.is_stopping = true;
        (self.kind == LeaderKind::Worker && self.must_wake(), self.worker.parker.clone())
    }

    /// The leader has panicked. What was queued is never applied, and all that wait are woken to learn it.
    pub(super) fn panicked(&mut self) -> (Vec<M::Command>, Vec<Arc<Parker>>) {
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
            return Handover::Wake(Arc::clone(first));
        }
        if !self.commands.is_empty() {
            return self.take(LeaderKind::Brief).map_or(Handover::Nothing, Handover::Lead);
        }
        let is_worker_due = std::mem::take(&mut self.worker.is_resting) || self.worker.is_called;
        match &self.worker.parker {
            Some(worker) if is_worker_due => Handover::Wake(Arc::clone(worker)),
            _ => Handover::Nothing,
        }
    }

    /// Returns whether the leader sleeps. One wakeup is enough.
    fn must_wake(&mut self) -> bool {
        std::mem::take(&mut self.is_asleep)
    }

    fn remove(&mut self, place: &mut Option<PlaceId>) {
        if let Some(place) = place.take() {
            self.parked.retain(|(id, _)| *id != place);
        }
    }
}
