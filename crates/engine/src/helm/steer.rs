//! What the one at the helm does.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use super::pace::{Pace, Then};
use super::seats::{Next, Wheel};
use super::sync::{self, FAR_AWAY, Ordering, thread};
use super::{Awaited, Drive, Helm};

impl<M: Drive> Helm<M> {
    /// Applies what was left, and this command, makes one step, and lets go.
    pub(super) fn drive_once(&self, mut wheel: Box<Wheel<M>>, command: Option<M::Command>) {
        let mut command = command;
        loop {
            wheel = self.hold(wheel, |wheel| {
                wheel.commands.drain(..).for_each(|command| wheel.machine.apply(command));
                if let Some(command) = command.take() {
                    wheel.machine.apply(command);
                }
                wheel.machine.step();
            });
            let next = self.seats().let_go(wheel);
            match next {
                Next::Drive(again) => wheel = again,
                next => return self.go_on(next),
            }
        }
    }

    /// Drives until it is ready or the time is over, and lets go. Whether it is ready.
    pub(super) fn drive_until(&self, wheel: Box<Wheel<M>>, awaited: &dyn Awaited, deadline: Instant) -> bool {
        let wheel = self.hold(wheel, |wheel| self.steer(wheel, deadline, &|| awaited.is_ready()));
        let next = self.seats().let_go(wheel);
        self.go_on(next);
        awaited.is_ready()
    }

    /// Drives until somebody who waits wants the helm, or the worker is stopped.
    pub(super) fn drive_as_worker(&self, wheel: Box<Wheel<M>>) {
        let wheel = self.hold(wheel, |wheel| self.steer(wheel, Instant::now() + FAR_AWAY, &|| false));
        let next = self.seats().let_go(wheel);
        self.go_on(next);
    }

    /// Steps, and sleeps where there is nothing to do.
    fn steer(&self, wheel: &mut Wheel<M>, until: Instant, is_over: &dyn Fn() -> bool) {
        let mut pace = Pace::new(self.progress);
        loop {
            let is_to_let_go = self.collect(wheel);
            let is_asked = !wheel.commands.is_empty();
            wheel.commands.drain(..).for_each(|command| wheel.machine.apply(command));
            let has_moved = wheel.machine.step() || is_asked;
            if is_to_let_go || is_over() {
                return;
            }
            match pace.after_step(has_moved, until) {
                Then::Step => {}
                Then::Yield => thread::yield_now(),
                Then::Sleep => {
                    self.sleep(wheel, until);
                    pace.slept();
                }
                Then::GiveUp => return,
            }
        }
    }

    /// Takes what was left for the driver, and whether it is a worker that shall let go.
    fn collect(&self, wheel: &mut Wheel<M>) -> bool {
        if !self.has_news.load(Ordering::Relaxed) {
            return false;
        }
        let mut seats = self.seats();
        self.has_news.store(false, Ordering::Relaxed);
        seats.collect(wheel);
        seats.is_worker_to_let_go()
    }

    fn sleep(&self, wheel: &mut Wheel<M>, until: Instant) {
        let mut seats = self.seats();
        if !seats.fall_asleep() {
            return;
        }
        drop(seats);
        wheel.machine.sleep(until);
        self.seats().wake_up();
    }

    /// Lets somebody drive. A panic ends the machine: whoever waits is told, and nobody drives it any more.
    fn hold(&self, mut wheel: Box<Wheel<M>>, drive: impl FnOnce(&mut Wheel<M>)) -> Box<Wheel<M>> {
        let driving = sync::drive();
        // Nobody sees the machine after a panic but its own drop.
        let driven = catch_unwind(AssertUnwindSafe(|| drive(&mut wheel)));
        drop(driving);
        match driven {
            Ok(()) => wheel,
            Err(panic) => {
                let (commands, woken) = self.seats().lose();
                woken.iter().for_each(|parker| parker.unpark());
                // Tickets end with the promises in them. A panic in a drop has nothing to add to the first one.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(commands)));
                let _ = catch_unwind(AssertUnwindSafe(|| drop(wheel)));
                resume_unwind(panic)
            }
        }
    }
}
