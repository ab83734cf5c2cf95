//! The source of random decisions.

use std::ops::RangeInclusive;

use rand_mt::Mt64;

/// A random number generator: the same numbers in the same order on every machine.
pub(super) struct Chance {
    generator: Mt64,
    /// What the next coins show, if a test determines that.
    #[cfg(test)]
    coins: Option<std::collections::VecDeque<bool>>,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            generator: Mt64::new(seed),
            #[cfg(test)]
            coins: None,
        }
    }

    /// Determines what the next coins show. From now on nothing else is left to chance: everything moves in as
    /// many parts as it may, and only what is certain happens by itself.
    #[cfg(test)]
    pub(super) fn set_coins(&mut self, coins: impl IntoIterator<Item = bool>) {
        self.coins = Some(coins.into_iter().collect());
    }

    /// Returns a number below `end`. The small bias towards small numbers does no harm here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        #[cfg(test)]
        if self.coins.is_some() {
            return end.max(1) - 1;
        }
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
        #[cfg(test)]
        if let Some(coins) = &mut self.coins {
            return coins.pop_front().expect("a test determines every coin");
        }
        self.once_in(2)
    }
}
