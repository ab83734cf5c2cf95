//! Lists of segments: the bytes of a transfer that moves many ranges, each with its own place on
//! both sides.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::plan_error::{PlanError, Side};

/// A range of this side's memory, and one of the same length in a region of the peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The place in the memory of this side.
    pub own: u64,
    /// The offset in the region.
    pub remote: u64,
    /// The length in bytes.
    pub len: u64,
    /// The index of the region, which is a range of one grant.
    pub region: u32,
}

/// Segments whose bounds were checked, and whose destinations do not overlap. Clones share the list.
///
/// ```
/// use farreach_proto::plan::{PlanError, Side};
/// use farreach_proto::segments::{Segment, Segments};
///
/// let segment = |own, remote| Segment { own, remote, len: 10, region: 0 };
/// let list = vec![segment(0, 50), segment(100, 20)];
/// assert_eq!(Segments::new(list, &[60], Side::Source)?.len(), 2);
///
/// // The first one would be overwritten by a part of the second one, or the other way round.
/// let list = vec![segment(0, 50), segment(100, 41)];
/// assert!(matches!(Segments::new(list, &[60], Side::Source), Err(PlanError::SegmentsOverlap { .. })));
/// # Ok::<(), PlanError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Segments(Arc<[Segment]>);

impl Segments {
    /// Checks that each segment has bytes and lies within its region, and that no byte of the
    /// destination is named twice. `regions` are the lengths of the regions, and `own` says which side
    /// the memory of this side is.
    ///
    /// The places in this side's memory are not checked against its length.
    pub fn new(list: impl Into<Arc<[Segment]>>, regions: &[u64], own: Side) -> Result<Self, PlanError> {
        let list = list.into();
        check_bounds(&list, regions)?;
        Self::of_checked(list, own)
    }

    /// Creates a list of segments that [`check_bounds`] has found within their regions. Checks that no
    /// byte of the destination is named twice.
    pub fn of_checked(list: impl Into<Arc<[Segment]>>, own: Side) -> Result<Self, PlanError> {
        let list = list.into();
        let found = match own {
            // The regions are of different grants, or are one range each of the same one.
            Side::Source => overlap(&list, |segment| (segment.region, segment.remote)),
            Side::Destination => overlap(&list, |segment| (0, segment.own)),
        };
        match found {
            Some((first, second)) => Err(PlanError::SegmentsOverlap { first, second }),
            None => Ok(Self(list)),
        }
    }
}

/// Checks that each segment has bytes, and lies within its region of these lengths.
pub fn check_bounds(list: &[Segment], regions: &[u64]) -> Result<(), PlanError> {
    for (index, segment) in list.iter().enumerate() {
        let Segment { own, remote, len, region } = *segment;
        if len == 0 {
            return Err(PlanError::EmptySegment { segment: index });
        }
        // A region that does not exist has no bytes, so no segment fits into it.
        let region_len = regions.get(region as usize).copied().unwrap_or(0);
        // `overlap` adds these again, without a check.
        if remote.checked_add(len).is_none_or(|end| end > region_len) || own.checked_add(len).is_none() {
            return Err(PlanError::SegmentOutOfBounds { segment: index, region_len });
        }
    }
    Ok(())
}

/// Returns the indices of two segments that have a byte in common on one side, in ascending order.
/// Bounds were checked, so that no end overflows.
fn overlap(list: &[Segment], start: impl Fn(&Segment) -> (u32, u64)) -> Option<(usize, usize)> {
    let precedes = |left: &Segment, right: &Segment| {
        let ((left_region, left_at), (right_region, right_at)) = (start(left), start(right));
        (left_region, left_at + left.len) <= (right_region, right_at)
    };
    // Most lists are in order already.
    if list.is_sorted_by(precedes) {
        return None;
    }
    // Half the memory of `usize`. A list of 2^32 segments would have 128 GiB itself.
    let mut order: Vec<u32> = (0..list.len() as u32).collect();
    order.sort_unstable_by_key(|index| start(&list[*index as usize]));
    // None is empty. So if any two overlap in this order, two that are adjacent do.
    order.windows(2).find_map(|pair| {
        let (left, right) = (pair[0] as usize, pair[1] as usize);
        (!precedes(&list[left], &list[right])).then_some((left.min(right), left.max(right)))
    })
}

impl Deref for Segments {
    type Target = [Segment];

    #[inline]
    fn deref(&self) -> &[Segment] {
        &self.0
    }
}

impl fmt::Debug for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Limits, Operation, Plan};

    fn segment(own: u64, region: u32, remote: u64, len: u64) -> Segment {
        Segment { own, remote, len, region }
    }

    #[test]
    fn segments_beyond_their_region_are_refused() {
        let refused = |segment| check_bounds(&[segment], &[100, 50]).unwrap_err();
        check_bounds(&[segment(0, 0, 90, 10), segment(0, 1, 0, 50)], &[100, 50]).unwrap();
        assert_eq!(
            refused(segment(0, 1, 41, 10)),
            PlanError::SegmentOutOfBounds { segment: 0, region_len: 50 }
        );
        assert_eq!(refused(segment(0, 0, 0, 0)), PlanError::EmptySegment { segment: 0 });
        let wraps = [
            segment(0, 0, u64::MAX, 10),
            segment(u64::MAX, 0, 0, 2),
            segment(0, 2, 0, 1),
            segment(0, 0, 1, u64::MAX),
        ];
        for segment in wraps {
            assert!(matches!(refused(segment), PlanError::SegmentOutOfBounds { .. }), "{segment:?}");
        }
    }

    #[test]
    fn only_destinations_must_not_overlap() {
        // Bytes 5..15 and 14..24 of the peer, from different places of this side.
        let list = [segment(100, 0, 14, 10), segment(0, 0, 30, 10), segment(200, 0, 5, 10)];
        let overlapping = Segments::new(list, &[40], Side::Source);
        assert_eq!(overlapping.unwrap_err(), PlanError::SegmentsOverlap { first: 0, second: 2 });
        Segments::new(list, &[40], Side::Destination).unwrap();

        // The same place of this side twice.
        let list = [segment(9, 0, 0, 1), segment(9, 0, 10, 1)];
        let overlapping = Segments::new(list, &[40], Side::Destination);
        assert_eq!(overlapping.unwrap_err(), PlanError::SegmentsOverlap { first: 0, second: 1 });
        Segments::new(list, &[40], Side::Source).unwrap();

        // The same offset in two regions, and neighbours in one.
        let list = [segment(0, 1, 0, 10), segment(10, 0, 10, 10), segment(20, 0, 0, 10)];
        Segments::new(list, &[40, 40], Side::Source).unwrap();
    }

    /// An operation has one remote key.
    #[test]
    fn an_operation_stays_within_one_region() {
        let list = [segment(0, 0, 0, 10), segment(10, 1, 10, 10)];
        let segments = Segments::new(list, &[40, 40], Side::Source).unwrap();
        let limits = Limits { bytes: 100, pieces: 9, targets: 9, pages: 9, is_ordered: true };
        let (mut plan, mut operation, mut found) =
            (Plan::of_segments(segments), Operation::default(), vec![]);
        while plan.next(&limits, &mut operation) {
            found.push((operation.region, operation.bytes));
        }
        assert_eq!(found, [(0, 10), (1, 10)]);
    }
}
