//! Who has the helm, who would like it, and what was left for whoever has it. All of it is behind one lock, which is never held while
//! anything is done: each question is answered, and the one who asked then does what the answer says.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Drive;
use super::sync::Parker;

/// The machine, and the commands that were taken along to be applied. Whoever has this one box drives: there is no second one.
pub(super) struct Wheel<M: Drive> {
    pub(super) machine: M,
    pub(super) commands: Vec<M::Command>,
}

pub(super) struct Seats<M: Drive> {
    /// Here while nobody drives, until a panic of its own ends it for good.
    wheel: Option<Box<Wheel<M>>>,
    /// Left for whoever drives. While nobody does there are none, or the first of the parked is on its way to apply them.
    commands: Vec<M::Command>,
    driver: Driver,
    /// Whether the driver sleeps, and nobody has rung for it yet.
    is_asleep: bool,
    /// Who waits and does not drive, the first one first. While nobody drives the first one is awake, or being woken.
    parked: VecDeque<(PlaceId, Arc<Parker>)>,
    next_place: u64,
    /// How often somebody who waits has taken the helm. It tells the worker that others drive.
    turns: u64,
    worker: Worker,
    is_lost: bool,
}

/// Who drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    /// Nobody, or a command's submitter, for one step.
    Brief,
    /// Somebody who waits.
    Waiter,
    Worker,
}

#[derive(Default)]
struct Worker {
    /// Where it sleeps while others drive; none where there is no worker.
    parker: Option<Arc<Parker>>,
    /// It sleeps until the helm is free: whoever lets go wakes it.
    is_resting: bool,
    /// A future is pending that nobody may be driving for.
    is_called: bool,
    is_stopping: bool,
    turns_seen: u64,
}

/// A place among the parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlaceId(u64);

/// What to do for a command.
pub(super) enum Submitted<M: Drive> {
    /// Apply it, and drive one step: it is here again.
    Drive(Box<Wheel<M>>, M::Command),
    /// Somebody else will apply it, and may have to be woken for that.
    Left { must_ring: bool },
    /// Nobody will.
    Lost(M::Command),
}

/// What to do for a wait.
pub(super) enum Turn<M: Drive> {
    Drive(Box<Wheel<M>>),
    /// Somebody drives for one step only.
    Again,
    /// There is a place now. The driver may have to be woken, so that it lets go.
    Park {
        must_ring: bool,
    },
    Lost,
}

/// What to do after letting go, or giving up a place.
pub(super) enum Next<M: Drive> {
    Nothing,
    /// It is now up to this one.
    Wake(Arc<Parker>),
    /// Commands were left meanwhile, and there is nobody else.
    Drive(Box<Wheel<M>>),
}

/// What the worker finds.
pub(super) enum Look<M: Drive> {
    Drive(Box<Wheel<M>>),
    /// Others come and go.
    Again,
    /// Another one stays: it is woken when that one lets go.
    Rest,
    End,
}

impl<M: Drive> Seats<M> {
    pub(super) fn new(machine: M) -> Self {
        Self {
            wheel: Some(Box::new(Wheel { machine, commands: Vec::new() })),
            commands: Vec::new(),
            driver: Driver::Brief,
            is_asleep: false,
            parked: VecDeque::new(),
            next_place: 0,
            turns: 0,
            worker: Worker::default(),
            is_lost: false,
        }
    }

    /// Leaves a command, or hands it back with the helm.
    pub(super) fn submit(&mut self, command: M::Command) -> Submitted<M> {
        if self.is_lost {
            return Submitted::Lost(command);
        }
        if let Some(wheel) = self.take(Driver::Brief) {
            return Submitted::Drive(wheel, command);
        }
        self.commands.push(command);
        Submitted::Left { must_ring: self.must_ring() }
    }

    /// Takes the helm for somebody who waits, or a place.
    pub(super) fn take_or_park(
        &mut self,
        place: &mut Option<PlaceId>,
        parker: impl FnOnce() -> Arc<Parker>,
        may_look_again: bool,
    ) -> Turn<M> {
        if self.is_lost {
            return Turn::Lost;
        }
        if let Some(wheel) = self.take(Driver::Waiter) {
            self.turns += 1;
            self.remove(place);
            return Turn::Drive(wheel);
        }
        if place.is_none() {
            if may_look_again && self.driver == Driver::Brief {
                return Turn::Again;
            }
            let id = PlaceId(self.next_place);
            self.next_place += 1;
            self.parked.push_back((id, parker()));
            *place = Some(id);
        }
        Turn::Park { must_ring: self.driver == Driver::Worker && self.must_ring() }
    }

    /// Gives up a place. Its owner may have been woken to take the helm, so that somebody else has to be.
    pub(super) fn leave(&mut self, mut place: Option<PlaceId>) -> Next<M> {
        self.remove(&mut place);
        self.next()
    }

    /// Lets go of the helm.
    pub(super) fn let_go(&mut self, wheel: Box<Wheel<M>>) -> Next<M> {
        self.wheel = Some(wheel);
        self.driver = Driver::Brief;
        self.next()
    }

    /// Gives the driver what was left for it.
    pub(super) fn collect(&mut self, wheel: &mut Wheel<M>) {
        if wheel.commands.is_empty() {
            // Both vectors keep their room.
            std::mem::swap(&mut self.commands, &mut wheel.commands);
        } else {
            wheel.commands.append(&mut self.commands);
        }
    }

    /// Whether the driver sleeps now. From then on it is rung for.
    pub(super) fn fall_asleep(&mut self) -> bool {
        self.is_asleep = self.commands.is_empty() && !self.is_worker_to_let_go();
        self.is_asleep
    }

    pub(super) fn wake_up(&mut self) {
        self.is_asleep = false;
    }

    /// Whether the worker drives, and shall not any longer.
    pub(super) fn is_worker_to_let_go(&self) -> bool {
        self.driver == Driver::Worker && (!self.parked.is_empty() || self.worker.is_stopping)
    }

    /// The worker has begun.
    pub(super) fn hire(&mut self, parker: Arc<Parker>) {
        self.worker.turns_seen = self.turns;
        self.worker.parker = Some(parker);
    }

    /// What the worker does next. It takes the helm only if nobody else did since its last look, or if it is called.
    pub(super) fn look(&mut self) -> Look<M> {
        if self.is_lost || self.worker.is_stopping {
            self.worker.parker = None;
            return Look::End;
        }
        let is_quiet = std::mem::replace(&mut self.worker.turns_seen, self.turns) == self.turns;
        self.worker.is_resting = false;
        let is_wanted = self.parked.is_empty() && (is_quiet || self.worker.is_called);
        if let Some(wheel) = is_wanted.then(|| self.take(Driver::Worker)).flatten() {
            self.worker.is_called = false;
            return Look::Drive(wheel);
        }
        self.worker.is_resting = is_quiet && self.driver == Driver::Waiter;
        if self.worker.is_resting { Look::Rest } else { Look::Again }
    }

    /// Calls the worker for a future: it is to be woken now, or by the one who drives.
    pub(super) fn call_worker(&mut self) -> Option<Arc<Parker>> {
        if self.wheel.is_none() && self.driver == Driver::Worker {
            return None;
        }
        self.worker.is_called = true;
        if self.wheel.is_some() && self.parked.is_empty() { self.worker.parker.clone() } else { None }
    }

    /// Tells the worker to end: whether to ring, and whom to wake.
    pub(super) fn stop_worker(&mut self) -> (bool, Option<Arc<Parker>>) {
        self.worker.is_stopping = true;
        (self.driver == Driver::Worker && self.must_ring(), self.worker.parker.clone())
    }

    /// The driver has panicked. What was left is never applied, and whoever waits is woken to be told.
    pub(super) fn lose(&mut self) -> (Vec<M::Command>, Vec<Arc<Parker>>) {
        self.is_lost = true;
        self.is_asleep = false;
        self.driver = Driver::Brief;
        let worker = self.worker.parker.take();
        let woken = self.parked.drain(..).map(|(_, parker)| parker).chain(worker).collect();
        (std::mem::take(&mut self.commands), woken)
    }

    fn take(&mut self, driver: Driver) -> Option<Box<Wheel<M>>> {
        let mut wheel = self.wheel.take()?;
        self.driver = driver;
        if !self.commands.is_empty() {
            self.collect(&mut wheel);
        }
        Some(wheel)
    }

    fn next(&mut self) -> Next<M> {
        if self.wheel.is_none() {
            return Next::Nothing;
        }
        if let Some((_, first)) = self.parked.front() {
            return Next::Wake(Arc::clone(first));
        }
        if !self.commands.is_empty() {
            return self.take(Driver::Brief).map_or(Next::Nothing, Next::Drive);
        }
        let is_worker_due = std::mem::take(&mut self.worker.is_resting) || self.worker.is_called;
        match &self.worker.parker {
            Some(worker) if is_worker_due => Next::Wake(Arc::clone(worker)),
            _ => Next::Nothing,
        }
    }

    /// Whether the driver sleeps. One ring is enough.
    fn must_ring(&mut self) -> bool {
        std::mem::take(&mut self.is_asleep)
    }

    fn remove(&mut self, place: &mut Option<PlaceId>) {
        if let Some(place) = place.take() {
            self.parked.retain(|(id, _)| *id != place);
        }
    }
}
