//! Runs the tests that call libfabric under valgrind's memcheck, with each generation of the
//! library.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::attempts::{Program, exactly};
use crate::binaries::{Tier, test_binaries};
use crate::cell::Cell;
use crate::paths;
use crate::vm::Userland;

/// The tests to run, by crate and prefix of the name. The others measure time and allocations, or
/// start programs of their own, which valgrind does not follow.
const MODULES: [(&str, &str); 4] = [
    ("engine", "over_libfabric::"),
    ("engine", "rails_fabric::"),
    ("fabric", "over_providers::"),
    ("fabric", "query::"),
];

/// The tests of the suites that run in CI: posting, completing, granting and returning memory.
const CHOSEN: [&str; 7] = [
    "::messages_arrive",
    "pages_arrive",
    "pages_are_read",
    "comes_back",
    "a_message_arrives",
    "has_landed",
    "brings_the_peers",
];

/// Tests that never run under memcheck, with the reason.
const LEFT_OUT: [(&str, &str); 2] = [
    (
        "shm::a_write_under_way_ends_with_its_region",
        "closes a region during a write, and libfabric's shm continues to read the freed region",
    ),
    (
        "over_tls::",
        "encrypts with the assembly code of ring, which memcheck does not follow: it takes sent bytes \
         for uninitialised. The same tests run without TLS",
    ),
];

/// `cargo xtask memcheck`
#[derive(Debug, Default, clap::Args)]
pub(crate) struct MemcheckArgs {
    /// Run every test of these programs, not only those that CI runs. It takes an hour on a busy
    /// machine.
    #[arg(long, conflicts_with = "filter")]
    all: bool,

    /// Run only the tests whose names contain this.
    filter: Option<String>,
}

pub(crate) fn execute(args: &MemcheckArgs) -> Result<()> {
    let programs = programs(args)?;
    let mut failed = Vec::new();
    for userland in Userland::BOTH {
        let root = userland.root().get()?;
        let cell = Cell::new(&root.path)?;
        for program in &programs {
            println!("── {} under memcheck, with the libraries of {}", program.binary.name(), root.origin);
            let started = Instant::now();
            if !run(&cell, program)? {
                failed.push(format!("{} with {}", program.binary.name(), root.origin));
            }
            println!("{} tests in {:.0} s", program.tests.len(), started.elapsed().as_secs_f32());
        }
    }
    for (test, reason) in LEFT_OUT {
        println!("skipped: {test}…, because it {reason}");
    }
    if !failed.is_empty() {
        bail!("memcheck found errors in {}", failed.join(", "));
    }
    Ok(())
}

/// Returns the programs with such tests, and the tests that were requested.
fn programs(args: &MemcheckArgs) -> Result<Vec<Program>> {
    let binaries = test_binaries(Tier::Library)?;
    let mut programs = Vec::new();
    for (krate, module) in MODULES {
        let binary = binaries.iter().find(|it| it.krate == krate && it.target == "library");
        let Program { binary, mut tests } = Program::ignored_of(
            binary.with_context(|| format!("{krate} has no test program for a library"))?.clone(),
        )?;
        ensure!(tests.iter().any(|test| test.starts_with(module)), "{} has no {module}", binary.name());
        tests.retain(|test| test.starts_with(module) && args.wants(test));
        if !tests.is_empty() {
            programs.push(Program { binary, tests });
        }
    }
    ensure!(!programs.is_empty(), "no test matches this name");
    Ok(programs)
}

impl MemcheckArgs {
    /// Returns the filters for libtest: names that contain one of these, or all if there is none.
    fn filters(&self) -> Vec<&str> {
        match &self.filter {
            Some(filter) => vec![filter],
            None if self.all => Vec::new(),
            None => CHOSEN.to_vec(),
        }
    }

    fn wants(&self, test: &str) -> bool {
        let filters = self.filters();
        let is_left_out = LEFT_OUT.iter().any(|(name, _)| test.contains(name));
        !is_left_out && (filters.is_empty() || filters.iter().any(|filter| test.contains(filter)))
    }
}

/// Runs the tests. Returns whether they passed and memcheck found nothing.
fn run(cell: &Cell, program: &Program) -> Result<bool> {
    let suppressions = paths::repository().join("xtask/src/memcheck.supp");
    let suppressions = format!("--suppressions={}", suppressions.display());
    // Fair scheduling, because polling threads would leave no time to the threads that they wait
    // for.
    let mut words = vec!["valgrind", "--quiet", "--error-exitcode=9", "--fair-sched=yes", &suppressions];
    words.extend([program.binary.path()?, "--ignored", "--test-threads=1"]);
    words.extend(exactly(&program.tests));
    Ok(cell.command(&program.binary.directory, &words).status()?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_a_part_of_all_and_never_what_is_left_out() {
        let part = MemcheckArgs::default();
        let all = MemcheckArgs { all: true, filter: None };
        assert!(part.wants("tcp::pages_arrive_where_the_map_says"));
        assert!(!part.wants("tcp::rights_are_kept") && all.wants("tcp::rights_are_kept"));
        let left_out = format!("{}_where_the_profile_says_so", LEFT_OUT[0].0);
        assert!(!part.wants(&left_out) && !all.wants(&left_out));
    }
}
