//! Packages of Python's package index, in folders of the cache. Nothing is installed on this machine.

use anyhow::Result;

use crate::cache;
use crate::process::{command, output, require_programs};

/// A folder of packages for one version of Python.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct Packages<'a> {
    pub(crate) name: &'a str,
    /// The version of the interpreter that imports them, such as `3.11`.
    pub(crate) python: &'a str,
    /// `NAME==VERSION` of each package. Their dependencies are not fetched.
    pub(crate) packages: &'a [&'a str],
}

impl Packages<'_> {
    /// Returns the folder, for `PYTHONPATH`. It is fetched the first time, and then kept in the
    /// cache.
    pub(crate) fn get(&self) -> Result<cache::Entry> {
        cache::entry("python", self.name, self, &["Python's package index"], |_, folder| {
            require_programs(&[("python3", "python3-pip")])?;
            let origin = self.packages.join(", ");
            eprintln!("fetching {origin} for Python {}", self.python);
            let mut pip = command("python3", ["-m", "pip", "install", "--quiet", "--no-input", "--no-deps"]);
            pip.args(["--disable-pip-version-check", "--root-user-action=ignore"]);
            // Wheels only: the interpreter that builds packages here may be of another version.
            pip.args(["--only-binary=:all:", "--python-version", self.python]);
            pip.arg("--target").arg(folder).args(self.packages);
            output(&mut pip)?;
            Ok(origin)
        })
    }
}
