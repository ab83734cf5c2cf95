//! `farreach chip` over verbs: queue pairs of its own, on Soft-RoCE, which has no on-chip memory.

use serde_json::{Value, json};

use crate::support::chip::{
    MEMORY, assert_interrupted, assert_lock, assert_steps, interrupt_contest, kill_agent_of_contest,
};
use crate::support::host::Host;
use crate::support::server::Server;

/// What the server's device is called: where there are two hosts, it is the other one's.
fn device_of_server() -> &'static str {
    if Host::all().len() == 1 { "rxe0" } else { "rxeb" }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn a_card_without_on_chip_memory_says_what_it_was_asked() {
    let server = Server::start_far(&[]);
    let ended = server.run("chip", &["--json"]);
    assert_eq!(ended.code, Some(3), "{ended:#?}");
    let error = format!("on the other side: {} has no on-chip memory", device_of_server());
    for words in [&error, "max_dm_size", "max_dm_size of 0 bytes", "--host-memory", "farreach devices -v"] {
        assert!(ended.stderr.contains(words), "{words}: {ended:#?}");
    }
    let report = ended.json();
    assert_eq!((&report["exit_code"], &report["error"]["error"]), (&3.into(), &error.into()));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn every_step_goes_by_queue_pairs_on_the_hosts_memory() {
    let mut server = Server::start_far(&[]);
    let ended = server.run("chip", &["--host-memory", "--clients", "4", "--rounds", "25", "--json"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let report = ended.json();
    assert_eq!(report["rails"][0]["is_rdma"], true, "{report:#}");
    let memory =
        json!({ "kind": "host", "size_bytes": MEMORY, "card": device_of_server(), "queue_pairs": 4 });
    assert_eq!(report["memory"], memory);
    assert_steps(&report, MEMORY);
    assert_lock(&report, 4, 25);
    assert_eq!(report["error"], Value::Null);
    server.wait_for_log("chip finished");
}

/// What is the same on every kernel, and slow.
mod one_guest {
    use super::*;

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn other_ways_to_wait_serve_too_and_a_person_reads_it() {
        let server = Server::start_far(&[]);
        for wait in ["busy", "event"] {
            let words = ["--host-memory", "--clients", "2", "--rounds", "5", "-s", "4K", "--wait", wait];
            let text = server.run("chip", &words);
            assert_eq!((text.code, text.stderr.as_str()), (Some(0), ""), "{text:#?}");
            let card = device_of_server();
            let access = format!("access  2 queue pairs to {card} of the server");
            let memory = "(RDMA): 4 KiB of host memory\n";
            for words in [access.as_str(), memory, "counter 10, at the server 10: correct"] {
                assert!(text.stdout.contains(words), "{words}: {}", text.stdout);
            }
        }
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn the_gid_that_was_asked_for_is_used_on_both_sides() {
        // The same place of both tables has the same kind of address.
        let devices: Value =
            serde_json::from_str(&Host::HERE.farreach(&["devices", "--json"])).expect("JSON");
        let gids = devices["verbs"]["devices"][0]["ports"][0]["gids"].as_array().expect("GIDs are a list");
        let global =
            |gid: &&Value| gid["address"].as_str().is_some_and(|address| address.starts_with("2001:db8:"));
        let index = gids.iter().find(global).expect("every host has such an address")["index"].to_string();
        let server = Server::start_far(&["-x", &index]);
        let words = ["--host-memory", "--clients", "2", "--rounds", "100", "-x", &index, "--json"];
        let ended = server.run("chip", &words);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        let report = ended.json();
        let native = report["rails"][0]["native_address"].as_str().expect("an address");
        assert!(native.contains(&format!("GID {index}")) && native.contains("2001:db8:"), "{native}");
        assert_lock(&report, 2, 100);
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn who_has_enough_is_told_what_was_measured() {
        let mut server = Server::start_far(&[]);
        let words = ["--host-memory", "--clients", "2", "--json"];
        assert_interrupted(&interrupt_contest(&mut server, &words));
    }

    #[test]
    #[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
    fn an_agent_that_dies_is_told() {
        let mut server = Server::start_far(&[]);
        let (ended, _) = kill_agent_of_contest(&mut server, &["--clients", "2"]);
        assert_eq!(ended.code, Some(4), "{ended:#?}");
        assert!(ended.stdout.contains("read back"), "what was done is told: {ended:#?}");
    }
}
