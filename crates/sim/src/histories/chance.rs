//! The source of random decisions of a history, apart from the simulated network's own.

use std::ops::RangeInclusive;

/// A random number generator: the same numbers in the same order on every machine.
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        // The golden ratio in 64 bits. It is odd, so every number occurs once before any recurs.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `end`. The small bias towards small numbers does no harm here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns an index below `end`.
    pub(super) fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    pub(super) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Returns one of the choices, or `None` if there are none.
    pub(super) fn one_of<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        choices.get(self.index(choices.len())).copied()
    }

    /// Returns the index of a weight, with a probability in proportion to it.
    pub(super) fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut left = self.below(weights.iter().map(|weight| u64::from(*weight)).sum());
        for (place, weight) in weights.iter().enumerate() {
            match left.checked_sub(u64::from(*weight)) {
                Some(less) => left = less,
                None => return place,
            }
        }
        0
    }

    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        for place in (1..things.len()).rev() {
            things.swap(place, self.index(place + 1));
        }
    }
}

/// Mixes a number, so that the results of adjacent numbers look unrelated.
pub(super) fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
