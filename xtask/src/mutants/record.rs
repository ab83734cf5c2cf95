//! The list of caught mutants in the repository, with the fingerprints of their files, so that CI
//! runs only the mutants whose files have changed since.
//!
//! The fingerprint of a mutant covers the file with its guard, the files of its test, and the
//! mutant itself. A change elsewhere that weakens a test is noticed only if all mutants run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Mutant;
use crate::fingerprint;

/// The path of the list, from the top of the repository.
const FILE: &str = "xtask/src/mutants/caught.txt";

const HEADER: &str = "\
# Fingerprints of mutants that their tests have caught, written by `cargo xtask mutants --record`.
# `cargo xtask mutants --changed` runs the mutants whose fingerprint is not listed.
";

/// The mutants that were caught, each with its fingerprint at that time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    fingerprints: BTreeMap<String, String>,
}

impl Record {
    /// Reads the list in the repository.
    pub(super) fn read(repository: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(repository.join(FILE)).with_context(|| format!("cannot read {FILE}"))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let entries = lines.filter_map(|line| line.split_once(' '));
        Self { fingerprints: entries.map(|(print, name)| (name.to_owned(), print.to_owned())).collect() }
    }

    /// Returns whether the mutant was caught with the current files.
    pub(super) fn has(&self, mutant: &Mutant, repository: &Path) -> Result<bool> {
        Ok(self.fingerprints.get(mutant.name) == Some(&fingerprint(mutant, repository)?))
    }

    pub(super) fn add(&mut self, mutant: &Mutant, repository: &Path) -> Result<()> {
        self.fingerprints.insert(mutant.name.to_owned(), fingerprint(mutant, repository)?);
        Ok(())
    }

    /// Writes the list to the repository, without mutants that no longer exist.
    pub(super) fn write(&self, known: &[&Mutant], repository: &Path) -> Result<()> {
        let mut text = HEADER.to_owned();
        for (name, print) in &self.fingerprints {
            if known.iter().any(|mutant| mutant.name == name) {
                text.push_str(&format!("{print} {name}\n"));
            }
        }
        fs::write(repository.join(FILE), text).with_context(|| format!("cannot write {FILE}"))
    }
}

fn fingerprint(mutant: &Mutant, repository: &Path) -> Result<String> {
    let sources = repository.join("crates").join(mutant.program().krate).join("src");
    let mut files = vec![repository.join(mutant.file)];
    files.extend(files_of_test(&sources, mutant.test));
    fingerprint::of(&[mutant.guard, mutant.instead, mutant.test], &files)
}

/// Returns the file of a test, from the modules in its name. If it is the `mod.rs` of a folder,
/// returns all files of the folder.
fn files_of_test(sources: &Path, test: &str) -> Vec<PathBuf> {
    let (mut folder, mut found) = (sources.to_owned(), Vec::new());
    let mut modules: Vec<&str> = test.split("::").collect();
    modules.pop();
    for module in modules {
        let file = folder.join(format!("{module}.rs"));
        folder.push(module);
        if file.is_file() {
            found = vec![file];
        } else if folder.join("mod.rs").is_file() {
            found = fingerprint::files_in(&folder);
        } else {
            // A module within the file.
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::all;
    use super::*;
    use crate::paths;

    #[test]
    fn every_mutant_has_the_files_of_its_test() {
        for mutant in all() {
            let sources = paths::repository().join("crates").join(mutant.program().krate).join("src");
            assert!(!files_of_test(&sources, mutant.test).is_empty(), "{}", mutant.test);
        }
    }

    #[test]
    fn a_change_of_any_of_its_files_or_of_the_mutant_makes_it_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("crates/memory/src");
        fs::create_dir_all(source.join("table")).unwrap();
        let write = |name: &str, text: &str| fs::write(source.join(name), text).unwrap();
        for (file, text) in [("a.rs", "guard"), ("table/mod.rs", ""), ("table/safe_api.rs", "test")] {
            write(file, text);
        }
        let mutant = Mutant {
            name: "it goes wrong",
            file: "crates/memory/src/a.rs",
            guard: "guard",
            instead: "",
            test: "table::tests::it",
        };
        let mut record = Record::default();
        record.add(&mutant, folder.path()).unwrap();
        assert!(record.has(&mutant, folder.path()).unwrap());
        for file in ["a.rs", "table/mod.rs", "table/safe_api.rs"] {
            let before = fs::read_to_string(source.join(file)).unwrap();
            write(file, "changed");
            assert!(!record.has(&mutant, folder.path()).unwrap(), "{file}");
            write(file, &before);
        }
        assert!(record.has(&mutant, folder.path()).unwrap());
        let other = Mutant { instead: "none", ..mutant };
        assert!(!record.has(&other, folder.path()).unwrap());
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join(FILE).parent().unwrap()).unwrap();
        let (known, gone) = (all().next().unwrap(), "a mutant that is no more");
        let mut record = Record::default();
        record.add(known, paths::repository()).unwrap();
        record.fingerprints.insert(gone.to_owned(), "0".to_owned());
        record.write(&[known], folder.path()).unwrap();
        record.fingerprints.remove(gone);
        assert_eq!(Record::read(folder.path()).unwrap(), record);
    }
}
