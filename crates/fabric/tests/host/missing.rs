//! Without a libfabric that can be loaded: a program starts, and reports what is missing and how to
//! fix it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns a folder with an invalid `libfabric.so.1`, which the dynamic linker finds before any
/// other.
fn broken_library() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-libfabric");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("libfabric.so.1"), "this is no library").unwrap();
    folder
}

#[test]
fn a_program_starts_and_says_what_to_do() {
    let test = env::current_exe().unwrap();
    let program = test.ancestors().nth(2).unwrap().join("examples").join("write_pages");
    let run = |argument: &str| {
        Command::new(&program).arg(argument).env("LD_LIBRARY_PATH", broken_library()).output().unwrap()
    };
    let output = run("--provider=tcp");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let starts: Vec<_> =
        said.lines().filter_map(|line| line.split_once(": ")).map(|(start, _)| start).collect();
    assert_eq!(starts, ["error", "cause", "fix"], "{said}");
    assert!(said.contains("libfabric"), "{said}");
    // Functions that need no library work.
    assert!(run("--help").status.success());
}
