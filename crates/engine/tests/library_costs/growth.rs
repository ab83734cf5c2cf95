//! The cost of an operation with more and more peers, operations in flight, pages, segments and
//! grants.
//!
//! Counted for the example `growth` of `farreach-sim`: the protocol and the carrier over a rail that
//! does nothing. `cargo xtask bench growth` counts the same up to a million pages. Counts depend on
//! the code only, and not on the load of the machine.

use farreach_testkit::cost::{Counted, dist_example, tell};

/// The cost at a larger count may be so many times the least cost at a smaller one.
const GROWTH_MAX: f64 = 1.3;

/// Operations of a short run and of a long one: a multiple of each count up to a thousand, so that all
/// peers take part equally.
const OPERATIONS: [u32; 2] = [2_000, 6_000];

#[test]
#[ignore = "needs valgrind: cargo xtask test runs it"]
fn a_write_costs_the_same_with_any_number_of_peers() {
    costs_the_same("peers", &[1, 40, 1_000]);
}

#[test]
#[ignore = "needs valgrind: cargo xtask test runs it"]
fn a_write_costs_the_same_with_any_number_in_flight() {
    costs_the_same("in-flight", &[1, 40, 1_000]);
}

#[test]
#[ignore = "needs valgrind: cargo xtask test runs it"]
fn a_page_costs_no_more_among_many_pages() {
    costs_the_same("pages", &[1, 100, 1_000]);
}

#[test]
#[ignore = "needs valgrind: cargo xtask test runs it"]
fn a_segment_costs_no_more_among_many_segments_and_regions() {
    costs_the_same("segments", &[1, 100, 1_000]);
    costs_the_same("regions", &[1, 10, 100]);
}

#[test]
#[ignore = "needs valgrind: cargo xtask test runs it"]
fn a_write_costs_the_same_with_any_number_of_grants() {
    costs_the_same("granted", &[1, 40, 1_000]);
}

#[test]
#[ignore = "needs valgrind: cargo xtask test runs it"]
fn a_grant_costs_the_same_beside_any_number_of_others() {
    costs_the_same("grants", &[1, 40, 1_000]);
}

/// Fails where the cost grows with the count.
fn costs_the_same(kind: &str, counts: &[u32]) {
    let program = Counted::new(dist_example("farreach-sim", "growth"), &[kind]);
    let cost = |count: u32| {
        let [short, long] = OPERATIONS.map(|operations| {
            let words = [count, operations].map(|number| number.to_string());
            program.instructions(&words.each_ref().map(String::as_str)).total as f64
        });
        (long - short) / f64::from(OPERATIONS[1] - OPERATIONS[0])
    };
    let costs: Vec<f64> = counts.iter().map(|count| cost(*count)).collect();
    let told = format!("{kind}: {costs:.0?} instructions at {counts:?}\n");
    tell(&told);
    let mut least = f64::INFINITY;
    for cost in costs {
        assert!(cost > 100.0, "that was not counted: {told}");
        assert!(cost <= least * GROWTH_MAX, "it grows by more than {GROWTH_MAX}: {told}");
        least = least.min(cost);
    }
}
