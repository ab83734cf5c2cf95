//! The cost of a segment in transfers of many, and of the start of a prepared transfer, in
//! instructions of the side that writes over the rail `shm`.
//!
//! Counted for the example `within_host`, with segments of 64 bytes of which no two are neighbours.

use farreach_testkit::cost::{Counted, dist_example, tell};

/// A segment of a list may cost so many times a page of one range. It is 2.4: each region has its own
/// memory, which the caller hands over and takes back.
const LIST_MAX: f64 = 2.8;

/// A segment of a prepared transfer may cost so many times a page of one range. It is 1.06.
const PREPARED_MAX: f64 = 1.15;

/// A segment may cost so many times a segment of a shorter transfer.
const GROWTH_MAX: f64 = 1.3;

/// The start of a prepared transfer of one segment may cost so many instructions. It is 7,100.
const START_MAX: f64 = 9_000.0;

#[test]
#[ignore = "needs valgrind: cargo xtask test runs it"]
fn a_start_of_a_prepared_transfer_plans_nothing() {
    let counts = [1, 64, 4_096];
    let [pages, lists, prepared] = ["pages", "list", "prepared"].map(|kind| {
        let costs = counts.map(|segments| each(segments, kind));
        tell(&format!("a transfer of {counts:?} segments, {kind}: {costs:.0?} instructions\n"));
        costs
    });
    let segment = |costs: [f64; 3]| (costs[2] - costs[1]) / f64::from(counts[2] - counts[1]);
    let [page, of_list, of_prepared] = [pages, lists, prepared].map(segment);
    tell(&format!(
        "of many: {page:.0} a page, {of_list:.0} a segment of a list, {of_prepared:.0} prepared\n"
    ));
    assert!(page > 50.0, "that was not counted");
    assert!(of_list <= page * LIST_MAX && of_prepared <= page * PREPARED_MAX);
    for costs in [lists, prepared] {
        let of_few = (costs[1] - costs[0]) / f64::from(counts[1] - counts[0]);
        assert!(segment(costs) <= of_few * GROWTH_MAX, "{costs:?}");
    }
    assert!(prepared[0] < START_MAX && prepared[0] < lists[0] && prepared[2] < lists[2] / 2.0);
}

/// Returns the instructions of one transfer, from two runs with different numbers of them.
fn each(segments: u32, kind: &str) -> f64 {
    let program = Counted::new(dist_example("farreach", "within_host"), &["lists"]);
    let transfers = if segments < 1_000 { [200, 1_000] } else { [10, 50] };
    let [short, long] = transfers.map(|transfers: u32| {
        let words = [transfers.to_string(), segments.to_string(), kind.to_owned()];
        program.instructions_without_copies(&words.each_ref().map(String::as_str)).total as f64
    });
    (long - short) / f64::from(transfers[1] - transfers[0])
}
