//! What can be missing: a library, or one of its functions.

use std::path::PathBuf;

use thiserror::Error;

/// A library could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot open {soname}: {reason}")]
#[non_exhaustive]
pub struct LibraryMissing {
    /// The name it was looked up by, such as `libibverbs.so.1`.
    pub soname: String,
    /// The dynamic linker's own words: not found, or found and unusable (a dependency or a newer libc is missing). They begin
    /// with the name of the file in question where that is another one.
    pub reason: String,
    /// A command that installs it.
    pub install: &'static str,
}

impl LibraryMissing {
    pub(crate) fn new(soname: &str, reason: &str, install: &'static str) -> Self {
        let own_name = format!("{soname}: ");
        let reason = reason.strip_prefix(&own_name).unwrap_or(reason).to_owned();
        Self { soname: soname.to_owned(), reason, install }
    }

    /// Whether the library is simply not there, as opposed to there and unusable.
    pub fn is_absent(&self) -> bool {
        // The linker has no error code, only words.
        self.reason.starts_with("cannot open shared object file: No such file")
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        if self.is_absent() {
            self.install.to_owned()
        } else {
            format!("repair the installation that the linker complains of, or reinstall: {}", self.install)
        }
    }
}

/// A library was opened and lacks a function: it is older than what the caller needs, or broken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} has no function {symbol}", path.display())]
#[non_exhaustive]
pub struct SymbolMissing {
    /// The file that was opened.
    pub path: PathBuf,
    /// The C name, with its symbol version (`name@VERSION`) where one was asked for.
    pub symbol: &'static str,
    /// The project whose releases `since` counts, such as `rdma-core`.
    pub release: &'static str,
    /// The first release that has the function.
    pub since: &'static str,
}

impl SymbolMissing {
    #[doc(hidden)]
    pub fn new(path: PathBuf, symbol: &'static str, release: &'static str, since: &'static str) -> Self {
        Self { path, symbol, release, since }
    }

    /// What to do about it.
    pub fn fix(&self) -> String {
        format!("{} is in {} {} and newer: install that", self.symbol, self.release, self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTALL: &str = "apt-get install x1";

    #[test]
    fn a_library_that_is_not_there_is_to_be_installed() {
        let reason = "libx.so.1: cannot open shared object file: No such file or directory";
        let missing = LibraryMissing::new("libx.so.1", reason, INSTALL);
        let shown = "cannot open libx.so.1: cannot open shared object file: No such file or directory";
        assert_eq!(missing.to_string(), shown);
        assert!(missing.is_absent());
        assert_eq!(missing.fix(), INSTALL);
    }

    #[test]
    fn a_library_that_lacks_another_is_to_be_repaired() {
        let reason = "liby.so.2: cannot open shared object file: No such file or directory";
        let missing = LibraryMissing::new("libx.so.1", reason, INSTALL);
        assert_eq!(missing.to_string(), format!("cannot open libx.so.1: {reason}"));
        assert!(!missing.is_absent());
        assert!(missing.fix().contains("repair"), "{}", missing.fix());
    }
}
