//! Models: what threads share without a lock, run in every order of the threads and with every value that a load may see.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::held::{self, Held};
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
        prefixes: &["control::model::", "progress::model::"],
        folders: &["crates/engine/src/control", "crates/engine/src/progress"],
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
    let (mut count, mut held) = (0, Held::open(repository, HELD, HELD_HEADER));
    for models in MODELS {
        let entry = held::entry(repository, models.package, models.folders)?;
        if args.changed && held.has(&entry) {
            println!("{}: its files are those that its models were seen to hold with", models.package);
            continue;
        }
        count += models.run()?;
        held.note(&entry);
    }
    println!("models: {count} hold");
    if args.record { held.write() } else { Ok(()) }
}

impl Models {
    /// Runs them; how many hold.
    fn run(&self) -> Result<usize> {
        let Self { package, prefixes, .. } = self;
        let words = ["test", "--package", package, "--lib", "--"];
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

/// Whether a test of a library is a model.
pub(crate) fn is_model(test: &str) -> bool {
    MODELS.iter().flat_map(|models| models.prefixes).any(|prefix| test.starts_with(prefix))
}

/// Lets cargo build for a model, in a folder apart from what is built without, and from what is built of other sources: cargo takes a mutant's program
/// for that of the repository where it finds one.
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
