//! The source of random decisions.

use std::ops::RangeInclusive;

use rand_mt::Mt64;

/// A random number generator: the same numbers in the same order on every machine.
pub(super) struct Chance {
    generator: Mt64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self { generator: Mt64::new(seed) }
    }

    /// Returns a number below `end`. The small bias towards small numbers does no harm here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.generator.next_u64() % end.max(1)
    }

    pub(super) fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let width = range.end().saturating_sub(*range.start());
        range.start() + self.below(width.saturating_add(1))
    }

    /// Returns `true` once in so many times; 0 is never.
    pub(super) fn once_in(&mut self, times: u32) -> bool {
        times > 0 && self.below(times.into()) == 0
    }

    pub(super) fn coin(&mut self) -> bool {
        self.once_in(2)
    }
}
