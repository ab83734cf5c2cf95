//! Checks of the source that run no test: format, lints, house rules, licences, documentation.

use std::io::ErrorKind;

use anyhow::{Context, Result, bail};

use crate::process::{command, output, run};
use crate::{licences, paths, tidy};

/// `cargo xtask check`
#[derive(Debug, Default, clap::Args)]
pub(crate) struct CheckArgs {
    /// Also lint the crates without optional features.
    #[arg(long)]
    all: bool,
}

/// Runs every check. Stops at the first failure.
pub(crate) fn execute(args: &CheckArgs) -> Result<()> {
    quick()?;
    if args.all {
        // The crate as a program without any feature links it.
        let without = ["--package", "farreach", "--no-default-features", "--all-targets"];
        cargo(&[&["clippy", "--quiet"], &without[..], &["--", "-D", "warnings"]].concat())?;
        let fuzz = ["--manifest-path", "fuzz/Cargo.toml", "--all-targets"];
        run(command("cargo", ["clippy", "--quiet"])
            .args(fuzz)
            .args(["--", "-D", "warnings"])
            .current_dir(paths::repository())
            .env("CARGO_TARGET_DIR", paths::target()))?;
    }
    documentation()
}

/// Runs the checks that precede each commit: format, lints, house rules, licences.
pub(crate) fn quick() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    // It is not a member of the workspace.
    cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])?;
    white_space()?;
    tidy::run()?;
    licences::check()?;
    unit()?;
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
}

/// White space at the end of a line or file, and merge conflicts that were left over. git looks for them in a difference: here, in that to nothing.
fn white_space() -> Result<()> {
    let root = paths::repository();
    let nothing = output(command("git", ["hash-object", "-t", "tree", "/dev/null"]).current_dir(root))?;
    run(command("git", ["diff", "--check", nothing.trim()]).current_dir(root))
}

/// The highest exposure of the systemd unit, in tenths.
const EXPOSURE_MAX: &str = "20";

/// Has systemd rate the unit, if it is installed. `tidy` compares the unit's directives in any case.
fn unit() -> Result<()> {
    let mut analyze = command("systemd-analyze", ["security", "--offline=true", "--no-pager"]);
    analyze.args(["--threshold", EXPOSURE_MAX, "dist/farreach.service"]).current_dir(paths::repository());
    match analyze.output() {
        Ok(rated) if rated.status.success() => Ok(()),
        Ok(rated) => bail!(
            "the exposure of dist/farreach.service is above {EXPOSURE_MAX} tenths, or systemd cannot read it:\n{}{}",
            String::from_utf8_lossy(&rated.stdout),
            String::from_utf8_lossy(&rated.stderr)
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("systemd-analyze is not installed: the exposure of the systemd unit was not rated");
            Ok(())
        }
        Err(error) => Err(error).context("cannot start systemd-analyze"),
    }
}

fn documentation() -> Result<()> {
    run(command("cargo", ["doc", "--quiet", "--workspace", "--all-features", "--no-deps"])
        .current_dir(paths::repository())
        .env("RUSTDOCFLAGS", "-D warnings"))
}

fn cargo(words: &[&str]) -> Result<()> {
    run(command("cargo", words).current_dir(paths::repository()))
}
