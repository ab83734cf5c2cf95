//! Checks of the source that run no test: format, lints, house rules, licences, documentation.

use anyhow::Result;

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
    }
    documentation()
}

/// Runs the checks that precede each commit: format, lints, house rules, licences.
pub(crate) fn quick() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    white_space()?;
    tidy::run()?;
    licences::check()?;
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])
}

/// White space at the end of a line or file, and merge conflicts that were left over. git looks for them in a difference: here, in that to nothing.
fn white_space() -> Result<()> {
    let root = paths::repository();
    let nothing = output(command("git", ["hash-object", "-t", "tree", "/dev/null"]).current_dir(root))?;
    run(command("git", ["diff", "--check", nothing.trim()]).current_dir(root))
}

fn documentation() -> Result<()> {
    run(command("cargo", ["doc", "--quiet", "--workspace", "--all-features", "--no-deps"])
        .current_dir(paths::repository())
        .env("RUSTDOCFLAGS", "-D warnings"))
}

fn cargo(words: &[&str]) -> Result<()> {
    run(command("cargo", words).current_dir(paths::repository()))
}
