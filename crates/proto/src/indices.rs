//! The page numbers of a transfer.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

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
/// Numbers that follow each other take no memory. A number of pages that no memory has is so refused
/// before it costs anything.
///
/// ```
/// use farreach_proto::indices::Indices;
///
/// let all = Indices::from(0..u32::MAX);
/// assert_eq!((all.len(), all.largest(), all.repeated()), (u32::MAX as usize, Some(u32::MAX - 1), None));
/// ```
#[derive(Clone)]
pub struct Indices(Numbers);

#[derive(Clone)]
enum Numbers {
    /// So many numbers from the first one on. The last one has 32 bits.
    Run {
        first: u32,
        len: usize,
    },
    List(Arc<List>),
}

struct List {
    numbers: Box<[u32]>,
    largest: Option<u32>,
    repeated: Option<u32>,
}

impl Indices {
    /// Returns how many there are.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Numbers::Run { len, .. } => *len,
            Numbers::List(list) => list.numbers.len(),
        }
    }

    /// Returns `true` if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number at this place.
    #[inline]
    pub fn get(&self, place: usize) -> Option<u32> {
        match &self.0 {
            Numbers::Run { first, len } => (place < *len).then(|| first + place as u32),
            Numbers::List(list) => list.numbers.get(place).copied(),
        }
    }

    /// Returns the numbers from this place on.
    ///
    /// ```
    /// use farreach_proto::indices::Indices;
    ///
    /// let indices = Indices::from([4, 0, 9]);
    /// assert!(indices.iter_from(1).eq([0, 9]) && indices.iter_from(3).eq([]));
    /// ```
    #[inline]
    pub fn iter_from(&self, place: usize) -> impl Iterator<Item = u32> + '_ {
        let (first, run, list) = match &self.0 {
            Numbers::Run { first, len } => (*first, place..*len, &[][..]),
            Numbers::List(list) => (0, 0..0, list.numbers.get(place..).unwrap_or_default()),
        };
        run.map(move |place| first + place as u32).chain(list.iter().copied())
    }

    /// Returns the bytes of memory that they take.
    pub(crate) fn memory(&self) -> usize {
        match &self.0 {
            Numbers::Run { .. } => 0,
            Numbers::List(list) => size_of_val(&*list.numbers),
        }
    }

    /// Returns the largest number.
    #[inline]
    pub fn largest(&self) -> Option<u32> {
        match &self.0 {
            // It ascends, so the last one is the largest.
            Numbers::Run { len, .. } => self.get(len.checked_sub(1)?),
            Numbers::List(list) => list.largest,
        }
    }

    /// Returns a number that occurs twice.
    #[inline]
    pub fn repeated(&self) -> Option<u32> {
        match &self.0 {
            // It ascends, so none occurs twice.
            Numbers::Run { .. } => None,
            Numbers::List(list) => list.repeated,
        }
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

impl From<Range<u32>> for Indices {
    fn from(numbers: Range<u32>) -> Self {
        Self(Numbers::Run { first: numbers.start, len: numbers.len() })
    }
}

impl From<Box<[u32]>> for Indices {
    fn from(numbers: Box<[u32]>) -> Self {
        // Once for each list: a plan asks for both, and a list may be used by many plans.
        let largest = numbers.iter().copied().max();
        let repeated = largest.and_then(|largest| find_repeated(&numbers, largest));
        Self(Numbers::List(Arc::new(List { numbers, largest, repeated })))
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
        let Some(first) = numbers.next() else { return (0..0).into() };
        let mut last = first;
        for number in numbers.by_ref() {
            if last.checked_add(1) != Some(number) {
                // The numbers before were a run and were not stored.
                let all = (first..=last).chain([number]).chain(numbers);
                return all.collect::<Box<[u32]>>().into();
            }
            last = number;
        }
        Self(Numbers::Run { first, len: (last - first) as usize + 1 })
    }
}

impl PartialEq for Indices {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter_from(0).eq(other.iter_from(0))
    }
}

impl Eq for Indices {}

impl fmt::Debug for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter_from(0)).finish()
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
            assert!((0..=list.len()).all(|place| collected.get(place) == numbers.get(place).copied()));
            assert!((0..=list.len()).all(|place| collected.iter_from(place).eq(numbers[place..].to_vec())));
            assert_eq!((list.repeated(), &list), (collected.repeated(), &collected));
        }
        assert_eq!((Indices::from(3..6), Indices::from(7..7)), ([3, 4, 5].into(), [].into()));
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
