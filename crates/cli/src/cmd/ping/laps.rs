//! Measures the CPU usage of a ping's agent, from the end of the warm-up to its last answer.

use std::time::Duration;

use super::WARM_UP;
use crate::measure::{Stopwatch, Usage};

/// Readings of the clocks.
///
/// Only the client knows which answer is the last of the warm-up, and which is the last of all, and
/// it reports this at the end. So the clocks are read after answers.
#[derive(Debug)]
pub(super) struct Laps {
    stopwatch: Stopwatch,
    /// Readings after the first answers, any of which may be the last of the warm-up.
    first: Vec<Usage>,
    /// A reading after one of the last answers.
    last: Usage,
}

/// The clocks are read after each of the first `EACH_OF` answers, then at this interval. Reading
/// the CPU clock takes half a microsecond, and a round trip may take two.
const EACH_OF: u64 = 2 * WARM_UP;
const READ_EVERY: Duration = Duration::from_micros(100);

impl Laps {
    pub(super) fn start() -> Self {
        Self { stopwatch: Stopwatch::start(), first: vec![Usage::default()], last: Usage::default() }
    }

    /// Records that answer `number` was sent.
    pub(super) fn answered(&mut self, number: u64) {
        let since = self.stopwatch.elapsed().saturating_sub(Duration::from_nanos(self.last.wall_ns));
        if number >= EACH_OF && since < READ_EVERY {
            return;
        }
        self.last = self.stopwatch.usage();
        if number < WARM_UP {
            self.first.push(self.last);
        }
    }

    /// Returns the usage since the first `warm_up` answers.
    pub(super) fn usage_behind(&self, warm_up: u64) -> Usage {
        let begin = self.first.get(warm_up as usize).or(self.first.last()).copied().unwrap_or_default();
        self.last.since(begin)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn neither_the_warm_up_counts_nor_what_comes_behind_the_last_answer() {
        const PAUSE: Duration = Duration::from_millis(30);
        let mut laps = Laps::start();
        thread::sleep(PAUSE);
        for number in 0..7 {
            laps.answered(number);
        }
        thread::sleep(PAUSE);
        laps.answered(7);
        thread::sleep(PAUSE);
        let wall = |warm_up| Duration::from_nanos(laps.usage_behind(warm_up).wall_ns);
        assert!(wall(7) >= PAUSE && wall(0) >= 2 * PAUSE, "{laps:?}");
        assert_eq!((wall(8), laps.first.len()), (Duration::ZERO, 9));
        assert!(laps.stopwatch.elapsed() >= wall(0) + PAUSE);
    }

    #[test]
    fn short_round_trips_are_not_kept_up_by_it_and_yet_all_are_told_of() {
        let mut laps = Laps::start();
        let mut readings = 0;
        for number in 0..100_000 {
            let before = laps.last;
            laps.answered(number);
            readings += u64::from(laps.last != before);
        }
        let most = EACH_OF + laps.stopwatch.elapsed().as_micros() as u64 / 100;
        assert!(readings <= most, "{readings} of at most {most}");
        let untold = laps.stopwatch.elapsed().as_nanos() as u64 - laps.last.wall_ns;
        assert!(laps.usage_behind(WARM_UP).wall_ns > 0 && untold < 100_000_000, "{untold} ns");
    }
}
