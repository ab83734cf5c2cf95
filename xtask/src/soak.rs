//! `cargo xtask soak`: kills and stops processes at random instants, next to an engine that serves
//! steady peers. The program is the engine's example `soak`; this task builds and runs it.

use anyhow::{Context, Result, ensure};

use crate::paths;
use crate::process::{command, run};

/// `cargo xtask soak`
#[derive(Debug, clap::Args)]
pub(crate) struct SoakArgs {
    /// The rail.
    #[arg(default_value = "shm")]
    rail: String,

    /// The number of SIGKILLs, and of SIGSTOPs. Forty of each take about half a minute.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    faults: u32,

    /// The seed of an earlier run, to make the same faults.
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

/// Runs it. Returns an error if something was lost, wrong or left behind, or if the steady peers were
/// slowed down.
pub(crate) fn execute(args: &SoakArgs) -> Result<()> {
    // As fast as what is shipped, and with the checks that turn an overflow into a panic.
    let words = [
        "build",
        "--quiet",
        "--profile",
        "sim",
        "--package",
        "farreach",
        "--example",
        "soak",
        "--example",
        "node",
    ];
    run(command("cargo", words).current_dir(paths::repository()))?;
    let program = paths::target().join("sim/examples/soak");
    let program = program.to_str().context("the path is not valid UTF-8")?;
    let mut soak = command(program, [format!("rails={}", args.rail)]);
    soak.arg(format!("faults={}", args.faults)).args(args.seed.map(|seed| format!("seed={seed}")));
    ensure!(soak.status()?.success(), "the soak failed; its first line has the seed");
    Ok(())
}
