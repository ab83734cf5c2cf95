//! The page numbers of a transfer.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

/// Page numbers, in the order of a transfer.
///
/// Clones share the list, and its properties are computed once, when it is made: transfers are checked
/// without a look at its pages.
///
/// ```
/// use farreach_proto::indices::Indices;
///
/// let indices = Indices::from([4, 0, 9]);
/// assert_eq!((indices.len(), indices.largest(), indices.repeated()), (3, Some(9), None));
/// let twice: Indices = [1, 2, 1].into_iter().collect();
/// assert_eq!(twice.repeated(), Some(1));
/// ```
///
/// Numbers that follow each other take no memory until they are used, so that a number of pages that no
/// memory has is refused before it costs anything.
///
/// ```
/// use farreach_proto::indices::Indices;
///
/// let all = Indices::from(0..u32::MAX);
/// assert_eq!((all.len(), all.largest(), all.repeated()), (u32::MAX as usize, Some(u32::MAX - 1), None));
/// ```
#[derive(Clone)]
pub struct Indices(Arc<List>);

struct List {
    /// Made when they are used first, if they are a run.
    numbers: OnceLock<Box<[u32]>>,
    /// The first one of a run; of another list, the first one, or 0.
    first: u32,
    len: usize,
    largest: Option<u32>,
    repeated: Option<u32>,
}

impl Indices {
    /// Returns how many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns `true` if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns the number at this place.
    #[inline]
    pub fn number(&self, place: usize) -> Option<u32> {
        let list = &*self.0;
        match list.numbers.get() {
            Some(numbers) => numbers.get(place).copied(),
            None => (place < list.len).then(|| list.first + place as u32),
        }
    }

    /// Returns `len` numbers from `first` on.
    fn run(first: u32, len: usize) -> Self {
        let largest = (len > 0).then(|| first + (len - 1) as u32);
        Self(Arc::new(List { numbers: OnceLock::new(), first, len, largest, repeated: None }))
    }

    /// Returns the largest number.
    #[inline]
    pub fn largest(&self) -> Option<u32> {
        self.0.largest
    }

    /// Returns a number that occurs twice.
    #[inline]
    pub fn repeated(&self) -> Option<u32> {
        self.0.repeated
    }
}

fn find_repeated(numbers: &[u32], largest: u32) -> Option<u32> {
    if numbers.len() < 2 {
        return None;
    }
    let largest = largest as usize;
    // A bit set needs less time than sorting, but memory for the largest number: it is used while
    // that is at most 32 times the count.
    if largest / 32 <= numbers.len() {
        let mut seen = vec![0_u64; largest / 64 + 1];
        return numbers.iter().copied().find(|number| {
            let (word, bit) = (&mut seen[*number as usize / 64], 1 << (number % 64));
            let is_seen = *word & bit != 0;
            *word |= bit;
            is_seen
        });
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

impl Deref for Indices {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        let list = &*self.0;
        list.numbers.get_or_init(|| (0..list.len).map(|place| list.first + place as u32).collect())
    }
}

impl From<Range<u32>> for Indices {
    fn from(numbers: Range<u32>) -> Self {
        Self::run(numbers.start, numbers.len())
    }
}

impl From<Box<[u32]>> for Indices {
    fn from(numbers: Box<[u32]>) -> Self {
        let largest = numbers.iter().copied().max();
        let repeated = largest.and_then(|largest| find_repeated(&numbers, largest));
        let (first, len) = (numbers.first().copied().unwrap_or(0), numbers.len());
        Self(Arc::new(List { numbers: numbers.into(), first, len, largest, repeated }))
    }
}

impl From<Vec<u32>> for Indices {
    fn from(numbers: Vec<u32>) -> Self {
        numbers.into_boxed_slice().into()
    }
}

impl From<&[u32]> for Indices {
    fn from(numbers: &[u32]) -> Self {
        Box::<[u32]>::from(numbers).into()
    }
}

impl<const N: usize> From<[u32; N]> for Indices {
    fn from(numbers: [u32; N]) -> Self {
        numbers.as_slice().into()
    }
}

impl FromIterator<u32> for Indices {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut numbers = numbers.into_iter();
        let Some(first) = numbers.next() else { return Self::run(0, 0) };
        let mut last = first;
        for number in numbers.by_ref() {
            if last.checked_add(1) != Some(number) {
                let all = (first..=last).chain([number]).chain(numbers);
                return all.collect::<Box<[u32]>>().into();
            }
            last = number;
        }
        Self::run(first, (last - first) as usize + 1)
    }
}

impl PartialEq for Indices {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && **self == **other
    }
}

impl Eq for Indices {}

impl fmt::Debug for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_follow_each_other_are_the_same_as_a_list_of_them() {
        let lists: [&[u32]; 9] = [
            &[],
            &[0],
            &[7],
            &[u32::MAX],
            &[0, 1, 2],
            &[5, 6, 7, 8],
            &[5, 6, 6],
            &[5, 6, 5],
            &[u32::MAX - 1, u32::MAX, 0],
        ];
        for numbers in lists {
            let (list, collected) = (Indices::from(numbers), numbers.iter().copied().collect::<Indices>());
            assert_eq!((list.len(), list.is_empty()), (numbers.len(), numbers.is_empty()));
            assert_eq!((list.len(), list.largest()), (collected.len(), collected.largest()));
            assert!((0..=list.len()).all(|place| collected.number(place) == numbers.get(place).copied()));
            assert_eq!((list.repeated(), &*list, &list), (collected.repeated(), numbers, &collected));
        }
        assert_eq!((Indices::from(3..6), Indices::from(7..7)), ([3, 4, 5].into(), [].into()));
    }

    /// Tens of gigabytes would be needed for the numbers.
    #[test]
    fn a_run_takes_no_memory_before_it_is_used() {
        let all = Indices::from(0..u32::MAX);
        assert!(all.0.numbers.get().is_none() && all.len() == u32::MAX as usize);
        let some: Indices = (10..1_000_000).collect();
        assert!(some.0.numbers.get().is_none() && some.largest() == Some(999_999));
    }

    #[test]
    fn a_repeated_number_is_found_in_dense_and_in_sparse_lists() {
        for far in [0, 1 << 30] {
            let distinct: Vec<u32> = (0..100).rev().chain([far + 100]).collect();
            assert_eq!(Indices::from(distinct.clone()).repeated(), None, "{far}");
            for twice in [0, 57, 99, far + 100] {
                let with_one: Indices = distinct.iter().copied().chain([twice]).collect();
                assert_eq!(with_one.repeated(), Some(twice), "{far}");
            }
        }
        assert_eq!(Indices::from([u32::MAX]).repeated(), None);
        assert_eq!((Indices::from([]).repeated(), Indices::from([]).largest()), (None, None));
    }
}
