//! The data path costs the same as in C: checks the machine code of `examples/fabric_hot_path.rs`,
//! built for release.

use farreach_testkit::machine_code::assert_jumps_through_table;

/// Two or three loads and the jump, with room for a frame.
const INSTRUCTIONS_MAX: usize = 6;

#[test]
fn the_hot_path_calls_nothing_but_the_table() {
    let functions = ["hot_fi_writemsg", "hot_fi_cq_read"];
    assert_jumps_through_table(env!("CARGO_PKG_NAME"), "fabric_hot_path", &functions, INSTRUCTIONS_MAX);
}
