//! `farreach devices` with an engine's libraries on a kernel without RDMA.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::offers;
use crate::support::run::{Ended, FARREACH, end_of};
use crate::support::schema::assert_valid;

fn devices(words: &[&str]) -> Ended {
    end_of(Command::new(FARREACH).arg("devices").args(words))
}

/// What an offer is called, each once.
fn distinct<'a>(report: &'a Value, key: &str) -> Vec<&'a str> {
    let offers = report["fabric"]["offers"].as_array().expect("offers are a list");
    let mut words: Vec<_> = offers.iter().filter_map(|offer| offer[key].as_str()).collect();
    words.sort_unstable();
    words.dedup();
    words
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn tcp_and_shared_memory_are_listed() {
    let ended = devices(&["--json"]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let report = ended.json();
    assert_valid("devices", &report);
    let providers = distinct(&report, "provider");
    assert!(providers.contains(&"tcp") && providers.contains(&"shm"), "{providers:?}");
    let library = report["fabric"]["library"].as_str().expect("a library was loaded");
    assert!(Path::new(library).is_file(), "{library}");

    let text = devices(&[]);
    assert_eq!(text.code, Some(0), "{text:#?}");
    for provider in providers {
        let row = |line: &str| line.split_whitespace().next() == Some(provider);
        assert!(text.stdout.lines().any(row), "no row of {provider}:\n{}", text.stdout);
    }
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn offers_agree_with_fi_info() {
    let run = |words: &[&str]| {
        let ended = end_of(Command::new("fi_info").args(words));
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        ended.stdout
    };
    offers::assert_agrees(&devices(&["--json"]).json(), &run(&[]), &run(&["-l"]));
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_kernel_without_rdma_is_told_with_a_fix() {
    let verbs = devices(&["--json"]).json()["verbs"].clone();
    let library = verbs["library"].as_str().expect("libibverbs is here");
    assert!(Path::new(library).is_file(), "{library}");
    let problems = verbs["problems"].as_array().expect("problems are a list");
    let told = problems.iter().any(|problem| {
        problem["what"] == "the kernel has no RDMA support"
            && problem["fix"].as_str().is_some_and(|fix| fix.contains("CONFIG_INFINIBAND"))
    });
    // A developer's machine may have such a kernel, and its cells with it.
    let has_rdma = Path::new("/sys/class/infiniband").is_dir();
    assert_eq!(told, !has_rdma, "{problems:#?}");
}

#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn one_name_is_kept_and_an_unknown_one_refused() {
    let shm = devices(&["-d", "shm", "--json"]);
    assert_eq!(shm.code, Some(0), "{shm:#?}");
    assert_eq!(distinct(&shm.json(), "provider"), ["shm"]);

    let nonsense = devices(&["-d", "nonsense"]);
    assert_eq!(nonsense.code, Some(3), "{nonsense:#?}");
    let words = "There is no device, provider or domain called nonsense.";
    assert!(nonsense.stdout.contains(words), "{}", nonsense.stdout);
}
