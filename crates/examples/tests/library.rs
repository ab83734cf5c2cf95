//! The first program, run as a reader of the README runs it, and the block store over tcp.

mod block_store;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use farreach_testkit::example;

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn the_first_program_moves_its_pages() {
    let mut receiver = Command::new(example("receive")).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(receiver.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(told.next().unwrap(), "listening at 127.0.0.1:18521");
    let sent = Command::new(example("send")).output().unwrap();
    let text = String::from_utf8_lossy(&sent.stdout);
    assert!(sent.status.success() && text.starts_with("64 pages, "), "{sent:?}");
    let told: Vec<String> = told.collect();
    assert!(receiver.wait().unwrap().success(), "{told:?}");
    assert!(told[0].starts_with("64 pages from process "), "{told:?}");
    assert_eq!(told[1], "every byte is right");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn eight_workers_read_and_write_ten_thousand_blocks() {
    let last = block_store::workers_read_and_write_all_blocks("tcp", &[], 8, "rounds=500");
    assert_eq!(last, "10000 blocks are good, 0 torn; 4000 writes");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_worker_that_is_killed_leaves_the_store_and_the_others_at_work() {
    block_store::a_worker_that_is_killed_leaves_the_store_and_the_others_at_work("tcp");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn workers_of_a_store_that_is_killed_end_with_the_code_of_a_lost_store() {
    block_store::workers_of_a_store_that_is_killed_end_with_the_code_of_a_lost_store("tcp");
}

#[test]
#[ignore = "needs libfabric: cargo xtask test runs it"]
fn a_worker_that_is_stopped_loses_its_share_and_the_others_go_on() {
    block_store::a_worker_that_is_stopped_loses_its_share_and_the_others_go_on("tcp");
}
