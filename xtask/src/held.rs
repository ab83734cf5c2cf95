//! Lists in the repository of slow checks that have passed, each with the fingerprint of its files.
//! CI repeats those whose files have changed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::fingerprint;

/// One list: the lines that were read, and the lines to write.
pub(crate) struct Held {
    file: PathBuf,
    before: String,
    now: String,
}

impl Held {
    /// Opens the list in this file of the repository. `header` explains the list.
    pub(crate) fn open(repository: &Path, file: &str, header: &str) -> Self {
        let file = repository.join(file);
        let before = fs::read_to_string(&file).unwrap_or_default();
        Self { file, before, now: header.to_owned() }
    }

    /// Returns whether the list has this line.
    pub(crate) fn has(&self, entry: &str) -> bool {
        self.before.lines().any(|line| line == entry)
    }

    /// Returns whether the list has a line with this beginning.
    pub(crate) fn has_beginning(&self, entry: &str) -> bool {
        self.before.lines().any(|line| line.starts_with(entry))
    }

    /// Copies the line with this beginning, if there is one, into the list to be written.
    pub(crate) fn keep(&mut self, entry: &str) {
        if let Some(line) = self.before.lines().find(|line| line.starts_with(entry)) {
            self.now.push_str(line);
            self.now.push('\n');
        }
    }

    /// Adds a line to the list to be written.
    pub(crate) fn note(&mut self, entry: &str) {
        self.now.push_str(entry);
        self.now.push('\n');
    }

    pub(crate) fn write(&self) -> Result<()> {
        fs::write(&self.file, &self.now).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

/// Returns the line for a check that holds with these files and folders in their current state.
pub(crate) fn entry(repository: &Path, name: &str, places: &[&str]) -> Result<String> {
    entry_with(repository, name, &[], places)
}

/// Returns the line for a check that also depends on these texts.
pub(crate) fn entry_with(repository: &Path, name: &str, texts: &[&str], places: &[&str]) -> Result<String> {
    let mut files = Vec::new();
    for place in places.iter().map(|place| repository.join(place)) {
        match place.is_file() {
            true => files.push(place),
            false => files.extend(fingerprint::files_in(&place)),
        }
    }
    ensure!(!files.is_empty(), "{places:?} contain no files");
    Ok(format!("{} {name}", fingerprint::of(texts, &files)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_file_changes_the_entry() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("crates/verbs/src/qp");
        fs::create_dir_all(&source).unwrap();
        let of = |places: &[&str]| entry(folder.path(), "verbs", places);
        assert!(of(&["crates/verbs/src/qp"]).is_err(), "there is nothing in it");
        fs::write(source.join("ring.rs"), "a").unwrap();
        let before = [of(&["crates"]).unwrap(), of(&["crates/verbs/src/qp/ring.rs"]).unwrap()];
        fs::write(source.join("ring.rs"), "/// A letter.\n    // Why.\na").unwrap();
        assert_eq!(before, [of(&["crates"]).unwrap(), of(&["crates/verbs/src/qp/ring.rs"]).unwrap()]);
        fs::write(source.join("ring.rs"), "b").unwrap();
        let after = [of(&["crates"]).unwrap(), of(&["crates/verbs/src/qp/ring.rs"]).unwrap()];
        assert!(before[0] != after[0] && before[1] != after[1]);

        let mut held = Held::open(folder.path(), "list.txt", "# a list\n");
        assert!(!held.has(&before[0]));
        held.note(&before[0]);
        held.write().unwrap();
        let held = Held::open(folder.path(), "list.txt", "");
        assert!(held.has(&before[0]) && !held.has(&after[0]));
    }
}
