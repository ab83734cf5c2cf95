//! The first program, run as a reader of the README runs it.

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
