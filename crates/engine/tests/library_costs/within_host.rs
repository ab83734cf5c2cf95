//! The cost of a write over the rail `shm`, in instructions of the side that writes.
//!
//! Counted for the example `within_host`, built as packages are. The difference of two runs of
//! different length removes what both have in common.

use farreach_testkit::cost::{Count, Counted, dist_example, tell};

/// The limit of a write of eight bytes, from the call to the result. It is 2,350. The steps for everything
/// else are not counted: time decides how many there are, and on a slow processor there is one for each write.
const WRITE_MAX: f64 = 2_600.0;

/// The limit of a page of 4 KiB, one of 256 scattered ones, without copying it. It is 241.
const PAGE_MAX: f64 = 280.0;

/// The function that makes a step.
const STEP: &str = "Driver as farreach::progress::Drive>::step";

#[test]
#[ignore = "needs valgrind: cargo xtask test runs it"]
fn a_short_write_costs_a_bounded_number_of_instructions() {
    let of_writes = |program: &Counted, more: &[&str]| program.instructions_outside(STEP, more);
    let cost = each(of_writes, [2_000, 12_000], 1, 16);
    tell(&format!("a write of 8 bytes over shm: {cost:.0} instructions\n"));
    assert!((1_000.0..WRITE_MAX).contains(&cost), "{cost}");
}

#[test]
#[ignore = "needs valgrind: cargo xtask test runs it"]
fn a_page_within_the_host_costs_a_bounded_number_of_instructions() {
    const PAGES: u32 = 256;
    let cost = each(Counted::instructions_without_copies, [50, 250], PAGES, 4) / f64::from(PAGES);
    tell(&format!("a page of 4 KiB over shm: {cost:.0} instructions without the copy\n"));
    assert!((50.0..PAGE_MAX).contains(&cost), "{cost}");
}

/// Returns the instructions of one write, from two runs with so many.
fn each(count: impl Fn(&Counted, &[&str]) -> Count, writes: [u32; 2], pages: u32, depth: u32) -> f64 {
    let program = Counted::new(dist_example("farreach", "within_host"), &["count"]);
    let [short, long] = writes.map(|writes| {
        let words = [writes, pages, depth].map(|number| number.to_string());
        count(&program, &words.each_ref().map(String::as_str)).total as f64
    });
    (long - short) / f64::from(writes[1] - writes[0])
}
