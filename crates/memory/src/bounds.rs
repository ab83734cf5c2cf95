//! The bounds of a part.

use std::ops::{Bound, Range, RangeBounds};

/// Returns a range of `0..len`, or `None` if it begins after its end or exceeds that.
#[inline]
pub(crate) fn within(range: &impl RangeBounds<usize>, len: usize) -> Option<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.checked_add(1)?,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => len,
    };
    (start <= end && end <= len).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_a_slice() {
        let bounds = || {
            let ends = [0, 1, 3, 4, 5, usize::MAX];
            let kinds = ends.into_iter().flat_map(|end| [Bound::Included(end), Bound::Excluded(end)]);
            kinds.chain([Bound::Unbounded])
        };
        let whole: Vec<usize> = (0..4).collect();
        for range in bounds().flat_map(|start| bounds().map(move |end| (start, end))) {
            let part = within(&range, whole.len()).map(|part| &whole[part]);
            assert_eq!(part, whole.get(range), "{range:?}");
        }
    }
}
