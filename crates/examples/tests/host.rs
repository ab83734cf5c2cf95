//! The README's first program is the one that is compiled and run, and the block store works within a host.

mod block_store;

const README: &str = include_str!("../../../README.md");
const SIDES: [(&str, &str); 2] =
    [("receive", include_str!("../examples/receive.rs")), ("send", include_str!("../examples/send.rs"))];

#[test]
fn the_readme_shows_both_sides_as_they_are_and_each_is_short() {
    for (name, program) in SIDES {
        let (_, shown) = program.split_once("\n\n").expect("its documentation comes first");
        assert!(README.contains(&format!("```rust\n{shown}```")), "README.md and examples/{name}.rs differ");
        assert!(program.lines().count() < 40, "{name} has {} lines", program.lines().count());
    }
}

#[test]
fn the_block_store_is_short() {
    let lines = include_str!("../examples/block_store.rs").lines().count();
    assert!(lines <= 150, "{lines} lines");
}

#[test]
fn eight_workers_read_and_write_ten_thousand_blocks() {
    let last = block_store::workers_read_and_write_all_blocks("shm", &[], 8, "rounds=500");
    assert_eq!(last, "10000 blocks are good, 0 torn; 4000 writes");
}

#[test]
fn a_worker_that_is_killed_leaves_the_store_and_the_others_at_work() {
    block_store::a_worker_that_is_killed_leaves_the_store_and_the_others_at_work("shm");
}

#[test]
fn workers_of_a_store_that_is_killed_end_with_the_code_of_a_lost_store() {
    block_store::workers_of_a_store_that_is_killed_end_with_the_code_of_a_lost_store("shm");
}

#[test]
fn a_worker_that_is_stopped_loses_its_share_and_the_others_go_on() {
    block_store::a_worker_that_is_stopped_loses_its_share_and_the_others_go_on("shm");
}
