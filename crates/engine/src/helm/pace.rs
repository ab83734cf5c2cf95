//! Step again, let others run, or sleep.

use std::time::{Duration, Instant};

/// How often the worker looks while others come and go: seldom enough to be in nobody's way, and often enough for a peer that waits.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How long steps without event go on before sleeping. To be woken costs 5 µs to 50 µs; so spinning for about as long costs no more
/// than twice the best choice.
const SPIN: Duration = Duration::from_micros(30);

/// So long a driver does not let others run: on a machine with a core for each, an answer comes within.
const SPIN_ALONE: Duration = Duration::from_micros(5);

/// A look at the clock costs as much as a short step.
const STEPS_BETWEEN_LOOKS: u32 = 16;

/// What a driver does when there is nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Progress {
    /// Steps on, and lets others run in between: the shortest latency, for a whole core.
    Busy,
    /// Sleeps at once: each event costs a wake-up, and nothing else.
    Event,
    /// Steps on for about as long as waking up takes, then sleeps.
    #[default]
    Adaptive,
}

/// What to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Step,
    Yield,
    Sleep,
    /// The time is over.
    GiveUp,
}

/// The steps of one drive.
#[derive(Debug)]
pub(super) struct Pace {
    progress: Progress,
    /// Steps since the last look at the clock.
    steps: u32,
    /// Seen first at a look at the clock.
    idle_since: Option<Instant>,
    /// Whether there was no step since the last sleep.
    has_slept: bool,
}

impl Pace {
    pub(super) fn new(progress: Progress) -> Self {
        Self { progress, steps: 0, idle_since: None, has_slept: false }
    }

    /// What woke it up is found by the next step. If that finds nothing, it was the time, or a peer that only says that it is there: then
    /// nothing more is to be expected than before.
    pub(super) fn slept(&mut self) {
        self.has_slept = self.progress != Progress::Busy;
    }

    pub(super) fn after_step(&mut self, has_moved: bool, until: Instant) -> Then {
        self.steps += 1;
        if has_moved {
            self.idle_since = None;
        }
        let is_for_nothing = std::mem::take(&mut self.has_slept) && !has_moved;
        let is_sleepy = is_for_nothing || (self.progress == Progress::Event && !has_moved);
        if self.steps < STEPS_BETWEEN_LOOKS && !is_sleepy {
            return Then::Step;
        }
        let now = Instant::now();
        match is_for_nothing && now < until {
            true => Then::Sleep,
            false => self.look(has_moved, until, now),
        }
    }

    /// With a look at the clock.
    fn look(&mut self, has_moved: bool, until: Instant, now: Instant) -> Then {
        self.steps = 0;
        if now >= until {
            return Then::GiveUp;
        }
        if has_moved {
            return Then::Step;
        }
        let idle = now.duration_since(*self.idle_since.get_or_insert(now));
        match self.progress {
            Progress::Event => Then::Sleep,
            Progress::Adaptive if idle >= SPIN => {
                // What wakes it up begins anew.
                self.idle_since = None;
                Then::Sleep
            }
            _ if idle >= SPIN_ALONE => Then::Yield,
            _ => Then::Step,
        }
    }
}
