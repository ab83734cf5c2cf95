//! Chooses the action of a leader after a step: step again, yield to other threads, or sleep.

use std::time::{Duration, Instant};

/// Interval at which the worker asks to lead while waiters lead in turn. It is long enough not to
/// disturb them, and short enough for a peer that waits for an answer.
pub(super) const WORKER_RETRY: Duration = Duration::from_millis(2);

/// The same if something is in flight while no thread leads. Callers that come now and then lead for a
/// step each, and transfers that nobody waits for would else make one step for each of these.
pub(super) const WORKER_RETRY_BUSY: Duration = Duration::from_micros(50);

/// Time without an event after which an adaptive leader sleeps. A wakeup costs 5 µs to 50 µs.
/// Spinning for about as long costs at most twice as much as the best choice.
const SPIN: Duration = Duration::from_micros(30);

/// Time without an event after which a leader yields to other threads between steps. On a machine
/// with a core for each thread, an answer arrives sooner than that.
const SPIN_ALONE: Duration = Duration::from_micros(5);

/// Steps between two readings of the clock, because a reading costs as much as a short step.
const STEPS_BETWEEN_CLOCKS: u32 = 16;

/// The waiting strategy of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Progress {
    /// Polls without sleeping, and yields to other threads in between. This has the shortest
    /// latency and uses a whole core.
    Busy,
    /// Sleeps as soon as a step finds no event. Each event costs a wakeup; waiting costs no
    /// processor time.
    Event,
    /// Polls for about as long as a wakeup takes, then sleeps.
    #[default]
    Adaptive,
}

/// The action of a leader after a step.
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
    /// The first reading of the clock since the last event.
    idle_since: Option<Instant>,
    /// Whether the leader has slept and has made no step since.
    has_slept: bool,
}

impl Backoff {
    pub(super) fn new(mode: Progress) -> Self {
        Self { mode, steps: 0, idle_since: None, has_slept: false }
    }

    /// Notes that the leader has slept. The next step finds the event that ended the sleep. If it
    /// finds none, a timeout or a ping ended the sleep, and spinning is not worthwhile.
    pub(super) fn slept(&mut self) {
        self.has_slept = self.mode != Progress::Busy;
    }

    /// Returns the next action after a step. `has_moved` says whether the step found an event.
    pub(super) fn after_step(&mut self, has_moved: bool, until: Instant) -> Action {
        self.steps += 1;
        if has_moved {
            self.idle_since = None;
        }
        let was_woken_for_nothing = std::mem::take(&mut self.has_slept) && !has_moved;
        // A sleep takes longer than a reading of the clock, so these cases need not wait for the
        // next one.
        let is_to_sleep = was_woken_for_nothing || (self.mode == Progress::Event && !has_moved);
        if self.steps < STEPS_BETWEEN_CLOCKS && !is_to_sleep {
            return Action::Step;
        }
        let now = Instant::now();
        // Beyond the deadline, each sleep would return at once for nothing. `at` ends the wait.
        match was_woken_for_nothing && now < until {
            true => Action::Sleep,
            false => self.at(now, has_moved, until),
        }
    }

    /// Decides by the time since the last event.
    fn at(&mut self, now: Instant, has_moved: bool, until: Instant) -> Action {
        self.steps = 0;
        if now >= until {
            return Action::TimedOut;
        }
        if has_moved {
            return Action::Step;
        }
        // The clock is read rarely, so the time counts from the first reading after the event.
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
