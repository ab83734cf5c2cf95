//! Runs apt with its own state: lists and downloads of another suite, without a change to the
//! packages of this machine.

use std::cmp::Ordering;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Packages, sources};
use crate::paths;
use crate::process::{Ticker, command, output, require_programs, watched};

/// The age at which package lists are fetched again before a download: the archive removes the
/// files that old lists name.
const LISTS_STALE_AFTER: Duration = Duration::from_secs(6 * 3600);

/// The packages of one suite.
#[derive(Debug)]
pub(crate) struct Apt {
    suite: String,
    directory: PathBuf,
    architecture: Option<String>,
}

impl Apt {
    /// Opens the packages of a suite, such as `unstable`. Fetches its lists if they are missing or
    /// stale.
    pub(crate) fn of_suite(suite: &str) -> Result<Self> {
        Self::of_suite_for(suite, None)
    }

    /// Opens the packages of a suite for another architecture, such as `arm64`.
    pub(crate) fn of_suite_for(suite: &str, architecture: Option<&str>) -> Result<Self> {
        require_programs(&[("apt-get", "apt"), ("dpkg-deb", "dpkg")])?;
        let name = architecture.map_or_else(|| suite.to_owned(), |foreign| format!("{suite}-{foreign}"));
        let directory = paths::cache()?.join("apt").join(name);
        for folder in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(directory.join(folder))?;
        }
        // Empty: dependencies are resolved as if nothing were installed, so that a root is
        // complete.
        std::fs::write(directory.join("status"), "")?;
        std::fs::write(directory.join("suite.sources"), sources::for_suite(suite)?)?;
        let apt =
            Self { suite: suite.to_owned(), directory, architecture: architecture.map(ToOwned::to_owned) };
        apt.update_if_stale()?;
        Ok(apt)
    }

    pub(crate) fn suite(&self) -> &str {
        &self.suite
    }

    /// Returns the version in this suite, if it has the package.
    pub(crate) fn version_of(&self, package: &str) -> Result<Option<PackageVersion>> {
        Ok(self.show(package, "Version: ")?.map(PackageVersion))
    }

    /// Returns the packages that `package` depends on, only the first of alternatives.
    pub(crate) fn dependencies_of(&self, package: &str) -> Result<Vec<String>> {
        let line = self.show(package, "Depends: ")?.unwrap_or_default();
        Ok(line
            .split(',')
            .filter_map(|dependency| dependency.split(['|', '(', ':']).next())
            .map(|name| name.trim().to_owned())
            .filter(|name| !name.is_empty())
            .collect())
    }

    /// Downloads these packages only.
    pub(crate) fn download(&self, packages: &[&str]) -> Result<Packages> {
        let folder = tempfile::tempdir_in(&self.directory)?;
        let mut apt = self.apt("apt-get");
        apt.current_dir(folder.path()).arg("download").args(packages.iter().map(|name| self.qualified(name)));
        self.fetch(&mut apt, packages)?;
        Ok(Packages::in_folder(folder))
    }

    /// Downloads these packages and all their dependencies.
    pub(crate) fn download_with_dependencies(&self, packages: &[&str]) -> Result<Packages> {
        let folder = tempfile::tempdir_in(&self.directory)?;
        std::fs::create_dir(folder.path().join("partial"))?;
        let mut apt = self.apt("apt-get");
        apt.arg("-o").arg(format!("Dir::Cache::archives={}", folder.path().display()));
        apt.args(["install", "--yes", "--no-install-recommends", "--download-only"]);
        apt.args(packages.iter().map(|name| self.qualified(name)));
        self.fetch(&mut apt, packages)?;
        Ok(Packages::in_folder(folder))
    }

    fn update_if_stale(&self) -> Result<()> {
        let stamp = self.directory.join("updated");
        let age = stamp.metadata().and_then(|it| it.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age < LISTS_STALE_AFTER) {
            return Ok(());
        }
        eprintln!("fetching the package lists of Debian {}", self.suite);
        output(self.apt("apt-get").args(["update", "--error-on=any"]))
            .with_context(|| format!("cannot fetch the package lists of Debian {}", self.suite))?;
        std::fs::write(stamp, "")?;
        Ok(())
    }

    /// Returns the first `key` line in the record of the newest version.
    fn show(&self, package: &str, key: &str) -> Result<Option<String>> {
        let mut apt = self.apt("apt-cache");
        apt.args(["show", "--no-all-versions", &self.qualified(package)]);
        // apt-cache exits with an error if the package is unknown, which is a valid result here.
        let Ok(record) = output(&mut apt) else { return Ok(None) };
        Ok(record.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned()))
    }

    fn qualified(&self, package: &str) -> String {
        match &self.architecture {
            Some(architecture) => format!("{package}:{architecture}"),
            None => package.to_owned(),
        }
    }

    fn apt(&self, program: &str) -> Command {
        let here = |name: &str| self.directory.join(name).display().to_string();
        let mut options = vec![
            format!("Dir::Etc::sourcelist={}", here("suite.sources")),
            "Dir::Etc::sourceparts=-".to_owned(),
            format!("Dir::State::lists={}", here("lists")),
            format!("Dir::State::status={}", here("status")),
            format!("Dir::Cache={}", here("cache")),
            // The folders above belong to the current user, not to apt's own user.
            "APT::Sandbox::User=".to_owned(),
            "Acquire::Retries=3".to_owned(),
        ];
        if let Some(architecture) = &self.architecture {
            options.push(format!("APT::Architectures::={architecture}"));
        }
        let mut apt = command(program, options.iter().flat_map(|option| ["-o", option]));
        apt.env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive");
        apt
    }

    /// Runs a download, and prints its progress.
    fn fetch(&self, apt: &mut Command, packages: &[&str]) -> Result<()> {
        let mut ticker = Ticker::new("downloading");
        let downloaded = watched(apt, |line| {
            if line.starts_with("Get:") {
                ticker.step(None);
            } else if let Some(amount) = line.strip_prefix("Need to get ") {
                eprintln!("   downloading {}", amount.trim_end_matches('.'));
            }
        });
        downloaded.map_err(|error| {
            // The next attempt fetches the lists again: the usual cause is a version that was
            // replaced.
            let _ = std::fs::remove_file(self.directory.join("updated"));
            error.context(format!(
                "cannot download {1} from Debian {0} (try again: the lists will be fetched first)",
                self.suite,
                packages.join(" ")
            ))
        })
    }
}

/// A Debian version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PackageVersion(String);

impl PackageVersion {
    pub(crate) fn is_at_least(&self, minimum: &str) -> bool {
        compare(&self.0, minimum) != Ordering::Less
    }
}

impl fmt::Display for PackageVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Compares the leading dotted numbers, which is enough for the minimum versions here. The rest of
/// a version is ignored.
fn compare(left: &str, right: &str) -> Ordering {
    let numbers = |version: &str| -> Vec<u64> {
        let upstream = version.split_once(':').map_or(version, |(_epoch, rest)| rest);
        upstream.split(['.', '-', '+', '~']).map_while(|part| part.parse().ok()).collect()
    };
    numbers(left).cmp(&numbers(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_their_numbers() {
        for (version, minimum) in
            [("7.2.13-1", "7.0"), ("1:44.0-2", "44"), ("6.1.190-1", "6.1.190"), ("65.0-1.1", "65")]
        {
            assert!(PackageVersion(version.to_owned()).is_at_least(minimum), "{version} ≥ {minimum}");
        }
        for (version, minimum) in [("6.12.95-1~bpo12+1", "7.0"), ("1.17.0-3", "2.0"), ("44.0-2", "65")] {
            assert!(!PackageVersion(version.to_owned()).is_at_least(minimum), "{version} < {minimum}");
        }
    }
}
