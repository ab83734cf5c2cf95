//! Plans over random maps: every byte is moved once, to its place, within the limits.

use farreach_proto::plan::{Limits, Operation, Pages, Plan, PlanError, Side};
use proptest::prelude::*;

fn limits() -> impl Strategy<Value = Limits> {
    (1_u64..300, 1_usize..5, 1_usize..4, 1_u32..6, any::<bool>()).prop_map(
        |(bytes, pieces, targets, pages, is_ordered)| Limits { bytes, pieces, targets, pages, is_ordered },
    )
}

/// Pages of both sides in any order; the destination's without repetition.
fn maps() -> impl Strategy<Value = (u64, Pages, Pages)> {
    (1_u64..60, 1_usize..40, 0_u64..10, 0_u64..10).prop_flat_map(|(page_len, count, gap, offset)| {
        let from = proptest::collection::vec(0_u32..50, count);
        let to = Just((0_u32..50).collect::<Vec<_>>()).prop_shuffle();
        (from, to).prop_map(move |(from, mut to)| {
            to.truncate(count);
            let source = Pages { indices: from.into(), stride: page_len + gap, offset };
            let destination = Pages { indices: to.into(), stride: page_len, offset: gap };
            (page_len, source, destination)
        })
    })
}

/// Long enough for every page.
const MEMORY: u64 = 100 * 100;

proptest! {
    /// An operation made for one rail and split for another moves the same bytes to the same
    /// places.
    #[test]
    fn an_operation_is_cut_for_narrower_limits((page_len, source, destination) in maps(), narrow in limits()) {
        let wide = Limits { bytes: 1 << 20, pieces: 64, targets: 64, pages: 1024, is_ordered: true };
        let mut plan = Plan::new(page_len, (source, MEMORY), (destination, MEMORY)).unwrap();
        let mut operation = Operation::default();
        while plan.next(&wide, &mut operation) {
            let parts = operation.clone().split(&narrow);
            let bytes = |operations: &[Operation]| -> Vec<(u64, u64)> {
                operations.iter().flat_map(|operation| {
                    let all = |extents: &[farreach_proto::plan::Extent]| -> Vec<u64> {
                        extents.iter().flat_map(|extent| extent.offset..extent.offset + extent.len).collect()
                    };
                    all(&operation.pieces).into_iter().zip(all(&operation.targets)).collect::<Vec<_>>()
                }).collect()
            };
            prop_assert_eq!(bytes(&parts), bytes(std::slice::from_ref(&operation)));
            for part in &parts {
                prop_assert!(part.bytes > 0 && part.bytes <= narrow.bytes);
                prop_assert!(part.pieces.len() <= narrow.pieces && part.targets.len() <= narrow.targets);
            }
            prop_assert_eq!(parts.iter().map(|part| part.pages).sum::<u32>(), operation.pages);
            prop_assert_eq!(parts.last().unwrap().pages, operation.pages);
        }
    }

    #[test]
    fn every_byte_goes_to_its_place_once((page_len, source, destination) in maps(), limits in limits()) {
        let mut plan = Plan::new(page_len, (source.clone(), MEMORY), (destination.clone(), MEMORY)).unwrap();
        let memory: Vec<u32> = (0..MEMORY as u32).collect();
        let mut written = vec![None; MEMORY as usize];
        let mut operation = Operation::default();
        let mut pages = 0;
        while plan.next(&limits, &mut operation) {
            prop_assert!(operation.bytes <= limits.bytes);
            prop_assert!(operation.pieces.len() <= limits.pieces && operation.targets.len() <= limits.targets);
            prop_assert!(operation.pages <= limits.pages);
            let bytes = |extents: &[farreach_proto::plan::Extent]| -> Vec<u64> {
                extents.iter().flat_map(|extent| extent.offset..extent.offset + extent.len).collect()
            };
            let (from, to) = (bytes(&operation.pieces), bytes(&operation.targets));
            prop_assert_eq!(from.len() as u64, operation.bytes);
            prop_assert_eq!(from.len(), to.len());
            for (from, to) in from.into_iter().zip(to) {
                prop_assert_eq!(written[to as usize].replace(memory[from as usize]), None, "written twice");
            }
            pages += operation.pages as usize;
        }
        prop_assert_eq!((pages, plan.pages_left()), (source.indices.len(), 0));
        for place in 0..source.indices.len() {
            for byte in 0..page_len {
                let (from, to) = (source.start(place).unwrap() + byte, destination.start(place).unwrap() + byte);
                prop_assert_eq!(written[to as usize].take(), Some(memory[from as usize]));
            }
        }
        prop_assert!(written.iter().all(Option::is_none), "bytes that no page has");
    }
}

#[test]
fn what_cannot_be_moved_is_refused_with_its_reason() {
    let good = Pages::contiguous(2, 8);
    let refused = |page_len, source: &Pages, destination: &Pages| {
        Plan::new(page_len, (source.clone(), 16), (destination.clone(), 16)).unwrap_err()
    };
    assert_eq!(refused(0, &good, &good), PlanError::EmptyPage);
    let one = Pages::contiguous(1, 8);
    assert_eq!(refused(8, &good, &one), PlanError::Counts { source_count: 2, destination_count: 1 });
    let far = Pages { indices: [0, 2].into(), stride: 8, offset: 0 };
    let beyond = |side| PlanError::OutOfBounds { side, index: 2, memory_len: 16 };
    assert_eq!(refused(8, &far, &good), beyond(Side::Source));
    assert_eq!(refused(8, &good, &far), beyond(Side::Destination));
    let huge = Pages { indices: [u32::MAX, 1].into(), stride: u64::MAX, offset: 9 };
    assert!(matches!(refused(8, &good, &huge), PlanError::OutOfBounds { index: u32::MAX, .. }));
    let twice = Pages { indices: [1, 1].into(), stride: 8, offset: 0 };
    assert_eq!(refused(8, &good, &twice), PlanError::Repeated { index: 1 });
    let dense = Pages { indices: [0, 1].into(), stride: 4, offset: 0 };
    assert_eq!(
        refused(8, &good, &dense),
        PlanError::Overlap { side: Side::Destination, stride: 4, page_len: 8 }
    );
    // A source page may be read twice.
    Plan::new(8, (twice, 16), (good, 16)).unwrap();
}

#[test]
fn neighbours_are_joined_and_scattered_pages_are_gathered() {
    let limits = Limits { bytes: 1 << 20, pieces: 3, targets: 1, pages: 1024, is_ordered: true };
    let mut operation = Operation::default();
    // Contiguous on both sides.
    let pages = Pages::contiguous(100, 4096);
    let mut plan = Plan::new(4096, (pages.clone(), 100 * 4096), (pages, 100 * 4096)).unwrap();
    assert!(plan.next(&limits, &mut operation));
    assert_eq!((operation.pieces.len(), operation.pages), (1, 100));
    assert!(!plan.next(&limits, &mut operation));
    // Gathered into one range of the destination: three at a time.
    let scattered = Pages { indices: [9, 3, 7, 1].into(), stride: 4096, offset: 0 };
    let joined = Pages::contiguous(4, 4096);
    let mut plan = Plan::new(4096, (scattered, 100 * 4096), (joined, 4 * 4096)).unwrap();
    assert!(plan.next(&limits, &mut operation));
    assert_eq!((operation.pieces.len(), operation.targets.len(), operation.pages), (3, 1, 3));
    assert!(plan.next(&limits, &mut operation));
    assert_eq!(operation.pages, 1);
}
