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
        // Without this, numbers that were skipped while it was empty would become empty places.
        if self.things.is_empty() {
            self.first = number;
        }
        // Numbers of things that were never put are places without one.
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
        self.place(number)?.as_mut()
    }

    /// Removes and returns the thing with this number.
    pub fn take(&mut self, number: u64) -> Option<T> {
        let thing = self.place(number)?.take()?;
        self.trim();
        Some(thing)
    }

    /// Drops the thing with this number. Costs less than to [take](Self::take) one that is long.
    pub fn remove(&mut self, number: u64) {
        if let Some(place) = self.place(number).filter(|place| place.is_some()) {
            *place = None;
            self.trim();
        }
    }

    #[inline]
    fn place(&mut self, number: u64) -> Option<&mut Option<T>> {
        self.things.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Frees the places before the oldest thing, after one was removed.
    fn trim(&mut self) {
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
