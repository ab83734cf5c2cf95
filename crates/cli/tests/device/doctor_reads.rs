//! What `farreach doctor` reads of real RDMA is what other programs read, and bytes go over the card.

use std::fs;

use serde_json::{Map, Value};

use crate::support::host::Host;

/// What was read of this host.
fn pack(words: &[&str]) -> Value {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("pack.json");
    let dump = ["doctor", "--dump", file.to_str().expect("a plain name")];
    let ended = Host::HERE.run(&[&[crate::support::run::FARREACH], &dump[..], words].concat());
    // 1 where a check fails: which ones do is not asked here.
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
    serde_json::from_str(&fs::read_to_string(file).expect("it was dumped")).expect("it is JSON")
}

/// What `rdma resource show` counts, by device and kind.
fn resources() -> Map<String, Value> {
    let shown: Value =
        serde_json::from_str(&Host::HERE.output(&["rdma", "-j", "resource", "show"])).expect("JSON");
    let devices = shown.as_array().expect("a list").iter().map(|device| {
        let mut counts = device.as_object().expect("an object").clone();
        counts.remove("ifindex");
        let name = counts.remove("ifname").expect("a name");
        (name.as_str().expect("a word").to_owned(), Value::Object(counts))
    });
    devices.collect()
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn what_the_kernel_tells_is_what_rdma_shows() {
    // What a program before has left is released behind its back.
    let agrees = (0..10).any(|_| {
        let before = resources();
        let found = &pack(&["--no-transfers"])["probes"]["resources"]["read"];
        !before.is_empty() && *found == Value::Object(before)
    });
    assert!(agrees, "rdma resource show: {:#?}", resources());

    let probes = &pack(&["--no-transfers"])["probes"];
    let mode = probes["rdma_namespaces"]["read"].as_str().expect("the kernel tells");
    let system = Host::HERE.output(&["rdma", "system", "show"]);
    assert!(system.contains(&format!("netns {mode}")), "{mode}: {system}");
    assert_eq!(probes["verbs"]["read"]["is_fork_safe"], system.contains("copy-on-fork on"), "{system}");
    let nodes = probes["nodes"]["read"].as_object().expect("there are nodes");
    assert!(nodes.get("uverbs0").is_some_and(Value::is_null), "{nodes:?}");
    for (name, device) in probes["verbs"]["read"]["devices"].as_object().expect("devices by name") {
        for trial in ["error", "trial_registration", "trial_queue_pair"] {
            assert!(device[trial].is_null(), "{name}: {device:#}");
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask vm test runs it"]
fn bytes_go_over_the_card_and_are_compared() {
    let pack = pack(&[]);
    let transfers = pack["probes"]["transfers"]["read"].as_object().expect("there were some");
    let cards = pack["probes"]["verbs"]["read"]["devices"].as_object().expect("devices by name");
    let worked = |name: &String| transfers.get(name).is_some_and(|it| it["worked"]["bytes"] == 4 << 20);
    // Where two hosts share a kernel, the card of the other one is listed here, and is no rail.
    assert!(cards.keys().any(worked), "{transfers:#?}");
    assert!(cards.keys().all(|name| transfers.contains_key(name)), "{transfers:#?}");
}
