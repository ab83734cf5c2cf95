//! What a leader does after a step: step again, yield to other threads, or sleep.

use std::time::{Duration, Instant};

/// How often the worker asks to lead while others come and go: seldom enough to disturb nobody, and often enough for a peer that waits.
pub(super) const WORKER_RETRY: Duration = Duration::from_millis(2);

/// How long steps without an event go on before sleeping. A wakeup costs 5 µs to 50 µs, so spinning for about as long costs at most
/// twice what the best choice would.
const SPIN: Duration = Duration::from_micros(30);

/// How long a leader spins before it yields to other threads: on a machine with a core for each thread, an answer comes within.
const SPIN_ALONE: Duration = Duration::from_micros(5);

/// Reading the clock costs as much as a short step.
const STEPS_BETWEEN_CLOCKS: u32 = 16;

/// How an engine waits for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Progress {
    /// Polls without sleeping, and yields to other threads in between: the shortest latency, for a whole core.
    Busy,
    /// Sleeps at once: each event costs a wakeup, and nothing else.
    Event,
    /// Polls for about as long as a wakeup takes, then sleeps.
    #[default]
    Adaptive,
}

/// What to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Step,
    Yield,
    Sleep,
    /// The deadline has passed.
    TimedOut,
}

/// Chooses between spinning, yielding and sleeping, for one leader.
#[derive(Debug)]
pub(super) struct Backoff {
    mode: Progress,
    /// Steps since the clock was last read.
    steps: u32,
    /// When the clock was first read without an event since.
    idle_since: Option<Instant>,
    /// Whether there was no step since the last sleep.
    has_slept: bool,
}

impl Backoff {
    pub(super) fn new(mode: Progress) -> Self {
        Self { mode, steps: 0, idle_since: None, has_slept: false }
    }

    /// The next step finds what ended the sleep. If it finds nothing, that was the timeout or a keep-alive, and nothing more is to be
    /// expected than before.
    pub(super) fn slept(&mut self) {
        self.has_slept = self.mode != Progress::Busy;
    }

    pub(super) fn after_step(&mut self, has_moved: bool, until: Instant) -> Action {
        self.steps += 1;
        if has_moved {
            self.idle_since = None;
        }
        let was_woken_for_nothing = std::mem::take(&mut self.has_slept) && !has_moved;
        let is_to_sleep = was_woken_for_nothing || (self.mode == Progress::Event && !has_moved);
        if self.steps < STEPS_BETWEEN_CLOCKS && !is_to_sleep {
            return Action::Step;
        }
        let now = Instant::now();
        match was_woken_for_nothing && now < until {
            true => Action::Sleep,
            false => self.at(now, has_moved, until),
        }
    }

    /// Decides by the clock.
    fn at(&mut self, now: Instant, has_moved: bool, until: Instant) -> Action {
        self.steps = 0;
        if now >= until {
            return Action::TimedOut;
        }
        if has_moved {
            return Action::Step;
        }
        let idle = now.duration_since(*self.idle_since.get_or_insert(now));
        match self.mode {
            Progress::Event => Action::Sleep,
            Progress::Adaptive if idle >= SPIN => {
                // The spin begins anew after the sleep.
                self.idle_since = None;
                Action::Sleep
            }
            _ if idle >= SPIN_ALONE => Action::Yield,
            _ => Action::Step,
        }
    }
}
