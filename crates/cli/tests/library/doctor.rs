//! `farreach doctor` with the engines' libraries, on a kernel that may be without RDMA.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::run::{FARREACH, end_of};

/// What was read, and how long it took.
fn pack(words: &[&str]) -> (Value, Duration) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("pack.json");
    let began = Instant::now();
    let ended = end_of(Command::new(FARREACH).args(["doctor", "--json", "--dump"]).arg(&file).args(words));
    let took = began.elapsed();
    assert!(ended.json()["hosts"].is_array(), "{ended:#?}");
    // A developer's machine may have such a kernel, and its cells with it.
    if !Path::new("/sys/class/infiniband").is_dir() {
        assert_eq!(ended.code, Some(3), "{ended:#?}");
    }
    let text = fs::read_to_string(file).expect("it was dumped");
    (serde_json::from_str(&text).expect("it is JSON"), took)
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn bytes_go_over_tcp_and_are_compared() {
    let (pack, _) = pack(&[]);
    let transfers = &pack["probes"]["transfers"]["read"];
    let worked = &transfers["tcp"]["worked"];
    assert_eq!(worked["bytes"].as_u64(), Some(4 << 20), "{transfers:#}");
    assert!(worked["latency_ns"].as_u64() > Some(100), "{transfers:#}");
    assert!(worked["rate_bits_per_second"].as_u64() > Some(1_000_000), "{transfers:#}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn the_libraries_tell_what_they_are_and_soon() {
    // Beside another test's 64 clients, which poll for ten seconds, a run takes six.
    let began = Instant::now();
    let read = loop {
        let (read, took) = pack(&["--no-transfers"]);
        if took < Duration::from_secs(3) {
            break read;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{took:?}: {read:#}");
    };
    let probes = &read["probes"];
    let (verbs, fabric) = (&probes["verbs"]["read"], &probes["fabric"]["read"]);
    for library in [verbs, fabric] {
        let file = library["library"].as_str().unwrap_or_else(|| panic!("{probes:#}"));
        assert!(Path::new(file).is_file(), "{file}");
    }
    assert!(verbs["devices"].is_object(), "{verbs:#}");
    let providers = fabric["providers"].as_object().expect("an object");
    assert!(providers.keys().any(|name| name == "shm"), "{providers:?}");
}
