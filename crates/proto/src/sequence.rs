//! A map for things with ascending numbers that end roughly in the order of their start.

use std::collections::VecDeque;

/// A map from ascending numbers. A lookup is O(1): an index, not a search. Memory is proportional
/// to the distance between the oldest and the newest number.
///
/// ```
/// use farreach_proto::sequence::Sequence;
///
/// let mut transfers = Sequence::new();
/// transfers.put(7, "the first");
/// transfers.put(9, "the second");
/// assert_eq!(transfers.get(9), Some(&"the second"));
/// assert_eq!(transfers.take(7), Some("the first"));
/// ```
#[derive(Debug)]
pub struct Sequence<T> {
    first: u64,
    things: VecDeque<Option<T>>,
    count: usize,
}

/// The capacity that is kept even if the map is empty.
const ROOM_MIN: usize = 128;

impl<T> Sequence<T> {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self { first: 0, things: VecDeque::new(), count: 0 }
    }

    /// Inserts a thing. Its number must be above all earlier ones.
    pub fn put(&mut self, number: u64, thing: T) {
        if self.things.is_empty() {
            self.first = number;
        }
        while self.first + (self.things.len() as u64) < number {
            self.things.push_back(None);
        }
        self.things.push_back(Some(thing));
        self.count += 1;
    }

    /// Returns the thing with this number.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.things.get(usize::try_from(number.checked_sub(self.first)?).ok()?)?.as_ref()
    }

    /// As [`get`](Self::get), mutably.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.things.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)?.as_mut()
    }

    /// Removes and returns the thing with this number.
    pub fn take(&mut self, number: u64) -> Option<T> {
        let thing = self.place(number)?.take()?;
        self.closed_up();
        Some(thing)
    }

    /// Drops the thing with this number. Costs less than to [take](Self::take) one that is long.
    pub fn remove(&mut self, number: u64) {
        if let Some(place) = self.place(number).filter(|place| place.is_some()) {
            *place = None;
            self.closed_up();
        }
    }

    fn place(&mut self, number: u64) -> Option<&mut Option<T>> {
        self.things.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Frees the places before the oldest thing, after one was removed.
    fn closed_up(&mut self) {
        self.count -= 1;
        // Memory follows the oldest number that is left.
        while matches!(self.things.front(), Some(None)) {
            self.things.pop_front();
            self.first += 1;
        }
        // Shrinks to twice the length rather than to the length, so that it happens rarely.
        if self.things.capacity() > ROOM_MIN && self.things.len() < self.things.capacity() / 4 {
            self.things.shrink_to((self.things.len() * 2).max(ROOM_MIN));
        }
    }

    /// Iterates over all things with their numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let numbered = self.things.iter().enumerate();
        numbered.filter_map(|(place, thing)| Some((self.first + place as u64, thing.as_ref()?)))
    }

    /// As [`iter`](Self::iter), mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let (first, numbered) = (self.first, self.things.iter_mut().enumerate());
        numbered.filter_map(move |(place, thing)| Some((first + place as u64, thing.as_mut()?)))
    }

    /// Iterates over all things, in order, mutably.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.things.iter_mut().flatten()
    }

    /// Removes and returns all things.
    pub fn drain(&mut self) -> Vec<T> {
        self.count = 0;
        self.first += self.things.len() as u64;
        std::mem::take(&mut self.things).into_iter().flatten().collect()
    }

    /// Returns the number of things that memory is allocated for.
    pub fn capacity(&self) -> usize {
        self.things.capacity()
    }

    /// Returns `true` if the map is empty.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl<T> Default for Sequence<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A set of numbers that are mostly added above the others and mostly removed from the front. Then
/// each costs O(1); elsewhere a search and a move.
///
/// ```
/// use farreach_proto::sequence::Ascending;
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
    use super::*;

    #[test]
    fn what_is_put_in_is_found_until_it_is_taken() {
        let mut sequence = Sequence::new();
        for number in [3, 4, 7] {
            sequence.put(number, number * 10);
        }
        assert_eq!((sequence.get(4), sequence.get(5), sequence.get(2)), (Some(&40), None, None));
        assert_eq!(sequence.take(3), Some(30));
        assert_eq!(sequence.take(3), None);
        *sequence.get_mut(7).unwrap() += 1;
        assert_eq!(sequence.iter().map(|(number, _)| number).collect::<Vec<_>>(), [4, 7]);
        sequence.put(9, 90);
        assert_eq!(sequence.drain(), [40, 71, 90]);
        assert!(sequence.is_empty() && sequence.get(9).is_none());
        sequence.put(20, 1);
        assert_eq!(sequence.get(20), Some(&1));
    }

    #[test]
    fn after_many_there_is_room_for_few() {
        let mut sequence = Sequence::new();
        for number in 0..10_000 {
            sequence.put(number, number);
        }
        for number in 0..9_990 {
            assert_eq!(sequence.take(number), Some(number));
        }
        assert!(sequence.capacity() <= 2 * ROOM_MIN, "{}", sequence.capacity());
        assert_eq!(sequence.get(9_995), Some(&9_995));
        sequence.drain();
        assert_eq!(sequence.capacity(), 0);
    }
}
