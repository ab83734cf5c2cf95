//! The page numbers of a transfer.

use std::fmt;
use std::ops::Deref;
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
#[derive(Clone)]
pub struct Indices(Arc<List>);

struct List {
    numbers: Box<[u32]>,
    largest: Option<u32>,
    repeated: Option<u32>,
}

impl Indices {
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
        &self.0.numbers
    }
}

impl From<Box<[u32]>> for Indices {
    fn from(numbers: Box<[u32]>) -> Self {
        let largest = numbers.iter().copied().max();
        let repeated = largest.and_then(|largest| find_repeated(&numbers, largest));
        Self(Arc::new(List { numbers, largest, repeated }))
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
        numbers.into_iter().collect::<Box<[u32]>>().into()
    }
}

impl PartialEq for Indices {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
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
