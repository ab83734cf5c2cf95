//! Memory as valgrind sees it: the tests of what calls libfabric, under memcheck.

use anyhow::{Result, bail, ensure};

use crate::binaries::test_binaries;
use crate::cell::Cell;
use crate::paths;
use crate::vm::Userland;

/// The suites of both crates that use libfabric have this name.
const PROGRAM: &str = "engine_suite";

/// Which of their tests run so: what posts, completes, grants and gives back. All of them would take an hour.
const CHOSEN: [&str; 7] = [
    "messages_arrive",
    "pages_arrive",
    "pages_are_read",
    "comes_back",
    "a_message_arrives",
    "has_landed",
    "brings_the_peers",
];

/// `cargo xtask memcheck`
#[derive(Debug, Default, clap::Args)]
pub(crate) struct MemcheckArgs {
    /// Run only the tests whose names contain this.
    filter: Option<String>,
}

pub(crate) fn execute(args: &MemcheckArgs) -> Result<()> {
    let (mut failed, mut ran) = (Vec::new(), 0);
    let suppressions = paths::repository().join("xtask/src/memcheck.supp");
    let root = Userland::Newest.root().get()?;
    let cell = Cell::new(&root.path)?;
    for binary in test_binaries("engine_")? {
        if !binary.name.contains(PROGRAM) {
            continue;
        }
        println!("── {} under memcheck", binary.name);
        let suppressions = format!("--suppressions={}", suppressions.display());
        let mut words = vec!["valgrind", "--quiet", "--error-exitcode=9", &suppressions, binary.path()?];
        words.extend(["--ignored", "--test-threads=1"]);
        match &args.filter {
            Some(filter) => words.push(filter),
            None => words.extend(CHOSEN),
        }
        ran += 1;
        if !cell.command(&binary.directory, &words).status()?.success() {
            failed.push(binary.name.clone());
        }
    }
    ensure!(ran == 2, "{ran} programs named {PROGRAM} were found, and not those of both crates");
    if !failed.is_empty() {
        bail!("memcheck found something in {}", failed.join(", "));
    }
    Ok(())
}
