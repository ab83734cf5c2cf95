//! The loaded library.

use std::ffi::c_int;
use std::path::Path;

use farreach_fabric_sys::Libfabric;

use crate::{Error, Version, raw};

/// The libfabric that is loaded in this process.
///
/// It is loaded on first use. This type reports which one it is.
///
/// ```
/// use farreach_fabric::Library;
///
/// match Library::open() {
///     Ok(library) => println!("libfabric {} from {}", library.version(), library.path().display()),
///     Err(error) => println!("{error}; {}", error.fix()),
/// }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Library {
    functions: &'static Libfabric,
    version: Version,
}

impl Library {
    /// Loads the library, unless it is loaded already.
    pub fn open() -> Result<Self, Error> {
        let functions = Libfabric::get()?;
        let version = Version::from_c(raw::version(functions)?);
        if version < Version::OLDEST {
            return Err(Error::LibraryTooOld { path: functions.path().to_owned(), version });
        }
        Ok(Self { functions, version })
    }

    /// Returns its version: `fi_version(3)`.
    #[doc(alias = "fi_version")]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the file it was loaded from, with symbolic links resolved.
    pub fn path(&self) -> &'static Path {
        self.functions.path()
    }

    pub(crate) fn functions(&self) -> &'static Libfabric {
        self.functions
    }

    /// Builds the error of a failed call: `operation` is its C name, `status` its negative return
    /// value.
    pub(crate) fn error(&self, operation: &'static str, status: c_int) -> Error {
        let errno = status.saturating_neg();
        Error::Failed { operation, errno, text: self.strerror(errno) }
    }

    /// `fi_strerror(3)`
    pub(crate) fn strerror(&self, errno: c_int) -> String {
        raw::strerror(self.functions, errno).unwrap_or_else(|| "unknown error".to_owned())
    }
}
