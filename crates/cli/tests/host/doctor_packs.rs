//! `farreach doctor --from` says of recorded hosts what the library says of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use farreach_doctor::{Dump, checks};

use crate::support::run::{FARREACH, end_of};

/// The hosts that `farreach-doctor` has recorded, on which all is well.
fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/packs");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let files = entries.map(|entry| entry.expect("an entry of the folder").path());
    let is_host = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".json") && !name.ends_with(".variants.json")
    };
    files.filter(is_host).collect()
}

#[test]
fn the_command_says_what_the_library_says_and_all_is_well() {
    let files = recorded();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let ended = end_of(Command::new(FARREACH).args(["doctor", "--json", "--from"]).arg(&file));
        assert_eq!(ended.code, Some(0), "{}: {ended:#?}", file.display());
        let dump = Dump::from_json(&fs::read(&file).expect("it is there")).expect("it is a dump");
        let Dump::Host(pack) = dump else { panic!("{} is of one host", file.display()) };
        let expected = serde_json::to_value(checks::run(&pack)).expect("a report is JSON");
        assert_eq!(ended.json()["hosts"][0], expected, "{}", file.display());
    }
}

#[test]
fn a_host_with_a_fault_ends_with_one() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/packs/broken/soft-roce.json");
    let ended = end_of(Command::new(FARREACH).args(["doctor", "--from"]).arg(&file));
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(ended.stdout.contains("FAIL"), "{ended:#?}");
}
