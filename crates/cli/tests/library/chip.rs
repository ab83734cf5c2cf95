//! `farreach chip` over libfabric's rails: no card is there, so it is the host's memory or none.

use serde_json::Value;

use crate::support::chip::assert_steps;
use crate::support::schema;
use crate::support::server::Server;

/// Without what differs from run to run: numbers, and the spaces that depend on them.
fn masked(text: &str) -> Vec<String> {
    let number = |word: &str| {
        let mut masked = String::new();
        for part in word.split_inclusive(|it: char| !it.is_ascii_digit() && it != '.') {
            let digits = part.trim_end_matches(|it: char| !it.is_ascii_digit() && it != '.');
            masked.push_str(if digits.is_empty() { "" } else { "N" });
            masked.push_str(&part[digits.len()..]);
        }
        masked
    };
    text.lines().map(|line| line.split_whitespace().map(number).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn there_is_no_on_chip_memory_over_libfabric_and_the_way_out_is_told() {
    let server = Server::start(&[]);
    let ended = server.run("chip", &[]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""), "{ended:#?}");
    for words in ["error: these rails have no on-chip memory", "is a libfabric rail", "--host-memory"] {
        assert!(ended.stderr.contains(words), "{words}: {ended:#?}");
    }
    let report = server.run("chip", &["--json"]).json();
    assert_eq!(report["exit_code"], 3);
    assert_eq!(report["error"]["error"], "these rails have no on-chip memory");
    assert!(report["error"]["fix"].as_str().is_some_and(|fix| fix.contains("--host-memory")));
}

/// tcp has no atomics.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn every_step_is_shown_but_the_lock() {
    let mut server = Server::start(&[]);
    let ended = server.run("chip", &["--host-memory"]);
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let expected = [
        "access one connection of the engine",
        "STEP SIZE TIME µs RESULT",
        "message N KiB N sent by the server from this memory",
        "read N KiB N matches the memory of the server",
        "write N KiB N verified by the server",
        "read back N KiB N matches the bytes written",
    ];
    let (first, rest) = ended.stdout.split_once('\n').expect("several lines");
    assert!(first.ends_with("(no RDMA): 128 KiB of host memory"), "{first}");
    assert_eq!(masked(rest), expected, "{}", ended.stdout);
    for words in ["error: the lock was not tested", "has no atomic operations", "Soft-RoCE"] {
        assert!(ended.stderr.contains(words), "{words}: {ended:#?}");
    }
    server.wait_for_log("chip finished");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn the_report_for_programs_has_every_figure() {
    let server = Server::start(&[]);
    let ended = server.run("chip", &["--host-memory", "-s", "8192", "--wait", "busy", "--json"]);
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("chip", &report);
    for (field, expected) in [("command", "chip"), ("wait", "busy"), ("rails_why", "no active RDMA card")] {
        assert!(report[field].as_str().is_some_and(|told| told.contains(expected)), "{field}: {report:#}");
    }
    assert_eq!((&report["schema_version"], &report["exit_code"]), (&1.into(), &3.into()));
    let memory = serde_json::json!({ "kind": "host", "size_bytes": 8192, "card": null, "queue_pairs": null });
    assert_eq!(report["memory"], memory);
    assert_steps(&report, 8192);
    assert_eq!(report["lock"], Value::Null);
    assert_eq!(report["error"]["error"], "the lock was not tested");
    for side in ["client", "server"] {
        assert!(report["processors"][side]["cpu_ns"].as_u64() > Some(0), "{report:#}");
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn what_makes_no_sense_is_refused() {
    let server = Server::start(&[]);
    for words in [["-s", "4097"], ["-s", "8"], ["--clients", "0"], ["--clients", "129"], ["--rounds", "0"]] {
        let ended = server.run("chip", &words);
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(
            ended.stderr.contains(&format!("error: {} {} is not possible", words[0], words[1])),
            "{ended:#?}"
        );
    }
}
