//! `farreach bench` on Soft-RoCE: the engine's operations, and those that are verbs' own.

use crate::support::host::Host;
use crate::support::schema;
use crate::support::server::Server;

const SHORT: [&str; 9] = ["-D", "0.2", "-r", "1", "--warm-up", "0.05", "-s", "64", "--json"];

fn operations(report: &serde_json::Value) -> Vec<&str> {
    let rows = report["rows"].as_array().expect("rows are a list");
    rows.iter().filter_map(|row| row["operation"].as_str()).collect()
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn every_operation_of_the_engine_is_measured_over_rdma() {
    let server = Server::start_far(&[]);
    let all = "send,write,write-imm,read,cas,faa";
    let ended =
        server.run("bench", &[&SHORT[..], &["--op", all, "--depths", "8", "--require-rdma"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let report = ended.json();
    schema::assert_valid("bench", &report);
    assert_eq!(operations(&report), all.split(',').collect::<Vec<_>>());
    assert_eq!(report["rails"][0]["is_rdma"], true, "{report:#}");
}

/// Both sides' packets are marked, of the engine's queue pairs and of those beside them.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn packets_are_marked_as_asked_for() {
    let server = Server::start_far(&[]);
    let words =
        [&SHORT[..], &["--op", "write,read", "--depths", "1", "--tclass", "104", "--sl", "3"]].concat();
    let ended = server.run("bench", &words);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let report = ended.json();
    assert_eq!((&report["traffic_class"], &report["service_level"]), (&104.into(), &3.into()), "{report:#}");
}

/// What perftest measures: plain writes and reads by a bare queue pair.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn bare_queue_pairs_are_measured_as_they_were_asked_for() {
    let server = Server::start_far(&[]);
    for (words, expected) in [
        (
            &["--op", "raw-write,raw-read", "--depths", "1,8"][..],
            &["raw-write", "raw-write", "raw-read", "raw-read"][..],
        ),
        (
            &["--op", "raw-write,raw-read", "--depths", "8", "--mtu", "256", "--post-list", "4"],
            &["raw-write", "raw-read"],
        ),
        // More in a list than are in flight, bytes inline, and no acknowledgements.
        (&["--op", "raw-write", "--depths", "2", "--inline", "64", "--post-list", "16"], &["raw-write"]),
        (&["--op", "raw-write,raw-send", "--depths", "4", "--connection", "uc"], &["raw-write", "raw-send"]),
        (&["--op", "raw-send", "--depths", "1,8", "--post-list", "4"], &["raw-send", "raw-send"]),
        (&["--op", "raw-send", "--depths", "1,8", "--connection", "ud"], &["raw-send", "raw-send"]),
        (&["--op", "raw-send", "--depths", "4", "--connection", "ud", "--inline", "64"], &["raw-send"]),
    ] {
        let ended = server.run("bench", &[&SHORT[..], words].concat());
        assert_eq!(ended.code, Some(0), "{words:?}: {ended:#?}");
        let report = ended.json();
        schema::assert_valid("bench", &report);
        assert_eq!(operations(&report), expected, "{words:?}");
    }
    for words in [
        &["-s", "64", "--op", "raw-write", "--inline", "60000"][..],
        // A datagram has one packet.
        &["-s", "8K", "--op", "raw-send", "--connection", "ud"],
    ] {
        let ended = server.run("bench", &[words, &["-D", "0.2", "-r", "1"]].concat());
        assert_eq!(ended.code, Some(3), "{ended:#?}");
    }
}

/// The newest kernel has them, and Linux 6.1 has not: the card says which.
#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_is_verbs_own_is_measured_where_the_card_has_it() {
    let devices: serde_json::Value =
        serde_json::from_str(&Host::HERE.farreach(&["devices", "--json"])).expect("the report is JSON");
    let capabilities =
        devices["verbs"]["devices"][0]["capabilities"].as_array().expect("capabilities are a list");
    let has = |name: &str| capabilities.iter().any(|it| it == name);
    let is_there = has("ATOMIC_WRITE") && has("FLUSH_GLOBAL");
    let server = Server::start_far(&[]);
    let words = [&SHORT[..], &["--op", "atomic-write,flush,write", "--depths", "1,8"]].concat();
    let ended = server.run("bench", &words);
    let report = ended.json();
    schema::assert_valid("bench", &report);
    if is_there {
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let expected = ["atomic-write", "atomic-write", "flush", "flush", "write", "write"];
        assert_eq!(operations(&report), expected);
    } else {
        assert_eq!(ended.code, Some(3), "{ended:#?}");
        assert_eq!(operations(&report), ["write", "write"]);
        for words in ["atomic-write was not measured", "flush was not measured", "Soft-RoCE of Linux 6.1"] {
            assert!(ended.stderr.contains(words), "{words}: {ended:#?}");
        }
    }
}
