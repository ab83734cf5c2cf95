//! Tests on this machine: all that need no RDMA kernel. Those that need an engine's library run in roots that have it,
//! one for each generation, so that the machine itself stays as it is.

use anyhow::{Result, ensure};

use crate::attempts::Tally;
use crate::bench::bare;
use crate::binaries::{build_release_example, test_binaries};
use crate::cell::Cell;
use crate::paths;
use crate::process::{command, run};
use crate::vm::Userland;

/// `cargo xtask test`
#[derive(Debug, Default, clap::Args)]
pub(crate) struct TestArgs {
    /// Only those that need an engine's library.
    #[arg(long)]
    engines: bool,
}

/// Runs the workspace's tests, then the engine tests with each generation of the libraries.
pub(crate) fn execute(args: &TestArgs) -> Result<()> {
    if !args.engines {
        workspace()?;
    }
    engines()?;
    say_what_waits()
}

/// The tests that need nothing but this machine.
pub(crate) fn workspace() -> Result<()> {
    run(command("cargo", ["test", "--workspace", "--all-features"]).current_dir(paths::repository()))
}

/// Device tests are counted where they cannot run, so that nobody takes their silence for a pass.
fn say_what_waits() -> Result<()> {
    let mut waiting = 0;
    for binary in test_binaries("device_")? {
        waiting += binary.ignored()?.len();
    }
    println!("{waiting} device tests were not run here: `cargo xtask vm test` runs them");
    Ok(())
}

/// The test programs named `engine_…`, whose tests are ignored where a library may be missing.
fn engines() -> Result<()> {
    let binaries = test_binaries("engine_")?;
    let mut expected = 0;
    for binary in &binaries {
        let tests = binary.ignored()?.len();
        ensure!(tests > 0, "{} has no test that waits for a library", binary.name);
        expected += tests;
    }
    build_release_example("farreach-fabric", "fabric_cost")?;
    build_release_example("farreach", "paged")?;
    let mut failed = Vec::new();
    for userland in [Userland::Debian12, Userland::Newest] {
        let root = userland.root().get()?;
        let mut cell = Cell::new(&root.path)?;
        cell.set("FARREACH_BARE", &bare::build(userland)?.display().to_string());
        println!("── with the libraries of {}", root.origin);
        let mut tally = Tally::default();
        for binary in &binaries {
            let path = binary.path()?;
            tally.run(&binary.name, |more| {
                cell.command(&binary.directory, &[&[path, "--ignored"], more].concat())
            })?;
        }
        if let Err(error) = tally.close("engine", expected) {
            failed.push(format!("with {}: {error}", root.origin));
        }
    }
    ensure!(failed.is_empty(), "engine tests {}", failed.join("; "));
    Ok(())
}
