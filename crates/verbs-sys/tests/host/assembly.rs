//! Tests that the data path costs as much as in C, by the machine code of
//! `examples/verbs_hot_path.rs`, built for release.

use farreach_testkit::machine_code::assert_jumps_through_table;

/// Two or three loads and the jump, with room for a stack frame.
const INSTRUCTIONS_MAX: usize = 6;

#[test]
fn the_hot_path_calls_nothing_but_the_table() {
    let functions = ["hot_post_send", "hot_post_recv", "hot_poll_cq", "hot_wr_rdma_write"];
    assert_jumps_through_table(env!("CARGO_PKG_NAME"), "verbs_hot_path", &functions, INSTRUCTIONS_MAX);
}
