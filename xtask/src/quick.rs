//! `cargo xtask quick`: the checks for each commit. It takes minutes on a small machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::attempts::Attempt;
use crate::binaries::{TestBinary, Tier, all_test_binaries};
use crate::process::{command, output};
use crate::{check, paths, sim};

/// The time for simulated histories, in seconds.
const SIM_SECONDS: u64 = 10;

/// `cargo xtask quick`
#[derive(Debug, clap::Args)]
pub(crate) struct QuickArgs {
    /// Run the host tests of the crates that differ from this commit, and of the crates that depend
    /// on them. The default is the last commit or, if nothing differs from it, the one before.
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
}

/// Runs format, lints, house rules, unit tests, the host tests that the change can break, and some
/// simulated histories.
pub(crate) fn execute(args: &QuickArgs) -> Result<()> {
    let started = Instant::now();
    let workspace = Workspace::read()?;
    let changed = changed_files(args.since.as_deref())?;
    let crates = workspace.touched_by(&changed);
    timed("format, tidy, licences, clippy", check::quick)?;
    let mut binaries = Vec::new();
    timed("build of the tests", || {
        binaries = all_test_binaries()?;
        Ok(())
    })?;
    timed("unit tests", || run_all(binaries.iter().filter(|it| !it.is_integration_test())))?;
    let touched =
        |it: &&TestBinary| it.tier == Tier::Host && it.is_integration_test() && crates.contains(&it.krate);
    let names: Vec<_> = binaries.iter().filter(touched).map(TestBinary::name).collect();
    match names.is_empty() {
        true => println!("no crate with host tests has changed"),
        false => timed(&names.join(", "), || run_all(binaries.iter().filter(touched)))?,
    }
    timed("simulation", || sim::for_a_while(SIM_SECONDS))?;
    println!("═══ quick passed in {:.0} s", started.elapsed().as_secs_f32());
    Ok(())
}

fn timed(what: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("═══ {what}");
    let started = Instant::now();
    step().with_context(|| format!("failed: {what}"))?;
    println!("    {:.0} s", started.elapsed().as_secs_f32());
    Ok(())
}

fn run_all<'a>(binaries: impl Iterator<Item = &'a TestBinary>) -> Result<()> {
    let mut failed = Vec::new();
    for binary in binaries {
        let attempt = Attempt::make(binary.command()?)?;
        let last = attempt.said.lines().rev().find(|line| line.starts_with("test result: "));
        println!("{}: {}", binary.name(), last.unwrap_or(&attempt.ended));
        if !attempt.is_success {
            println!("{}", attempt.said);
            failed.push(binary.name());
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// Returns the files that differ from a commit, including new ones, relative to the repository.
fn changed_files(since: Option<&str>) -> Result<Vec<String>> {
    let git = |words: &[&str]| -> Result<Vec<String>> {
        let told = output(command("git", words).current_dir(paths::repository()))?;
        Ok(told.lines().map(ToOwned::to_owned).collect())
    };
    let mut changed = git(&["diff", "--name-only", since.unwrap_or("HEAD")])?;
    changed.extend(git(&["ls-files", "--others", "--exclude-standard"])?);
    if changed.is_empty() && since.is_none() {
        return git(&["diff", "--name-only", "HEAD~1"]);
    }
    Ok(changed)
}

/// The crates of this workspace, from `cargo metadata`.
#[derive(Debug, Deserialize)]
struct Workspace {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
}

impl Workspace {
    fn read() -> Result<Self> {
        let words = ["metadata", "--format-version=1", "--no-deps", "--locked"];
        Ok(serde_json::from_str(&output(command("cargo", words).current_dir(paths::repository()))?)?)
    }

    /// Returns the folders of the crates that a change of these files can break: the crates that
    /// contain one, and all crates that depend on them.
    fn touched_by(&self, files: &[String]) -> BTreeSet<String> {
        // Files of the whole workspace can break any crate.
        let is_common = files.iter().any(|file| ["Cargo.toml", "Cargo.lock"].contains(&file.as_str()));
        let holds_one = |package: &&Package| {
            files.iter().any(|file| paths::repository().join(file).starts_with(package.folder()))
        };
        let mut touched: BTreeSet<&str> =
            self.packages.iter().filter(|it| is_common || holds_one(it)).map(|it| it.name.as_str()).collect();
        loop {
            let before = touched.len();
            for package in &self.packages {
                if package.dependencies.iter().any(|it| touched.contains(it.name.as_str())) {
                    touched.insert(&package.name);
                }
            }
            if touched.len() == before {
                break;
            }
        }
        let folders =
            self.packages.iter().filter(|it| touched.contains(it.name.as_str())).map(Package::folder);
        folders.filter_map(|folder| Some(folder.file_name()?.to_str()?.to_owned())).collect()
    }
}

impl Package {
    fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(&self.manifest_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(files: &[&str]) -> Vec<String> {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        Workspace::read().unwrap().touched_by(&files).into_iter().collect()
    }

    #[test]
    fn a_change_touches_its_crate_and_all_that_depend_on_it() {
        assert_eq!(touched(&["crates/cli/src/main.rs"]), ["cli"]);
        let by_memory = touched(&["crates/memory/src/lib.rs"]);
        for name in ["engine", "cli", "examples", "fabric", "memory", "verbs"] {
            assert!(by_memory.contains(&name.to_owned()), "{by_memory:?}");
        }
        assert!(!by_memory.contains(&"proto".to_owned()), "{by_memory:?}");
    }

    #[test]
    fn what_is_of_no_crate_touches_none_and_what_is_of_all_touches_all() {
        assert_eq!(touched(&["README.md", "docs/GUEST.md"]), Vec::<String>::new());
        assert!(touched(&["Cargo.lock"]).len() > 5);
        assert_eq!(touched(&["Cargo.lock"]), touched(&["Cargo.toml"]));
    }
}
