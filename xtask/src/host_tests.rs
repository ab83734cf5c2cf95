//! Tests on this machine: all that need no RDMA kernel. Those that need an engine's library run in roots that have it,
//! one for each generation, so that the machine itself stays as it is.

use anyhow::{Result, bail, ensure};

use crate::bench::bare;
use crate::binaries::{build_release_example, test_binaries};
use crate::cell::Cell;
use crate::paths;
use crate::process::{command, run};
use crate::vm::Userland;

/// Runs the workspace's tests, then the engine tests with each generation of the libraries.
pub(crate) fn execute() -> Result<()> {
    run(command("cargo", ["test", "--workspace", "--all-features"]).current_dir(paths::repository()))?;
    engines()?;
    say_what_waits()
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
    for binary in &binaries {
        ensure!(!binary.ignored()?.is_empty(), "{} has no test that waits for a library", binary.name);
    }
    build_release_example("farreach-fabric", "fabric_cost")?;
    build_release_example("farreach", "paged")?;
    let mut failed = Vec::new();
    for userland in [Userland::Debian12, Userland::Newest] {
        let root = userland.root().get()?;
        let mut cell = Cell::new(&root.path)?;
        cell.set("FARREACH_BARE", &bare::build(userland)?.display().to_string());
        for binary in &binaries {
            println!("── {} with the libraries of {}", binary.name, root.origin);
            let mut test = cell.command(&binary.directory, &[binary.path()?, "--ignored"]);
            if !test.status()?.success() {
                failed.push(format!("{} with {}", binary.name, root.origin));
            }
        }
    }
    if !failed.is_empty() {
        bail!("engine tests failed: {}", failed.join("; "));
    }
    Ok(())
}
