//! The program as a developer runs it: a missed bar is told, and ends it with 1.

use std::fs;
use std::process::{Command, Output};

fn hostile(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hostile")).args(words).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A line with this share of operations in time, and these breaches.
fn line(name: &str, in_time: u32, breaches: &[&str]) -> serde_json::Value {
    let service = |in_time: u32| serde_json::json!({ "operations": 1000, "in_time": in_time });
    serde_json::json!({
        "name": name,
        "before": service(1000),
        "during": service(in_time),
        "after": service(1000),
        "share_min": 0.99,
        "breaches": breaches,
    })
}

fn judge(lines: &[serde_json::Value]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), serde_json::to_string(lines).unwrap()).unwrap();
    hostile(&["judge", file.path().to_str().unwrap()])
}

#[test]
fn a_table_that_meets_every_bar_ends_with_0() {
    let judged = judge(&[line("marks", 990, &[]), line("slow", 1000, &[])]);
    assert_eq!(judged.status.code(), Some(0), "{judged:?}");
    assert!(stdout(&judged).contains("2 lines, every bar met"), "{judged:?}");
}

#[test]
fn a_missed_bar_is_told_and_ends_with_1() {
    let slow = judge(&[line("marks", 990, &[]), line("slow", 989, &[])]);
    assert_eq!(slow.status.code(), Some(1), "{slow:?}");
    assert!(stdout(&slow).contains("missed: during: 98.90 %"), "{slow:?}");
    assert!(stdout(&slow).contains("1 of 2 lines missed a bar: slow"), "{slow:?}");
    let breach = judge(&[line("keys", 1000, &["8 bytes of another peer's memory were changed"])]);
    assert_eq!(breach.status.code(), Some(1), "{breach:?}");
    assert!(stdout(&breach).contains("missed: 8 bytes of another peer's memory"), "{breach:?}");
}

#[test]
fn no_lines_are_no_success() {
    assert_eq!(judge(&[]).status.code(), Some(1));
    assert_eq!(hostile(&["drive", "no-such-line"]).status.code(), Some(1));
    // Without the command, a server cannot be attacked, and nothing would be left to run.
    let skipped = hostile(&["drive", "serve-idle"]);
    assert_eq!(skipped.status.code(), Some(1));
    assert!(stdout(&skipped).contains("skipped: serve-idle"), "{skipped:?}");
}

#[test]
fn the_lines_are_listed() {
    let listed = hostile(&["drive", "--list"]);
    assert_eq!(listed.status.code(), Some(0));
    for name in ["keys", "link-lost", "descriptors", "serve-orders", "serve-crowd"] {
        assert!(stdout(&listed).lines().any(|line| line.starts_with(name)), "{name}: {listed:?}");
    }
}
