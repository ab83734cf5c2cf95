//! `farreach doctor PEER` over the rails that need no card.

use std::process::Command;

use crate::support::client::{assert_fails, assert_fails_as_json};
use crate::support::run::FARREACH;
use crate::support::schema;
use crate::support::server::Server;
use serde_json::Value;

/// `tcp with tcp works`, for each row.
fn rows(report: &Value) -> Vec<String> {
    let rows = report["pair"]["matrix"].as_array().expect("a matrix");
    let word = |row: &Value, key: &str| row[key].as_str().expect("a word").to_owned();
    let told =
        |row: &Value| format!("{} with {} {}", word(row, "local"), word(row, "remote"), word(row, "state"));
    rows.iter().map(told).collect()
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn tcp_is_tried_and_measured() {
    let mut server = Server::start(&[]);
    let ended = server.run("doctor", &["--json"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("doctor", &report);
    assert_eq!(rows(&report), ["tcp with tcp works", "shm with shm works"], "{report:#}");
    for row in report["pair"]["matrix"].as_array().expect("a matrix") {
        assert!(row["round_trip_ns"].as_u64() > Some(0), "{row:#}");
        assert!(row["rate_bits_per_second"].as_u64() > Some(1_000_000), "{row:#}");
    }
    assert_eq!(ended.stderr, "", "who does not watch is not told how it goes on");
    assert_eq!(report["hosts"].as_array().map(Vec::len), Some(2), "this host and the peer: {report:#}");
    let subjects: Vec<&str> = report["pair"]["findings"]
        .as_array()
        .expect("findings")
        .iter()
        .filter_map(|it| it["subject"].as_str())
        .collect();
    assert_eq!(subjects, ["control connection", "versions", "tcp with tcp", "shm with shm"]);
    for finding in report["pair"]["findings"].as_array().expect("findings") {
        assert_eq!(finding["verdict"], "pass", "{finding:#}");
    }
    // The host, and the rails; the last agent may end after its client.
    server.wait_for_logs("doctor finished", 3);
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_person_gets_a_table() {
    let server = Server::start(&["-d", "tcp"]);
    let ended = server.run("doctor", &["-v"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.stdout.starts_with("Examined "), "{ended:#?}");
    let table: Vec<&str> = ended.stdout.lines().skip_while(|line| !line.ends_with("RATE")).collect();
    assert!(table[0].contains("127.0.0.1"), "{ended:#?}");
    assert!(table[1].starts_with("tcp") && table[1].ends_with("works"), "{ended:#?}");
    assert!(ended.stderr.contains("trying tcp with tcp of 127.0.0.1 (1 of 1)\n"), "{ended:#?}");
    assert!(ended.stdout.contains("pass     pair, control connection: TCP from 127.0.0.1:"), "{ended:#?}");
    let folded = server.run("doctor", &[]);
    assert!(folded.stdout.contains("\npass     control connection, versions\n"), "{folded:#?}");
    assert_eq!(folded.stderr, "", "{folded:#?}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn what_was_tried_can_be_looked_at_elsewhere() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pair.json").display().to_string();
    let here = server.run("doctor", &["--json", "--dump", &file]);
    assert_eq!(here.code, Some(0), "{here:#?}");
    assert!(here.stderr.contains(&format!("farreach doctor --from {file}")), "{here:#?}");
    let text = std::fs::read_to_string(&file).expect("it was dumped");
    schema::assert_valid("doctor-pair-pack", &serde_json::from_str(&text).expect("JSON"));
    drop(server);
    let elsewhere =
        crate::support::run::end_of(Command::new(FARREACH).args(["doctor", "--json", "--from", &file]));
    assert_eq!(elsewhere.code, here.code, "{elsewhere:#?}");
    assert_eq!(elsewhere.json(), here.json());
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn rails_can_be_named_and_one_that_is_not_here_is_told() {
    let server = Server::start(&[]);
    let ended = server.run("doctor", &["-d", "tcp", "--json"]);
    assert_eq!(rows(&ended.json()), ["tcp with tcp works"], "{ended:#?}");
    assert_fails(&mut server.client("doctor", &["-d", "mlx5_7"]), 3, &["this host has no rail mlx5_7"]);
}

#[test]
fn a_peer_that_is_not_there_is_told() {
    let words = ["connect to 127.0.0.1:1", "nothing listens"];
    let ended = assert_fails(Command::new(FARREACH).args(["doctor", "127.0.0.1:1"]), 4, &words);
    assert!(ended.stderr.starts_with("error: "), "{ended:#?}");
    // What keeps it away may be on this host, which is told of.
    assert!(ended.stdout.contains("firewall"), "{ended:#?}");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("host.json").display().to_string();
    let command = &mut Command::new(FARREACH);
    assert_fails_as_json(command.args(["doctor", "127.0.0.1:1", "--dump", &file]), 4, &words);
    let report =
        crate::support::run::end_of(Command::new(FARREACH).args(["doctor", "127.0.0.1:1", "--json"])).json();
    schema::assert_valid("doctor", &report);
    assert_eq!(report["hosts"].as_array().map(Vec::len), Some(1), "{report:#}");
    let text = std::fs::read_to_string(&file).expect("it was dumped");
    schema::assert_valid("doctor-pack", &serde_json::from_str(&text).expect("JSON"));
}

#[test]
fn flags_for_a_peer_want_one() {
    for words in [&["doctor", "-d", "tcp"][..], &["doctor", "-x", "1"], &["doctor", "--tls", "/tmp"]] {
        let ended = crate::support::run::end_of(Command::new(FARREACH).args(words));
        assert_eq!(ended.code, Some(2), "{words:?}: {ended:#?}");
    }
}
