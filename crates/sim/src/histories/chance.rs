//! The source of random decisions of a history, apart from the simulated network's own.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Numbers of a seed, the same in the same order on every machine, or numbers that an input chooses.
#[derive(Debug, Clone)]
pub(super) struct Chance(Source);

#[derive(Debug, Clone)]
enum Source {
    Seed(u64),
    /// Clones take turns at the same bytes.
    Input(Rc<RefCell<Input>>),
}

#[derive(Debug)]
struct Input {
    bytes: std::vec::IntoIter<u8>,
    /// What follows the last byte.
    rest: u64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Self(Source::Seed(mix(seed)))
    }

    /// Draws from these bytes as long as there are some.
    pub(super) fn of_input(bytes: &[u8]) -> Self {
        let bytes = bytes.to_vec().into_iter();
        Self(Source::Input(Rc::new(RefCell::new(Input { bytes, rest: 0 }))))
    }

    /// Returns `true` if it has drawn all bytes of its input.
    pub(super) fn is_spent(&self) -> bool {
        match &self.0 {
            Source::Seed(_) => false,
            Source::Input(input) => input.borrow().bytes.len() == 0,
        }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.below(u64::MAX)
    }

    /// Returns a number below `end`. The small bias towards small numbers does no harm here.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        let number = match &mut self.0 {
            Source::Seed(state) => after(state),
            Source::Input(input) => input.borrow_mut().next(end),
        };
        number % end.max(1)
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

impl Input {
    /// Returns a number of as many bytes as a choice below `end` needs, so that a changed byte changes one
    /// choice.
    fn next(&mut self, end: u64) -> u64 {
        let len = end.saturating_sub(1).max(1).ilog2() / 8 + 1;
        let number = self.bytes.by_ref().take(len as usize).fold(0, |sum, byte| sum << 8 | u64::from(byte));
        match self.bytes.len() {
            0 => number ^ after(&mut self.rest),
            _ => number,
        }
    }
}

/// Returns the next number of a generator.
fn after(state: &mut u64) -> u64 {
    // The golden ratio in 64 bits. It is odd, so every number occurs once before any recurs.
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

/// Mixes a number, so that the results of adjacent numbers look unrelated.
pub(super) fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
