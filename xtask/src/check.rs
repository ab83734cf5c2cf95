//! What can be said of the source without running it: format, lints, documentation, house rules, licences.

use anyhow::{Context, Result};

use crate::process::{command, run};
use crate::{paths, tidy};

/// Runs every check; the first one that fails ends it.
pub(crate) fn execute() -> Result<()> {
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"])?;
    // As it is linked by who asks for nothing more.
    cargo(&["clippy", "--quiet", "--package", "farreach", "--all-targets", "--", "-D", "warnings"])?;
    run(command("cargo", ["doc", "--quiet", "--workspace", "--all-features", "--no-deps"])
        .current_dir(paths::repository())
        .env("RUSTDOCFLAGS", "-D warnings"))?;
    tidy::run()?;
    deny()
}

/// Licences, sources and banned crates. The advisory database is a download that not every machine can make, so it is
/// not part of this.
fn deny() -> Result<()> {
    cargo(&["deny", "--log-level", "error", "check", "bans", "licenses", "sources"])
        .context("is cargo-deny installed? `cargo install --locked cargo-deny`")
}

fn cargo(words: &[&str]) -> Result<()> {
    run(command("cargo", words).current_dir(paths::repository()))
}
