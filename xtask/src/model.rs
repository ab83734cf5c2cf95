//! Models: what threads share without a lock, run in every order of the threads and with every value that a load may see.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::fingerprint;
use crate::paths;
use crate::process::{command, output};

/// `cargo xtask model`
#[derive(Debug, clap::Args)]
pub(crate) struct ModelArgs {
    /// Run only the models of crates whose modelled files have changed since they were last seen to hold.
    #[arg(long)]
    changed: bool,

    /// Note that they hold: the list that it writes belongs into the commit.
    #[arg(long, conflicts_with = "changed")]
    record: bool,
}

/// The models of one crate.
struct Models {
    package: &'static str,
    /// How their names begin, among the tests of the library.
    prefixes: &'static [&'static str],
    /// The folders with the models and with what they model.
    folders: &'static [&'static str],
}

const MODELS: &[Models] = &[
    Models { package: "farreach-verbs", prefixes: &["qp::model::"], folders: &["crates/verbs/src/qp"] },
    Models { package: "farreach-fabric", prefixes: &["ep::model::"], folders: &["crates/fabric/src/ep"] },
    Models {
        package: "farreach",
        prefixes: &["control::model::", "helm::model::"],
        folders: &["crates/engine/src/control", "crates/engine/src/helm"],
    },
];

/// Where it is noted which files the models were seen to hold with.
const HELD: &str = "xtask/src/model-held.txt";

const HELD_HEADER: &str = "\
# Fingerprints of the files whose models hold, written by `cargo xtask model --record`.
# A crate whose fingerprint is not here is run by `cargo xtask model --changed`.
";

/// Runs the models.
pub(crate) fn execute(args: &ModelArgs) -> Result<()> {
    let repository = paths::repository();
    let held = fs::read_to_string(repository.join(HELD)).unwrap_or_default();
    let (mut count, mut record) = (0, HELD_HEADER.to_owned());
    for models in MODELS {
        let entry = models.entry(repository)?;
        if args.changed && held.lines().any(|line| line == entry) {
            println!("{}: its files are those that its models were seen to hold with", models.package);
            continue;
        }
        count += models.run()?;
        record.push_str(&format!("{entry}\n"));
    }
    println!("models: {count} hold");
    if args.record {
        fs::write(repository.join(HELD), record).with_context(|| format!("cannot write {HELD}"))?;
    }
    Ok(())
}

impl Models {
    /// The line that says that they hold with the files as they are.
    fn entry(&self, repository: &Path) -> Result<String> {
        let files: Vec<_> =
            self.folders.iter().flat_map(|folder| fingerprint::files_in(&repository.join(folder))).collect();
        ensure!(!files.is_empty(), "{:?} have no files", self.folders);
        Ok(format!("{} {}", fingerprint::of(&[], &files)?, self.package))
    }

    /// Runs them; how many hold.
    fn run(&self) -> Result<usize> {
        let Self { package, prefixes, .. } = self;
        let words = ["test", "--package", package, "--lib", "--"];
        let mut cargo = command("cargo", words);
        let told = output(for_models(cargo.args(*prefixes).current_dir(paths::repository())))?;
        let models: Vec<_> = told.lines().filter(|line| line.ends_with(" ... ok")).collect();
        for prefix in *prefixes {
            let is_there = models.iter().any(|model| model.contains(prefix));
            ensure!(is_there, "{package} has no model whose name begins with {prefix}");
        }
        println!("{}", models.join("\n"));
        Ok(models.len())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_modelled_file_changes_the_entry() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("crates/verbs/src/qp");
        fs::create_dir_all(&source).unwrap();
        assert!(MODELS[0].entry(folder.path()).is_err(), "there is nothing to model");
        fs::write(source.join("ring.rs"), "a").unwrap();
        let before = MODELS[0].entry(folder.path()).unwrap();
        fs::write(source.join("ring.rs"), "b").unwrap();
        assert_ne!(MODELS[0].entry(folder.path()).unwrap(), before);
        for models in MODELS {
            models.entry(paths::repository()).unwrap();
        }
    }
}
