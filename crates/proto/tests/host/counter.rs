//! Counting with lost links: each page is counted once, whatever arrives in whatever order.

use farreach_proto::counter::{AddError, Counters, IMMEDIATE_PAGES_MAX, Immediate, LinkId, Reported};
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_number_is_an_immediate_and_comes_back(bits in any::<u32>()) {
        prop_assert_eq!(Immediate::from_bits(bits).to_bits(), bits);
        prop_assert!((1..=IMMEDIATE_PAGES_MAX).contains(&Immediate::from_bits(bits).pages()));
    }

    /// Sends immediates over three links. Each link is lost at some moment, and some of its
    /// immediates never arrive. The sender reconciles.
    #[test]
    fn a_lost_link_leaves_no_page_uncounted_and_none_counted_twice(
        immediates in proptest::collection::vec((0_u64..3, 1_u32..=20, any::<bool>()), 1..60),
    ) {
        let (mut counters, mut reported) = (Counters::new(), Reported::new());
        let counter = counters.open().unwrap();
        let mut total = 0;
        for (link, pages, arrives) in &immediates {
            let immediate = Immediate::new(counter, *pages).unwrap();
            reported.add(LinkId(*link), immediate);
            total += u64::from(*pages);
            if *arrives {
                counters.arrive(LinkId(*link), immediate).unwrap();
            }
        }
        for link in 0..3 {
            for (id, claimed) in reported.lose(LinkId(link)) {
                let counted = counters.settle(LinkId(link), id).unwrap();
                counters.permit_add(id, link + 1);
                counters.add(id, claimed - counted).unwrap();
            }
            prop_assert!(reported.lose(LinkId(link)).is_empty(), "settled once");
        }
        prop_assert_eq!(counters.reached(counter), Some(total));
        // Late immediates of a settled link are ignored.
        let late = Immediate::new(counter, 1).unwrap();
        prop_assert_eq!(counters.arrive(LinkId(immediates[0].0), late), None);
        prop_assert_eq!(counters.reached(counter), Some(total));
    }
}

#[test]
fn an_immediate_for_a_counter_that_is_gone_counts_for_nobody() {
    let mut counters = Counters::new();
    let first = counters.open().unwrap();
    let immediate = Immediate::new(first, 1).unwrap();
    counters.close(first);
    let second = counters.open().unwrap();
    assert_eq!(counters.arrive(LinkId(0), immediate), None);
    assert_eq!((counters.reached(first), counters.reached(second)), (None, Some(0)));
    assert_eq!((counters.settle(LinkId(0), first), counters.add(first, 1)), (None, Err(AddError::Closed)));
}

#[test]
fn as_many_counters_are_open_as_an_immediate_can_name() {
    let mut counters = Counters::new();
    let all: Vec<_> = std::iter::from_fn(|| counters.open()).collect();
    assert_eq!(all.len(), 1 << 16);
    counters.close(all[12_345]);
    let reused = counters.open().unwrap();
    assert_ne!(reused, all[12_345]);
    assert_eq!(counters.open(), None);
}

/// A late immediate matches no counter, however many counters are opened and closed: ids do not
/// recur soon.
#[test]
fn a_late_immediate_counts_for_none_of_the_next_counters() {
    let mut counters = Counters::new();
    let first = counters.open().unwrap();
    let late = Immediate::new(first, 1).unwrap();
    counters.close(first);
    for number in 0..1_000_000 {
        let next = counters.open().unwrap();
        assert_ne!(next, first, "counter {number} has the name of the first");
        if number % 1000 == 0 {
            assert_eq!(counters.arrive(LinkId(0), late), None);
        }
        counters.close(next);
    }
}

#[test]
fn a_counter_that_cannot_have_its_names_is_not_opened() {
    let mut counters = Counters::new();
    let all: Vec<_> = std::iter::from_fn(|| counters.open_with_names(2)).collect();
    assert_eq!(all.len(), (1 << 16) / 3);
    for counter in &all {
        for link in [LinkId(1), LinkId(2)] {
            let name = counters.name(*counter, link).expect("the slot was reserved");
            assert_eq!(counters.arrive_named(Immediate::new(name, 1).unwrap()).unwrap().0, *counter);
        }
    }
    assert_eq!(counters.open_with_names(1), None, "one slot is left");
    counters.name(all[0], LinkId(3)).expect("a slot is not reserved");
    assert_eq!((counters.name(all[1], LinkId(3)), counters.open()), (None, None));
    counters.close(all[0]);
    counters.open_with_names(3).expect("closing freed the slots");
}

#[test]
fn names_of_links_that_are_gone_make_room_for_those_of_new_ones() {
    let mut counters = Counters::new();
    let counter = counters.open_with_names(2).unwrap();
    let stays = counters.name(counter, LinkId(0)).unwrap();
    for link in 1..100_000 {
        counters.retain_names(counter, |kept| kept == LinkId(0));
        let name = counters.name(counter, LinkId(link)).expect("the previous name has ended");
        assert_eq!(counters.arrive_named(Immediate::new(name, 1).unwrap()), Some((counter, link)));
    }
    assert!(counters.arrive_named(Immediate::new(stays, 1).unwrap()).is_some());
}
