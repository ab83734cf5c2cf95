//! Sizes and idleness over libfabric, with the generation of the library that the dynamic linker
//! finds. `--nocapture` shows the figures.
//!
//! One test runs at a time, because they measure the whole process. Peers are engines of other
//! processes, which run this program too.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what was measured is told")]

mod scale;

use scale::{crowd, sizes};

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_hundred_idle_peers_over_tcp_leave_the_core_alone() {
    crowd::hub("tcp", scale::idle::a_hundred_idle_peers_leave_the_core_alone);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_thousand_peers_come_get_a_page_and_leave_nothing() {
    crowd::hub("tcp", scale::peers::a_thousand_come_get_a_page_and_leave_nothing);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_million_pages_go_in_one_transfer() {
    crowd::hub("tcp", sizes::a_million_pages_go_in_one_transfer);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_hundred_thousand_grants_are_made_and_revoked() {
    crowd::alone(sizes::a_hundred_thousand_grants_are_made_and_revoked);
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_peer_that_is_used_to_its_bounds_takes_no_more_memory_than_they_say() {
    crowd::alone(sizes::a_peer_that_is_used_to_its_bounds_takes_no_more_memory_than_they_say);
}
