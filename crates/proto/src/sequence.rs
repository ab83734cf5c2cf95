//! Things with ascending numbers, most of which are gone.

use std::collections::VecDeque;

/// A map from ascending numbers, for which finding is an index and no search.
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

/// Room for so many stays, however few there are.
const ROOM_MIN: usize = 128;

impl<T> Sequence<T> {
    /// None yet.
    pub fn new() -> Self {
        Self { first: 0, things: VecDeque::new(), count: 0 }
    }

    /// Puts one in, whose number is above all before.
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

    /// The one of this number, if it is there.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.things.get(usize::try_from(number.checked_sub(self.first)?).ok()?)?.as_ref()
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.things.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)?.as_mut()
    }

    /// Takes it out.
    pub fn take(&mut self, number: u64) -> Option<T> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let thing = self.things.get_mut(place)?.take()?;
        self.count -= 1;
        while matches!(self.things.front(), Some(None)) {
            self.things.pop_front();
            self.first += 1;
        }
        // After many, room for a few: twice what is there, so that it is seldom done.
        if self.things.capacity() > ROOM_MIN && self.things.len() < self.things.capacity() / 4 {
            self.things.shrink_to((self.things.len() * 2).max(ROOM_MIN));
        }
        Some(thing)
    }

    /// All, in order, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let numbered = self.things.iter().enumerate();
        numbered.filter_map(|(place, thing)| Some((self.first + place as u64, thing.as_ref()?)))
    }

    /// All, in order, with their numbers, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        let (first, numbered) = (self.first, self.things.iter_mut().enumerate());
        numbered.filter_map(move |(place, thing)| Some((first + place as u64, thing.as_mut()?)))
    }

    /// All, in order, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.things.iter_mut().flatten()
    }

    /// All that are not before this number, in order, with their numbers.
    pub fn iter_from(&self, number: u64) -> impl Iterator<Item = (u64, &T)> {
        let skipped = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let numbered = self.things.iter().enumerate().skip(skipped);
        numbered.filter_map(|(place, thing)| Some((self.first + place as u64, thing.as_ref()?)))
    }

    /// Takes all of them out.
    pub fn drain(&mut self) -> Vec<T> {
        self.count = 0;
        self.first += self.things.len() as u64;
        std::mem::take(&mut self.things).into_iter().flatten().collect()
    }

    /// How many there is room for.
    pub fn capacity(&self) -> usize {
        self.things.capacity()
    }

    /// Whether there are none.
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
        assert_eq!(sequence.iter_from(5).map(|(number, _)| number).collect::<Vec<_>>(), [7]);
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
