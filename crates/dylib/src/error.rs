//! Errors for a library that cannot be opened and for a function that a library lacks.

use std::path::PathBuf;

use thiserror::Error;

/// A library could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot open {soname}: {reason}")]
#[non_exhaustive]
pub struct LibraryMissing {
    /// The name that was looked up, such as `libibverbs.so.1`.
    pub soname: String,
    /// The dynamic linker's message: the file was not found, or was found and is unusable (a
    /// dependency or a newer libc is missing). If the message is about another file, it begins with
    /// that file's name.
    pub reason: String,
    /// A command that installs the library.
    pub install: &'static str,
}

impl LibraryMissing {
    pub(crate) fn new(soname: &str, reason: &str, install: &'static str) -> Self {
        let own_name = format!("{soname}: ");
        let reason = reason.strip_prefix(&own_name).unwrap_or(reason).to_owned();
        Self { soname: soname.to_owned(), reason, install }
    }

    /// Returns `true` if the library is absent, and `false` if it exists and is unusable.
    pub fn is_absent(&self) -> bool {
        // The dynamic linker reports no error code, only text.
        self.reason.starts_with("cannot open shared object file: No such file")
    }

    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> String {
        if self.is_absent() {
            self.install.to_owned()
        } else {
            format!("repair the installation named in the linker's message, or reinstall: {}", self.install)
        }
    }
}

/// A library was opened and lacks a function. The library is older than the caller needs, or
/// broken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} has no function {symbol}", path.display())]
#[non_exhaustive]
pub struct SymbolMissing {
    /// The file that was opened.
    pub path: PathBuf,
    /// The C name, with its symbol version (`name@VERSION`) if one was requested.
    pub symbol: &'static str,
    /// The project whose releases `since` refers to, such as `rdma-core`.
    pub release: &'static str,
    /// The first release that has the function.
    pub since: &'static str,
}

impl SymbolMissing {
    #[doc(hidden)]
    pub fn new(path: PathBuf, symbol: &'static str, release: &'static str, since: &'static str) -> Self {
        Self { path, symbol, release, since }
    }

    /// Returns an instruction that resolves the error.
    pub fn fix(&self) -> String {
        format!("{} needs {} {} or newer: install that release", self.symbol, self.release, self.since)
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
