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

/// `bench --op cas -d tcp` sends people here: what is listed is what works, under the name that they typed.
#[test]
#[ignore = "needs libfabric or rdma-core: cargo xtask test runs it"]
fn a_rail_is_listed_by_the_name_that_tests_take_with_what_works_over_it() {
    let report = devices(&["--json"]).json();
    let rails = report["rails"].as_array().expect("rails are a list");
    let tcp = rails.iter().find(|rail| rail["name"] == "tcp").expect("tcp is always here");
    assert_eq!((&tcp["has_atomics"], &tcp["is_rdma"]), (&false.into(), &false.into()), "{tcp:#}");
    let provider = tcp["provider"].as_str().expect("its provider");
    let text = devices(&[]).stdout;
    let row_of = |name: &str| {
        let mut rows = text.lines().filter(|line| line.split_whitespace().next() == Some(name));
        rows.next_back().unwrap_or_else(|| panic!("no row of {name}:\n{text}")).to_owned()
    };
    let words: Vec<String> = row_of("tcp").split_whitespace().map(str::to_owned).collect();
    assert!(words.join(" ").starts_with(&format!("tcp no send write read libfabric {provider}")), "{text}");
    assert!(!row_of(provider).contains("atomic"), "{text}");
    // The provider is found by both names.
    for name in ["tcp", provider] {
        assert!(distinct(&devices(&["-d", name, "--json"]).json(), "provider").contains(&provider), "{name}");
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
    let words = "No device, provider or domain is named nonsense.";
    assert!(nonsense.stdout.contains(words), "{}", nonsense.stdout);
}
