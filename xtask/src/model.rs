//! Models: what threads share without a lock, run in every order of the threads and with every value that a load may see.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::paths;
use crate::process::{command, output};

/// How the names of models begin, among the tests of `verbs`.
pub(crate) const MODELS: &str = "qp::model::";

/// Runs every model.
pub(crate) fn execute() -> Result<()> {
    let words = ["test", "--package", "farreach-verbs", "--lib", MODELS];
    let told = output(for_models(command("cargo", words).current_dir(paths::repository())))?;
    let models: Vec<_> = told.lines().filter(|line| line.ends_with(" ... ok")).collect();
    ensure!(!models.is_empty(), "there is no model");
    println!("{}\nmodels: {} hold", models.join("\n"), models.len());
    Ok(())
}

/// Lets cargo build for a model, apart from what is built without.
pub(crate) fn for_models(cargo: &mut Command) -> &mut Command {
    cargo
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", paths::target().join("model"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
}
