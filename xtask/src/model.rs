//! Loom models of lock-free code: they run in every thread interleaving, with every value that a
//! load may return.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::held::{self, Held};
use crate::paths;
use crate::process::{command, output};

/// `cargo xtask model`
#[derive(Debug, clap::Args)]
pub(crate) struct ModelArgs {
    /// Run only the models of crates whose modelled files have changed since the models last held.
    #[arg(long)]
    changed: bool,

    /// Record that the models hold. The list that it writes belongs in the commit.
    #[arg(long, conflicts_with = "changed")]
    record: bool,
}

/// The models of one crate.
struct Models {
    package: &'static str,
    /// The prefixes of their names among the tests of the library.
    prefixes: &'static [&'static str],
    /// The folders with the models and the modelled code.
    folders: &'static [&'static str],
}

const MODELS: &[Models] = &[
    Models { package: "farreach-verbs", prefixes: &["qp::model::"], folders: &["crates/verbs/src/qp"] },
    Models { package: "farreach-fabric", prefixes: &["ep::model::"], folders: &["crates/fabric/src/ep"] },
    Models {
        package: "farreach",
        prefixes: &["control::model::", "progress::model::"],
        folders: &["crates/engine/src/control", "crates/engine/src/progress"],
    },
    Models { package: "farreach-shm", prefixes: &["model::"], folders: &["crates/shm/src"] },
];

/// The list of files with which the models held.
const HELD: &str = "xtask/src/model-held.txt";

const HELD_HEADER: &str = "\
# Fingerprints of the files whose models hold, written by `cargo xtask model --record`.
# `cargo xtask model --changed` runs the models of crates whose fingerprint is not listed.
";

/// Runs the models.
pub(crate) fn execute(args: &ModelArgs) -> Result<()> {
    let repository = paths::repository();
    let (mut count, mut held) = (0, Held::open(repository, HELD, HELD_HEADER));
    for models in MODELS {
        let entry = held::entry(repository, models.package, models.folders)?;
        if args.changed && held.has(&entry) {
            println!("{}: unchanged since its models last held", models.package);
            continue;
        }
        count += models.run()?;
        held.note(&entry);
    }
    println!("models: {count} hold");
    if args.record { held.write() } else { Ok(()) }
}

impl Models {
    /// Runs the models. Returns how many hold.
    fn run(&self) -> Result<usize> {
        let Self { package, prefixes, .. } = self;
        // No model needs TLS, and its cryptography takes a while to build.
        let words = ["test", "--package", package, "--no-default-features", "--lib", "--"];
        let mut cargo = command("cargo", words);
        cargo.args(*prefixes).current_dir(paths::repository());
        let told = output(for_models(&mut cargo, &paths::target().join("model")))?;
        let models: Vec<_> = told.lines().filter(|line| line.ends_with(" ... ok")).collect();
        for prefix in *prefixes {
            let is_there = models.iter().any(|model| model.contains(prefix));
            ensure!(is_there, "{package} has no model whose name begins with {prefix}");
        }
        println!("{}", models.join("\n"));
        Ok(models.len())
    }
}

/// Returns whether a test of a library is a model.
pub(crate) fn is_model(test: &str) -> bool {
    MODELS.iter().flat_map(|models| models.prefixes).any(|prefix| test.starts_with(prefix))
}

/// Configures cargo to build for a model, in a build folder for these sources only: if a folder is
/// shared, cargo takes a mutant's program for that of the repository.
pub(crate) fn for_models<'cargo>(cargo: &'cargo mut Command, build: &Path) -> &'cargo mut Command {
    cargo.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", build).env("CARGO_PROFILE_DEV_DEBUG", "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_modelled_is_there() {
        for models in MODELS {
            held::entry(paths::repository(), models.package, models.folders).unwrap();
        }
    }
}
