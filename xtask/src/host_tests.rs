//! Tests on this machine that need no RDMA kernel. Tests that need a library run in roots with each
//! generation of it, so that this machine is not changed.

use anyhow::{Result, ensure};

use crate::attempts::{ALLOW_UNSTABLE, Program, REPORT_TIME, Tally};
use crate::bench::bare;
use crate::binaries::{ATTACKS, TestBinary, Tier, build_dist_example, test_binaries};
use crate::cell::Cell;
use crate::paths;
use crate::process::{command, run};
use crate::vm::Userland;

/// `cargo xtask test`
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TestArgs {
    /// Run only the tests that need no library.
    #[arg(long)]
    host: bool,

    /// Run only the tests that need libfabric or rdma-core.
    #[arg(long, conflicts_with = "host")]
    libraries: bool,

    /// Run the library tests with this generation of the libraries only.
    #[arg(long, value_enum, conflicts_with = "host")]
    with: Option<Userland>,

    /// Run the test of 64 clients, the table of ends and the last messages for minutes instead of
    /// seconds.
    #[arg(long, conflicts_with = "host")]
    long: bool,

    /// With the older libraries, skip the programs whose tests hardly depend on them.
    #[arg(long, conflicts_with_all = ["host", "long"])]
    short: bool,

    /// Print the durations of the slowest library tests.
    #[arg(long, conflicts_with = "host")]
    times: bool,
}

/// Runs the tests of the workspace, then the library tests with each generation.
pub(crate) fn execute(args: &TestArgs) -> Result<()> {
    if !args.libraries {
        workspace()?;
    }
    if args.host {
        return Ok(());
    }
    libraries(args)?;
    say_what_waits()
}

/// Runs the tests that need only this machine.
fn workspace() -> Result<()> {
    let mut tests = command("cargo", ["test", "--workspace", "--all-features"]);
    // Many of them wait most of the time: for programs, timeouts and stopped processes.
    tests.env("RUST_TEST_THREADS", "4");
    run(tests.current_dir(paths::repository()))
}

/// Prints the number of device tests, which cannot run here, so that their absence is not taken for
/// a pass.
fn say_what_waits() -> Result<()> {
    let mut waiting = 0;
    for binary in test_binaries(Tier::Device)? {
        waiting += binary.ignored()?.len();
    }
    println!("{waiting} device tests were not run: `cargo xtask vm test` runs them");
    Ok(())
}

/// Runs the test programs named `library`, whose tests are ignored by default because a library may
/// be missing.
fn libraries(args: &TestArgs) -> Result<()> {
    let mut programs: Vec<Program> =
        test_binaries(Tier::Library)?.into_iter().map(Program::ignored_of).collect::<Result<_>>()?;
    // `cargo xtask soundness` runs these, also with both generations.
    programs.iter_mut().for_each(|program| program.tests.retain(|test| !test.starts_with(ATTACKS)));
    let is_there = |name: &&str| programs.iter().any(|program| program.binary.name() == **name);
    ensure!(LEFT_OUT.iter().all(is_there), "{LEFT_OUT:?} names a program that does not exist");
    let chosen = || Userland::BOTH.into_iter().filter(|it| args.with.is_none_or(|with| with == *it));
    let leaves_out = |userland| args.short && userland == Userland::Debian12;
    // They take minutes to build, and the programs that are left out use them.
    if !chosen().all(leaves_out) {
        build_dist_example("farreach-fabric", "fabric_cost")?;
        build_dist_example("farreach", "paged")?;
        build_dist_example("farreach", "within_host")?;
        build_dist_example("farreach-sim", "growth")?;
    }
    let mut failed = Vec::new();
    for userland in chosen() {
        let (mut cell, origin) = cell_with_libraries(userland)?;
        let mut more: &[&str] = &[];
        if args.long {
            cell.set("FARREACH_CROWD_SECONDS", "60");
            cell.set("FARREACH_TABLE_SECONDS", "200");
            cell.set("FARREACH_LAST_MESSAGES", "1000");
        }
        if args.times {
            cell.set(ALLOW_UNSTABLE.0, ALLOW_UNSTABLE.1);
            more = &REPORT_TIME;
        }
        println!("── with the libraries of {origin}");
        let (mut tally, mut expected) = (Tally::default(), 0);
        for Program { binary, tests } in &programs {
            if leaves_out(userland) && LEFT_OUT.contains(&binary.name().as_str()) {
                println!(
                    "{}: {} tests skipped; they run with the newest libraries",
                    binary.name(),
                    tests.len()
                );
                continue;
            }
            expected += tests.len();
            let path = binary.path()?;
            tally.run(&binary.name(), tests, |chosen| {
                let words = [&[path, "--ignored", threads(binary)], more, chosen].concat();
                Ok(cell.command(&binary.directory, &words))
            })?;
        }
        if let Err(error) = tally.close("library", expected) {
            failed.push(format!("with {origin}: {error}"));
        }
    }
    ensure!(failed.is_empty(), "library tests {}", failed.join("; "));
    Ok(())
}

/// The programs that `--short` skips with the older libraries: costs, and output of the command.
/// The differences between the generations are covered by the suites of `fabric` and `engine`.
const LEFT_OUT: [&str; 4] =
    ["cli/library", "engine/library_costs", "engine/library_scale", "fabric/library_costs"];

/// Returns the number of tests of a program that run at the same time, as an option of libtest.
pub(crate) fn threads(binary: &TestBinary) -> &'static str {
    match binary.krate.as_str() {
        // They start processes, and wait most of the time.
        "cli" => "--test-threads=6",
        _ => "--test-threads=2",
    }
}

/// Returns a cell with one generation of the libraries and the bare programs that tests compare
/// with, and the origin of the libraries.
pub(crate) fn cell_with_libraries(userland: Userland) -> Result<(Cell, String)> {
    let root = userland.root().get()?;
    let mut cell = Cell::new(&root.path)?;
    // Two generations may be tested at the same time; separate networks keep their ports apart.
    cell.own_network()?;
    cell.set("FARREACH_BARE", &bare::build(userland)?.display().to_string());
    Ok((cell, root.origin))
}
