//! Records the steps that have passed for the current files, so that `ci --full` can resume.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::paths;
use crate::process::{command, output};
use crate::side_by_side::Report;

/// The file with the time of all runs, in seconds.
const TOOK: &str = "took";

/// The steps that have passed for one state of the repository.
#[derive(Debug)]
pub(super) struct Progress {
    folder: PathBuf,
    /// The time of earlier runs, until the last step that passed in them.
    before: Duration,
    started: Instant,
}

impl Progress {
    /// Opens the progress of the current files, committed or not.
    pub(super) fn of_this_tree() -> Result<Self> {
        let folder = paths::target().join("ci").join(tree()?);
        fs::create_dir_all(&folder)?;
        Ok(Self::in_folder(folder))
    }

    fn in_folder(folder: PathBuf) -> Self {
        let before = fs::read_to_string(folder.join(TOOK)).ok().and_then(|text| text.parse().ok());
        Self { folder, before: Duration::from_secs(before.unwrap_or(0)), started: Instant::now() }
    }

    /// Returns the time of all runs for this state, without interruptions and interrupted steps.
    pub(super) fn took(&self) -> Duration {
        self.before + self.started.elapsed()
    }

    /// Returns the report of a step that has passed.
    pub(super) fn passed(&self, step: &str) -> Option<Report> {
        serde_json::from_str(&fs::read_to_string(self.file(step)).ok()?).ok()
    }

    /// Records that a step has passed.
    pub(super) fn note(&self, report: &Report) -> Result<()> {
        fs::write(self.file(&report.name), serde_json::to_string(report)?)
            .and_then(|()| fs::write(self.folder.join(TOOK), self.took().as_secs().to_string()))
            .context("cannot record that a step has passed")
    }

    /// Removes all records: the next run starts from the beginning.
    pub(super) fn clear(self) -> Result<()> {
        fs::remove_dir_all(&self.folder).context("cannot remove the records of passed steps")
    }

    fn file(&self, step: &str) -> PathBuf {
        self.folder.join(format!("{}.json", step.replace(' ', "_")))
    }
}

/// Returns git's name of the tree of the current files. It uses a separate index, so that the
/// user's index does not change.
fn tree() -> Result<String> {
    let index = tempfile::tempdir()?;
    let git = |words: &[&str]| -> Command {
        let mut git = command("git", words);
        git.current_dir(paths::repository()).env("GIT_INDEX_FILE", index.path().join("index"));
        git
    };
    output(&mut git(&["add", "--all"]))?;
    Ok(output(&mut git(&["write-tree"]))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_has_passed_is_known_until_it_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let progress = || Progress::in_folder(folder.path().join("tree"));
        fs::create_dir(folder.path().join("tree")).unwrap();
        let report = Report {
            name: "vm test --guest newest".into(),
            took: Duration::from_secs(7),
            unsteady: vec!["x".into()],
        };
        assert_eq!(progress().passed(&report.name), None);
        progress().note(&report).unwrap();
        assert_eq!(progress().passed(&report.name), Some(report.clone()));
        assert_eq!(progress().passed("vm test"), None);
        progress().clear().unwrap();
        assert_eq!(progress().passed(&report.name), None);
    }

    #[test]
    fn a_run_that_resumes_counts_the_time_of_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Progress::in_folder(folder.path().to_owned());
        first.before = Duration::from_secs(40);
        first.note(&Report { name: "check".into(), took: Duration::from_secs(7), unsteady: vec![] }).unwrap();
        assert!(Progress::in_folder(folder.path().to_owned()).took() >= Duration::from_secs(40));
    }

    #[test]
    fn the_tree_has_a_name() {
        assert_eq!(tree().unwrap().len(), 40);
    }
}
