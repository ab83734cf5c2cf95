//! `farreach chip` over libfabric's rails: no card is there, so it is the host's memory or none.

use std::time::Duration;

use serde_json::Value;

use crate::support::chip::{
    MEMORY, assert_interrupted, assert_lock, assert_steps, interrupt_contest, kill_agent_of_contest,
};
use crate::support::run::end_of;
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

/// Times and rates are told in the unit that fits.
fn without_units(line: &str) -> String {
    if !line.starts_with("lock") {
        return line.to_owned();
    }
    let mut line = line.to_owned();
    for unit in ["s", "ms", "µs"] {
        line = line.replace(&format!("in N {unit},"), "in N UNIT,");
    }
    for unit in ["N /s", "N k/s", "N M/s"] {
        line = line.replace(unit, "N UNIT/s");
    }
    line
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn there_is_no_on_chip_memory_over_libfabric_and_the_way_out_is_told() {
    let server = Server::start(&[]);
    for rail in ["shm", "tcp"] {
        let ended = server.run("chip", &["-d", rail]);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""), "{ended:#?}");
        for words in ["error: there is no on-chip memory over these rails", "libfabric's", "--host-memory"] {
            assert!(ended.stderr.contains(words), "{words}: {ended:#?}");
        }
        let report = server.run("chip", &["-d", rail, "--json"]).json();
        assert_eq!(report["exit_code"], 3);
        assert_eq!(report["error"]["error"], "there is no on-chip memory over these rails");
        assert!(report["error"]["fix"].as_str().is_some_and(|fix| fix.contains("--host-memory")));
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn every_step_is_shown_over_shared_memory() {
    let mut server = Server::start(&[]);
    let ended = server.run("chip", &["--host-memory", "--clients", "3", "--rounds", "40"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:#?}");
    let expected = [
        "chip N:N over shm (no RDMA)",
        "N KiB of the server's host memory, over one connection of the engine",
        "STEP SIZE TIME µs",
        "message N KiB N sent from that memory by the server",
        "read N KiB N is what lies there",
        "write N KiB N is what the server sees",
        "read back N KiB N is what was written",
        "lock N clients, N rounds each: N acquisitions in N UNIT, N UNIT/s",
        "N attempts found another one in possession",
        "wait for it in µs: min N, pN N, pN N, pN N, max N",
        "when the first client was done, each had had it N to N times",
        "counter N, at the server N: as it must be",
    ];
    let told: Vec<String> = masked(&ended.stdout).iter().map(|line| without_units(line)).collect();
    assert_eq!(told, expected, "{}", ended.stdout);
    assert!(ended.stdout.contains("128 KiB") && ended.stdout.contains("counter 120, at the server 120"));
    server.wait_for_log("chip is done");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn the_report_for_programs_has_every_figure() {
    let server = Server::start(&[]);
    let words =
        ["--host-memory", "--clients", "4", "--rounds", "50", "-s", "8192", "--wait", "busy", "--json"];
    let ended = server.run("chip", &words);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("chip", &report);
    for (field, expected) in [("command", "chip"), ("wait", "busy"), ("rails_why", "")] {
        assert!(report[field].as_str().is_some_and(|told| told.contains(expected)), "{field}: {report:#}");
    }
    assert_eq!((&report["schema_version"], &report["exit_code"]), (&1.into(), &0.into()));
    assert_eq!(report["rails"][0]["name"], "shm");
    let memory = serde_json::json!({ "kind": "host", "size_bytes": 8192, "card": null, "queue_pairs": null });
    assert_eq!(report["memory"], memory);
    assert_steps(&report, 8192);
    assert_lock(&report, 4, 50);
    assert_eq!(report["error"], Value::Null);
    for side in ["client", "server"] {
        assert!(report["processors"][side]["cpu_ns"].as_u64() > Some(0), "{report:#}");
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn over_tcp_all_is_done_but_the_lock() {
    let mut server = Server::start(&[]);
    let words = ["-d", "tcp", "--host-memory"];
    let ended = server.run("chip", &words);
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let told = masked(&ended.stdout);
    assert!(told.iter().any(|line| line == "read back N KiB N is what was written"), "{told:#?}");
    assert!(!ended.stdout.contains("lock"), "{}", ended.stdout);
    for words in ["error: the lock cannot be taken", "has no atomic operations", "-d shm"] {
        assert!(ended.stderr.contains(words), "{words}: {ended:#?}");
    }
    server.wait_for_log("chip is done");

    let ended = server.run("chip", &[&words[..], &["--json"]].concat());
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let report = ended.json();
    assert_steps(&report, MEMORY);
    assert_eq!((&report["lock"], &report["exit_code"]), (&Value::Null, &3.into()));
    assert_eq!(report["error"]["error"], "the lock cannot be taken");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn who_has_enough_is_told_what_was_measured() {
    let mut server = Server::start(&[]);
    assert_interrupted(&interrupt_contest(&mut server, &["--host-memory", "--json"]));
    let text = interrupt_contest(&mut server, &["--host-memory"]);
    assert_eq!(text.code, Some(130), "{text:#?}");
    assert!(text.stdout.contains("as it must be") && text.stdout.contains("\ninterrupted: "), "{text:#?}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn an_agent_that_dies_is_told_soon_and_the_server_goes_on() {
    let mut server = Server::start(&[]);
    let (ended, took) = kill_agent_of_contest(&mut server, &[]);
    assert_eq!(ended.code, Some(4), "{ended:#?}");
    assert!(ended.stderr.contains("error: ") && ended.stdout.contains("read back"), "{ended:#?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    server.wait_for_log("its agent was ended by signal 9");
    let next = server.run("chip", &["--host-memory", "--rounds", "10"]);
    assert_eq!(next.code, Some(0), "{next:#?}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn clients_of_one_server_have_locks_of_their_own() {
    let server = Server::start(&[]);
    let words = ["--host-memory", "--clients", "2", "--rounds", "100", "--json"];
    let together: Vec<_> = (0..3)
        .map(|_| {
            let mut client = server.client("chip", &words);
            std::thread::spawn(move || end_of(&mut client))
        })
        .collect();
    for client in together {
        let ended = client.join().expect("the client ends");
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_lock(&ended.json(), 2, 100);
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn what_makes_no_sense_is_refused() {
    let server = Server::start(&[]);
    for words in [["-s", "4097"], ["-s", "8"], ["--clients", "0"], ["--clients", "129"], ["--rounds", "0"]] {
        let ended = server.run("chip", &words);
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.stderr.contains(&format!("error: {} {} cannot be", words[0], words[1])), "{ended:#?}");
    }
}
