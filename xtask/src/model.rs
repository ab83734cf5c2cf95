//! Models: what threads share without a lock, run in every order of the threads and with every value that a load may see.

use std::process::Command;

use anyhow::{Result, ensure};

use crate::paths;
use crate::process::{command, output};

/// The models of one crate.
struct Models {
    package: &'static str,
    /// How their names begin, among the tests of the library.
    prefixes: &'static [&'static str],
}

const MODELS: &[Models] = &[
    Models { package: "farreach-verbs", prefixes: &["qp::model::"] },
    Models { package: "farreach-fabric", prefixes: &["ep::model::"] },
    Models { package: "farreach", prefixes: &["control::model::", "helm::model::"] },
];

/// Runs every model.
pub(crate) fn execute() -> Result<()> {
    let mut count = 0;
    for Models { package, prefixes } in MODELS {
        let words = ["test", "--package", package, "--lib", "--"];
        let mut cargo = command("cargo", words);
        let told = output(for_models(cargo.args(*prefixes).current_dir(paths::repository())))?;
        let models: Vec<_> = told.lines().filter(|line| line.ends_with(" ... ok")).collect();
        for prefix in *prefixes {
            let is_there = models.iter().any(|model| model.contains(prefix));
            ensure!(is_there, "{package} has no model whose name begins with {prefix}");
        }
        println!("{}", models.join("\n"));
        count += models.len();
    }
    println!("models: {count} hold");
    Ok(())
}

/// Whether a test of a library is a model.
pub(crate) fn is_model(test: &str) -> bool {
    MODELS.iter().flat_map(|models| models.prefixes).any(|prefix| test.starts_with(prefix))
}

/// Lets cargo build for a model, apart from what is built without.
pub(crate) fn for_models(cargo: &mut Command) -> &mut Command {
    cargo
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", paths::target().join("model"))
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
}
