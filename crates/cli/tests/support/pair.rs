//! `farreach doctor PEER` between the two hosts of a guest, and what it says of their cards.
#![allow(dead_code, reason = "each test uses its part")]

use serde_json::Value;

use super::host::Host;
use super::schema;
use super::server::Server;

pub(crate) const CARD: &str = "rxea";
pub(crate) const FAR_CARD: &str = "rxeb";

pub(crate) fn far() -> Host {
    *Host::all().last().expect("a guest has a host")
}

/// What is said of the two cards, with this exit code.
#[track_caller]
pub(crate) fn doctor(server: &Server, words: &[&str], code: i32) -> (Value, String) {
    let pair = pair(server, words, code);
    (pair["matrix"][0].clone(), pair["findings"].to_string())
}

/// The report on the two cards, with this exit code.
#[track_caller]
fn pair(server: &Server, words: &[&str], code: i32) -> Value {
    let ended = server.run("doctor", &[&["-d", CARD, "--json"], words].concat());
    let report = ended.json();
    schema::assert_valid("doctor", &report);
    let pair = &report["pair"];
    assert_eq!(ended.code, Some(code), "{pair:#}\n{}", ended.stderr);
    assert_eq!(pair["matrix"].as_array().map(Vec::len), Some(1), "{pair:#}");
    pair.clone()
}

/// `HERE` and `PEER` in `told` stand for the names of the two hosts.
#[track_caller]
pub(crate) fn assert_fault(server: &Server, words: &[&str], why: &str, told: &[&str]) {
    let pair = pair(server, words, 1);
    let (row, findings) = (&pair["matrix"][0], pair["findings"].to_string());
    let name = |key: &str| pair[key].as_str().expect("a host has a name").to_owned();
    let (here, peer) = (name("here"), name("peer"));
    assert_eq!(row["state"], "fails", "{row:#}");
    assert!(row["why"].as_str().is_some_and(|it| it.contains(why)), "{why}: {row:#}\n{findings}");
    for word in told.iter().map(|word| word.replace("HERE", &here).replace("PEER", &peer)) {
        assert!(findings.contains(&word), "{word:?} is not told: {findings}\n{row:#}");
    }
}

#[track_caller]
pub(crate) fn assert_clean(server: &Server) {
    let (row, findings) = doctor(server, &[], 0);
    assert_eq!(row["state"], "works", "{row:#}\n{findings}");
}

/// What it is called differs between machines and namespaces.
pub(crate) fn net_device(host: Host, card: &str) -> String {
    let file = format!("/sys/class/infiniband/{card}/ports/1/gid_attrs/ndevs/0");
    host.output(&["cat", &file]).trim().to_owned()
}

/// The place of a GID in a card's table, as soon as it has one: addresses come to cards a moment after they come to net devices.
#[track_caller]
pub(crate) fn gid_index(host: Host, card: &str, gid: &str) -> u32 {
    let find = format!(
        "cd /sys/class/infiniband/{card}/ports/1/gids && for try in 1 2 3 4 5 6 7 8 9 10; do \
         grep -ls {gid} * && exit 0; sleep 0.3; done; exit 1"
    );
    let found = host.output(&["sh", "-c", &find]);
    found.lines().next().and_then(|index| index.parse().ok()).unwrap_or_else(|| panic!("{gid}: {found}"))
}
