//! A set of numbers that mostly grows at the end and shrinks at the front.

use std::collections::VecDeque;

/// A set of numbers that are mostly added above the others and mostly removed from the front. Then
/// each costs O(1); elsewhere a search and a move.
///
/// ```
/// use farreach_proto::ascending::Ascending;
///
/// let mut numbers = Ascending::default();
/// [3, 9, 5, 9].into_iter().for_each(|number| numbers.insert(number));
/// assert_eq!(numbers.first_from(4), Some(5));
/// numbers.remove(5);
/// assert_eq!(numbers.first_from(4), Some(9));
/// ```
#[derive(Debug, Default)]
pub struct Ascending(VecDeque<u64>);

impl Ascending {
    /// Adds a number, unless it is there.
    #[inline]
    pub fn insert(&mut self, number: u64) {
        // What is new has the highest number. A search is for what comes back, such as a refused
        // operation.
        if self.0.back().is_none_or(|last| *last < number) {
            self.0.push_back(number);
        } else if let Err(place) = self.0.binary_search(&number) {
            self.0.insert(place, number);
        }
    }

    /// Removes a number, if it is there.
    #[inline]
    pub fn remove(&mut self, number: u64) {
        if self.0.front() == Some(&number) {
            self.0.pop_front();
        } else if let Ok(place) = self.0.binary_search(&number) {
            self.0.remove(place);
        }
    }

    /// Returns the lowest number that is not below `from`.
    #[inline]
    pub fn first_from(&self, from: u64) -> Option<u64> {
        match self.0.front() {
            Some(first) if *first < from => {
                self.0.get(self.0.partition_point(|number| *number < from)).copied()
            }
            first => first.copied(),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied()
    }

    /// Returns `true` if it has no number.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes of memory that it holds.
    pub fn memory(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_a_set() {
        let (mut numbers, mut set) = (Ascending::default(), BTreeSet::new());
        for step in 0..2000_u64 {
            let number = step * step % 61;
            if step % 3 == 0 {
                numbers.remove(number);
                set.remove(&number);
            } else {
                numbers.insert(number);
                set.insert(number);
            }
            assert_eq!(numbers.is_empty(), set.is_empty());
            for from in 0..62 {
                assert_eq!(numbers.first_from(from), set.range(from..).next().copied(), "{step} {from}");
            }
        }
    }
}
