//! Models: what threads share without a lock, run in every order of the threads and with every value that a load may see.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::paths;
use crate::process::{command, output};

/// The module that models are in, among the tests of a library.
pub(crate) const MODELS: &str = "::model::";

/// The libraries that have some.
const PACKAGES: [&str; 3] = ["farreach-verbs", "farreach-fabric", "farreach"];

/// Runs every model.
pub(crate) fn execute() -> Result<()> {
    let mut count = 0;
    for package in PACKAGES {
        let words = ["test", "--package", package, "--lib", MODELS];
        let told = output(for_models(command("cargo", words).current_dir(paths::repository())))?;
        let models: Vec<_> = told.lines().filter(|line| line.ends_with(" ... ok")).collect();
        ensure!(!models.is_empty(), "{package} has no model");
        println!("{package}\n{}", models.join("\n"));
        count += models.len();
    }
    println!("models: {count} hold");
    Ok(())
}

/// Lets cargo build for a model, apart from what is built without.
pub(crate) fn for_models(cargo: &mut Command) -> &mut Command {
    cargo
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", paths::target().join("model"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
}
